"""Which language runtimes made the code that no perf map names, and how each is made to write one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from tdprof.model.addresses import DELETED, Unknown
from tdprof.model.arrays import distinct
from tdprof.model.profile import Profile
from tdprof.profile.frames import leaf_locations


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that makes code as it runs.

    Attributes:
        language: what its programs are written in, most of them.
        is_compiler: it compiles whatever it runs, unless told not to.
        files: names of the programs and libraries that hold it.
        to_write_a_map: what makes it write /tmp/perf-PID.map.
    """

    language: str
    is_compiler: bool
    files: re.Pattern[str]
    to_write_a_map: str


RUNTIMES = (
    Runtime("Java", True, re.compile(r"libjvm\.so"), "jcmd PID Compiler.perfmap while it runs (JDK 17 and later)"),
    Runtime("JavaScript", True, re.compile(r"node(js)?|libnode\.so.*"), "node --perf-basic-prof"),
    Runtime("Python", False, re.compile(r"(lib)?python3[.\d]*(\.so.*)?"), "python -X perf (CPython 3.12 and later)"),
    Runtime(".NET", True, re.compile(r"libcoreclr\.so"), "DOTNET_PerfMapEnabled=1 in its environment"),
)


def runtimes_without_map(profile: Profile) -> list[Runtime]:
    """Those of the processes that ran code without a map."""
    leaf = leaf_locations(profile)
    is_nameless = np.zeros(len(leaf), bool)
    is_nameless[leaf >= 0] = profile.locations.reason[leaf[leaf >= 0]] == Unknown.NO_PERF_MAP
    pids = distinct(profile.samples.pid[is_nameless[profile.samples.stack]]).tolist()
    found = {language for pid in pids for language in profile.runtimes.get(pid, ())}
    return [runtime for runtime in RUNTIMES if runtime.language in found]


def process_runtimes(mappings: pa.Table) -> dict[int, list[str]]:
    """The languages whose runtimes each process mapped, in the order of ``RUNTIMES``; those without are left out.

    Args:
        mappings: the capture's table.
    """
    paths = mappings["path"].combine_chunks().dictionary_encode()
    holds = np.array([*map(_runtimes_of, paths.dictionary.to_pylist()), 0], np.uint64)[paths.indices.fill_null(-1)]
    rows = np.flatnonzero(holds)
    pids, process = np.unique(mappings["pid"].to_numpy()[rows], return_inverse=True)
    found = np.zeros(len(pids), np.uint64)
    np.bitwise_or.at(found, process, holds[rows])
    return {
        pid: [runtime.language for number, runtime in enumerate(RUNTIMES) if bits >> number & 1]
        for pid, bits in zip(pids.tolist(), found.tolist(), strict=True)
    }


def language_of_run_time_code(languages: Sequence[str]) -> str | None:
    """Of these runtimes of one process, which made its code; None if that cannot be said."""
    makers = [runtime.language for runtime in RUNTIMES if runtime.is_compiler and runtime.language in languages]
    found = makers or languages
    return found[0] if len(found) == 1 else None


def _runtimes_of(path: str) -> int:
    """A bit for each of ``RUNTIMES`` that this file holds."""
    name = PurePath(path.removesuffix(DELETED)).name
    return sum(1 << number for number, runtime in enumerate(RUNTIMES) if runtime.files.fullmatch(name))
