"""Which language runtimes made the code that no perf map names, and how each is made to write one."""

import re
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from tdprof.model.addresses import Unknown
from tdprof.model.arrays import distinct
from tdprof.model.profile import Profile
from tdprof.profile.frames import leaf_locations


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that makes code as it runs.

    Attributes:
        files: names of the programs and libraries that hold it.
        to_write_a_map: what makes it write /tmp/perf-PID.map.
    """

    files: re.Pattern[str]
    to_write_a_map: str


RUNTIMES = (
    Runtime(re.compile(r"libjvm\.so"), "jcmd PID Compiler.perfmap while it runs (JDK 17 and later)"),
    Runtime(re.compile(r"node(js)?|libnode\.so.*"), "node --perf-basic-prof"),
    Runtime(re.compile(r"(lib)?python3[.\d]*(\.so.*)?"), "python -X perf (CPython 3.12 and later)"),
    Runtime(re.compile(r"libcoreclr\.so"), "DOTNET_PerfMapEnabled=1 in its environment"),
)


def runtimes_without_map(profile: Profile) -> list[Runtime]:
    """Those that stand in the call stacks of the processes that ran code without a map."""
    samples, stacks, locations = profile.samples, profile.stacks, profile.locations
    leaf = leaf_locations(profile)
    is_nameless = np.zeros(len(leaf), bool)
    is_nameless[leaf >= 0] = locations.reason[leaf[leaf >= 0]] == Unknown.NO_PERF_MAP
    pids = distinct(samples.pid[is_nameless[samples.stack]])
    chosen = np.zeros(len(leaf), bool)
    chosen[samples.stack[np.isin(samples.pid, pids)]] = True
    files = distinct(locations.mapped_file[stacks.location[np.repeat(chosen, np.diff(stacks.start))]])
    names = {PurePath(profile.mapped_files[file].path).name for file in files.tolist() if file >= 0}
    return [runtime for runtime in RUNTIMES if any(runtime.files.fullmatch(name) for name in names)]
