"""`tdprof record --topdown` of a Python program: the bottleneck of each Python function, on the simulated Neoverse.

Its two functions call native code of declared behaviour, one that waits for instructions and one that waits for data.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builders.opened import profile_of
from live_aarch64.conftest import build_workload
from live_aarch64.machine import run_tdprof
from live_aarch64.neoverse_sim import Simulation, write_regions
from live_aarch64.test_topdown import HZ, V1, values_of
from tdprof.model.choices import Selection
from tdprof.model.profile import Profile
from tdprof.pipeline.load import find_findings
from tdprof.profile.frames import function_names
from tdprof.profile.languages import fold_native
from tdprof.profile.selection import select

# The workload's own main() declares its functions, where the library was loaded to. The pauses let tdprof see that this
# is Python: beside a busy CPU all else takes long in the emulator.
PROGRAM = """
import ctypes, sys, time

library = ctypes.CDLL(sys.argv[1])
words = [b"workload", b"-r", sys.argv[2].encode(), b"-n", b"0"]
assert library.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words)) == 0

def starve(calls):
    for _ in range(calls):
        library.hot()

def wait_for_data(calls):
    for _ in range(calls):
        library.cold()

def turn(number):
    starve(1 + number * 7 % 3)
    wait_for_data(3 + number * 5 % 7)

for number in range(20):
    turn(number)
    time.sleep(0.1)
for number in range(int(sys.argv[3])):
    turn(number)
"""
BOTTLENECKS = {"starve": "frontend_bound", "wait_for_data": "backend_bound"}
BEHAVES_LIKE = {"starve": "hot", "wait_for_data": "cold"}


@pytest.mark.needs_bpf
def test_each_python_function_has_its_own_bottleneck(simulate: Callable[..., Simulation], tmp_path: Path) -> None:
    library = build_workload(tmp_path, "-shared", "-fPIC")
    program, capture = tmp_path / "service.py", tmp_path / "capture"
    program.write_text(PROGRAM)
    simulate(core="v1", spe=0)
    regions = write_regions(tmp_path / "regions", V1.regions())
    run_tdprof("record", "--topdown", "-F", HZ, "--cpu", V1.name, "-o", capture, "--",
               os.path.realpath("/usr/bin/python3"), program, library, regions, 700)  # fmt: skip
    whole = profile_of(capture)
    assert whole.rung == "bpf-pmu"
    profile = fold_native(whole)
    # Nothing was added or left out: what the native functions took is the Python functions' now.
    assert profile.total_weight().tolist() == whole.total_weight().tolist()
    assert not {"hot", "cold"} & leaves(profile, least=0.05)
    check_bottlenecks(fold_native(of_library(whole, library)))


def of_library(profile: Profile, library: Path) -> Profile:
    """The samples taken in the library's own code, which alone has a declared truth.

    A Python function's metrics are those of the kernel below it, too, and interrupts alone can take two thirds of the
    emulator's time.
    """
    return replace(select(profile, Selection(modules=[library.name])), topdown=profile.topdown)


def leaves(profile: Profile, least: float) -> set[str]:
    """The functions that hold at least this share of the samples themselves."""
    names = function_names(profile)
    leaf = profile.stacks.location[profile.stacks.start[profile.samples.stack]]
    function = profile.locations.frame_function[profile.locations.frame_start[leaf]]
    total = int(profile.samples.count.sum())
    return {
        names[number]
        for number in set(function.tolist())
        if profile.samples.count[function == number].sum() >= least * total
    }


def check_bottlenecks(profile: Profile) -> None:
    findings = find_findings(profile)
    assert findings is not None
    names = [function_names(profile)[number] for number in findings.function]
    for function, bottleneck in BOTTLENECKS.items():
        assert findings.diagnoses[names.index(function)].bottleneck == bottleneck, function
        found = values_of(profile, findings, function)[bottleneck]
        off = abs(found.value - V1.truth(BEHAVES_LIKE[function])[bottleneck])
        assert off < 3 * found.half_width, (function, found)
