"""The one place that finds and loads tdprof's compiled library (`profiler/native/*.c`)."""

import ctypes
import functools
from pathlib import Path

from tdprof.errors import TdprofError
from tdprof.native import (
    aux_flags,
    bpf_stacks,
    clock_periods,
    code_reach,
    counter,
    dwarf_api,
    go_lines,
    kernel_types,
    lost_pages,
    parquet_page,
    perf_records,
    ring_walk,
    stacks,
    started_threads,
    varied_work,
)
from tdprof.native.headers import is_current

_HEADERS = (
    aux_flags,
    bpf_stacks,
    clock_periods,
    code_reach,
    counter,
    dwarf_api,
    go_lines,
    kernel_types,
    lost_pages,
    parquet_page,
    perf_records,
    ring_walk,
    stacks,
    started_threads,
    varied_work,
)


@functools.cache
def load_native() -> ctypes.CDLL | None:
    """The compiled library, or None where it was not built; callers then take their Python path.

    ``ctypes.CDLL`` releases the GIL for every call. The types of all functions are declared here, header by header.

    Raises:
        TdprofError: it is of another version than the program.
    """
    for path in sorted(Path(__file__).parents[1].glob("_native*.so")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # built for another architecture or libc: same as not built
            continue
        try:
            for header in _HEADERS:
                header.declare(library)
        except AttributeError as error:  # a checkout that went on without its library
            raise _other_version(path, str(error)) from error
        if not is_current(library, Path(__file__).parents[3]):
            raise _other_version(path, "its headers are not those of this checkout")
        return library
    return None


def _other_version(path: Path, how: str) -> TdprofError:
    return TdprofError(
        f"{path} is of another version of tdprof: {how}", hint="pip install . (in a checkout: tools/setup)"
    )
