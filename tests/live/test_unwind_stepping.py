"""Every instruction of a program has the same callers by the unwind tables as its calls and returns made."""

import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from builders.cfi_programs import FRAMES
from builders.single_steps import Stepped, step_through
from builders.unwind_cores import maps_world
from tdprof.native import unwind_api
from tdprof.unwind import walk

EM_X86_64 = 62
MOST_STEPS = 30_000

pytestmark = [
    pytest.mark.skipif(not unwind_api.is_available(), reason="the compiled library was not built"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="steps through x86-64's instructions"),
    pytest.mark.slow,
]

BUILDS = {
    "gcc -O0": ["gcc", "-O0"],
    "gcc -O2": ["gcc", "-O2"],
    "gcc -O2, bound at once": ["gcc", "-O2", "-Wl,-z,now", "-fcf-protection"],
    "gcc -O3 -mavx2": ["gcc", "-O3", "-mavx2"],
    "gcc -Os, frame pointers": ["gcc", "-Os", "-fno-omit-frame-pointer"],
    "clang -O2": ["clang", "-O2"],
    "gcc -O2 -static": ["gcc", "-O2", "-static"],
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_each_instruction_has_its_callers(build, tmp_path):
    if not shutil.which(build[0]):
        pytest.skip(f"{build[0]} is not installed")
    program = tmp_path / "frames"
    subprocess.run([*build, "-no-pie", FRAMES, "-o", program], check=True)
    world, below = None, []
    words = unwind_api.end_words()
    steps, wrong, incomplete = 0, [], []
    for stepped in step_through(program, main_of(program), MOST_STEPS):
        if world is None:
            vdso = tmp_path / "vdso"
            vdso.write_bytes(stepped.vdso)
            world = maps_world(stepped.maps, vdso)
        walked = walk_steps(stepped, world)
        if not steps:
            assert words[walked.end[0]] == "complete"
            below = walked.addresses[1 : walked.depth[0]].tolist()  # who called main
        steps += len(stepped.registers)
        at = np.concatenate([[0], np.cumsum(walked.depth, dtype=np.int64)]).astype(int)
        for i, callers in enumerate(stepped.callers):
            chain = walked.addresses[at[i] : at[i + 1]].tolist()
            expected = [chain[0], *callers, *below]
            shown = (hex(chain[0]), words[walked.end[i]], [hex(a) for a in chain[1:5]], [hex(a) for a in expected[1:5]])
            if chain != expected[: len(chain)]:
                wrong.append(shown)
            elif words[walked.end[i]] != "complete" or len(chain) != len(expected):
                incomplete.append(shown)
    assert steps > 2000
    assert not wrong, f"{len(wrong)} of {steps}: {wrong[:5]}"
    # The C runtime's start files have functions without call-frame information, run at the end. The dynamic linker's
    # entry keeps its caller's stack pointer in rbx, which is known in the topmost frame only.
    allowed = {"no-unwind-info"} | (
        {"unsupported-rule"} if "-Wl,-z,now" not in build and "-static" not in build else set()
    )
    other = [shown for shown in incomplete if shown[1] not in allowed]
    assert not other, f"{len(other)} of {steps}: {other[:5]}"
    assert len([why for _, why, *_ in incomplete if why == "no-unwind-info"]) < 40


def main_of(program: Path) -> int:
    out = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[0], 16) for line in out.splitlines() if line.endswith(" T main"))


def walk_steps(stepped: Stepped, world: walk.World) -> walk.Walked:
    sizes = np.array([len(stack) for stack in stepped.stacks], np.uint32)
    return walk.walk_stacks(
        walk.CopiedStacks(
            EM_X86_64,
            np.array(stepped.registers, np.uint64),
            np.zeros(len(sizes), np.uint32),
            np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.uint64),
            sizes,
            np.frombuffer(b"".join(stepped.stacks), np.uint8),
        ),
        world,
    )
