"""Every instruction of a program has the same callers by the unwind tables as its calls and returns made."""

import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from builders.cfi_programs import FRAMES, THROWS
from builders.elf import EM_AARCH64, EM_X86_64
from builders.emulated_steps import QEMU, SYSTEM, step_through_emulated
from builders.single_steps import step_through
from builders.stepped_callers import MOST_STEPS, Compared, build_program, compare_callers
from tdprof.native import unwind_api

pytestmark = [
    pytest.mark.skipif(not unwind_api.is_available(), reason="the compiled library was not built"),
    pytest.mark.slow,
]

# Whose prologues and epilogues are among those of the others.
ALIKE = (
    *("gcc -O0", "gcc -O2", "gcc -O2, bound at once", "gcc -Os, frame pointers"),
    *("gcc -O3, no frame pointers", "aarch64, clang -O0", "gcc -O2 -static"),
)


def variants(builds: dict[str, Any]) -> list[Any]:
    """Parameters of a test, in which what is like others is `thorough`."""
    return [
        pytest.param(*(build if isinstance(build, tuple) else (build,)), id=name,
                     marks=[pytest.mark.thorough] * (name in ALIKE))
        for name, build in builds.items()
    ]  # fmt: skip


BUILDS = {
    "gcc -O0": ["gcc", "-O0"],
    "gcc -O2": ["gcc", "-O2"],
    "gcc -O2, bound at once": ["gcc", "-O2", "-Wl,-z,now", "-fcf-protection"],
    "gcc -O3 -mavx2": ["gcc", "-O3", "-mavx2"],
    "gcc -Os, frame pointers": ["gcc", "-Os", "-fno-omit-frame-pointer"],
    "clang -O2": ["clang", "-O2"],
    "gcc -O2 -static": ["gcc", "-O2", "-static"],
}
AARCH64_BUILDS = {
    "gcc -O2, return addresses signed": ["aarch64-linux-gnu-gcc", "-O2", "-mbranch-protection=standard"],
    "gcc -O3, no frame pointers": ["aarch64-linux-gnu-gcc", "-O3", "-fomit-frame-pointer", "-momit-leaf-frame-pointer"],
    "clang -O2": ["clang", "--target=aarch64-linux-gnu", "-O2"],
    "gcc -O2, no call-frame information": [
        "aarch64-linux-gnu-gcc",
        "-O2",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ],
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="steps through x86-64's instructions")
@pytest.mark.parametrize("build", variants(BUILDS))
def test_each_instruction_has_its_callers(build: list[str], tmp_path: Path) -> None:
    if not shutil.which(build[0]):
        pytest.skip(f"{build[0]} is not installed")
    program, main = build_program(build, FRAMES, tmp_path)
    found = compare_callers(step_through(program, main, MOST_STEPS), EM_X86_64, tmp_path)
    # The dynamic linker's entry keeps its caller's stack pointer in rbx. Of what it calls the first instructions have
    # not saved rbx yet, the last have popped it: where it was, copies of stacks do not reach.
    is_lazy = "-Wl,-z,now" not in build and "-static" not in build
    check(found, {"unsupported-rule", "unreadable"} if is_lazy else set())
    assert sum(stack.end in {"unsupported-rule", "unreadable"} for stack in found.incomplete) <= found.steps / 100


@pytest.mark.parametrize("build", variants(AARCH64_BUILDS))
def test_each_instruction_of_aarch64_has_its_callers(build: list[str], tmp_path: Path) -> None:
    for needed in (build[0], QEMU, SYSTEM / "lib"):
        if not shutil.which(needed) and not Path(needed).is_dir():
            pytest.skip(f"{needed} is not installed")
    program, main = build_program(build, FRAMES, tmp_path)
    found = compare_callers(step_through_emulated(program, main, MOST_STEPS, tmp_path), EM_AARCH64, tmp_path)
    assert found.steps > 10_000  # names are looked up when they are first called
    check(found, set())


THROWING_BUILDS = {
    "gcc -O2": (EM_X86_64, ["gcc", "-O2"]),
    "clang -O0": (EM_X86_64, ["clang", "-O0"]),
    "aarch64, gcc -O2": (EM_AARCH64, ["aarch64-linux-gnu-gcc", "-O2"]),
    "aarch64, clang -O0": (EM_AARCH64, ["clang", "--target=aarch64-linux-gnu", "-O0"]),
}


@pytest.mark.parametrize(("machine", "build"), variants(THROWING_BUILDS))
def test_who_throws_has_its_callers_until_libgcc_has_written_over_them(
    machine: int, build: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {EM_X86_64: [build[0]], EM_AARCH64: [build[0], QEMU]}[machine]
    if not all(map(shutil.which, needed)) or (machine == EM_AARCH64 and not (SYSTEM / "lib").is_dir()):
        pytest.skip(f"{', '.join(needed)} or the libraries of aarch64 are not installed")
    if machine == EM_X86_64 and platform.machine() != "x86_64":
        pytest.skip("steps through x86-64's instructions")
    monkeypatch.setenv("LD_BIND_NOW", "1")
    program, main = build_program([*build, "-fexceptions"], THROWS, tmp_path)
    if machine == EM_X86_64:
        found = compare_callers(step_through(program, main, MOST_STEPS), machine, tmp_path)
    else:
        found = compare_callers(step_through_emulated(program, main, MOST_STEPS, tmp_path), machine, tmp_path)
    check(found, {"unsupported-rule", "bad-sp"})
    # Callers by FP are lost while libgcc writes over it, and that is much of what such a program does.
    assert len(found.incomplete) < 0.2 * found.steps, len(found.incomplete)


def check(found: Compared, allowed: set[str]) -> None:
    """No caller is wrong, and stacks end early only where they may."""
    assert found.steps > 2000
    assert not found.wrong, f"{len(found.wrong)} of {found.steps}: {found.wrong[:5]}"
    # The C runtime's start files have functions without call-frame information, run at the end.
    other = [stack for stack in found.incomplete if stack.end not in {"no-unwind-info", *allowed}]
    assert not other, f"{len(other)} of {found.steps}: {other[:5]}"
    assert sum(stack.end == "no-unwind-info" for stack in found.incomplete) < 40
