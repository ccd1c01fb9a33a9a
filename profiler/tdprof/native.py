"""The one place that finds and loads tdprof's compiled library (`profiler/native/*.c`)."""

import ctypes
import functools
from pathlib import Path


@functools.cache
def load_native() -> ctypes.CDLL | None:
    """The compiled library, or None where it was not built; callers then take their Python path.

    ``ctypes.CDLL`` releases the GIL for every call. Each user module sets ``argtypes`` for its own functions.
    """
    for path in sorted(Path(__file__).parent.glob("_native*.so")):
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # built for another architecture or libc: same as not built
            continue
    return None
