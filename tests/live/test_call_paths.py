"""Random programs whose call paths are known: every sample has the true one, whatever the compiler made of it."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from builders.call_paths import ROUND_ITERATIONS, build_program, judge, make_program, read_folded
from builders.fixed_turns import build_fixed_turns
from builders.library_turns import build_turns
from builders.throwing import build_throwing, judge_thrown
from live.recording import TDPROF, assert_share, record
from tdprof.capture.manifest import read_manifest


@pytest.mark.parametrize(
    ("seed", "compiler", "level", "more"),
    [
        *[
            pytest.param(*built, (), marks=[pytest.mark.needs_bpf] + [pytest.mark.thorough] * is_thorough)
            for *built, is_thorough in (
                (1, "gcc", "-O0", True),
                (2, "gcc", "-O2", False),
                (3, "gcc", "-O3", True),
                (4, "clang", "-O1", True),
                (5, "clang", "-O2", False),
                (6, "clang", "-Os", True),
            )
        ],
        # Pieces of its stack lie above and below each other.
        pytest.param(
            *(5, "gcc", "-O2 -fsplit-stack", ()),
            marks=[
                pytest.mark.needs_bpf,
                pytest.mark.skipif(platform.machine() != "x86_64", reason="gcc splits stacks on x86-64 alone"),
            ],
        ),
        # Programs of which no stack is larger than what is copied.
        pytest.param(8, "gcc", "-O2", ("--no-bpf",), marks=[pytest.mark.needs_perf, pytest.mark.thorough]),
        pytest.param(20, "clang", "-O2", ("--no-bpf", "--call-graph", "dwarf,16384"), marks=pytest.mark.needs_perf),
    ],
)
def test_random_paths_are_the_true_ones(
    seed: int, compiler: str, level: str, more: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    program = make_program(seed)
    binary = build_program(program, tmp_path / "program", [compiler], level.split())

    def share(frequency: int, folder: Path) -> tuple[int, int, float]:
        record("-e", "cpu-clock:u", "-F", frequency, *more, "--", binary, "1", folder=folder)
        export: list[str | Path] = [*TDPROF, "export", "--to", "folded", folder]
        found = judge(program, read_folded(subprocess.run(export, capture_output=True, text=True, check=True).stdout))
        assert found.exact >= 0.99 * found.total, found
        assert found.wrong <= 0.003 * found.total, found
        loops = [(path.iterations, found.by_path[at]) for at, path in enumerate(program.paths) if path.iterations]
        most, weight = max(loops)
        assert most > ROUND_ITERATIONS // 8
        period = 1_000_000_000 // frequency
        whole = sum(weight for _, weight in loops) // period
        return weight // period, whole, most / sum(iterations for iterations, _ in loops)

    first = share(1999, folder)
    try:
        assert_share(*first)
    except AssertionError:  # the program's rounds may keep step with one clock, not with both
        assert_share(*share(1487, folder.with_name("again")))


@pytest.mark.needs_bpf
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only instructions of x86-64 are followed")
@pytest.mark.parametrize(
    ("seed", "compiler", "level"),
    [
        (1, "gcc", "-O2"),
        *[pytest.param(*more, marks=pytest.mark.thorough) for more in ((2, "clang", "-O2"), (4, "gcc", "-O3"))],
    ],
)
def test_paths_through_code_without_call_frame_information_are_true_and_said_to_be_guessed(
    seed: int, compiler: str, level: str, folder: Path, tmp_path: Path
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    program = make_program(seed)
    flags = [level, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"]
    binary = build_program(program, tmp_path / "program", [compiler], flags)
    record("-e", "cpu-clock:u", "-F", "1999", "--", binary, "1", folder=folder)
    folded = subprocess.run([*TDPROF, "export", "--to", "folded", folder], capture_output=True, text=True, check=True)
    found = judge(program, read_folded(folded.stdout.replace(" [guessed]", "")))
    assert found.exact >= 0.97 * found.total, found
    assert found.wrong <= 0.01 * found.total, found
    assert judge(program, read_folded(folded.stdout)).incomplete >= 0.99 * found.total


@pytest.mark.parametrize(
    ("compiler", "level", "more"),
    [
        pytest.param("gcc", "-O2", (), id="bpf", marks=pytest.mark.needs_bpf),
        # By frame pointers the other library's rules lead to the bottom, too: only names are wrong then.
        pytest.param("clang", "-O0", (), id="bpf-clang", marks=[pytest.mark.needs_bpf, pytest.mark.thorough]),
        pytest.param(
            "gcc", "-O2", ("--no-bpf",), id="ring-buffer", marks=[pytest.mark.needs_perf, pytest.mark.thorough]
        ),
    ],
)
def test_libraries_that_take_each_others_place_have_no_wrong_callers(
    compiler: str, level: str, more: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    """Many times a second. Without BPF, copies end in frames of 100 kB, most of which was never touched."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    turns = build_turns((1, 2), tmp_path / "program", [compiler], [level], seconds=0.5, rounds=4)
    record("-e", "cpu-clock:u", "-F", "1999", *more, "--", *turns.command, folder=folder)
    folded = subprocess.run([*TDPROF, "export", "--to", "folded", folder], capture_output=True, text=True, check=True)
    found = judge(turns.program, read_folded(folded.stdout))
    assert more or found.reasons.get("[incomplete: copy-ended]", 0) <= 0.02 * found.total, found
    assert found.exact >= 0.1 * found.total > 0, found
    assert found.wrong <= 0.003 * found.total, found


@pytest.mark.needs_bpf
def test_what_was_walked_by_a_file_that_another_was_mapped_over_has_no_callers_and_counts(
    folder: Path, tmp_path: Path
) -> None:
    """By MAP_FIXED, which nothing in the kernel tells at once."""
    turns = build_fixed_turns(tmp_path / "program", seconds=0.5, rounds=200)
    record("-e", "cpu-clock:u", "-F", "1999", "--", *turns.command, folder=folder)
    folded = subprocess.run([*TDPROF, "export", "--to", "folded", folder], capture_output=True, text=True, check=True)
    found = judge(turns.program, read_folded(folded.stdout))
    assert found.wrong <= 0.003 * found.total, found
    assert any("mapped over" in reason for reason in read_manifest(folder).losses.by_reason), found


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="bpf", marks=pytest.mark.needs_bpf),
        pytest.param(("--no-bpf",), id="ring-buffer", marks=pytest.mark.needs_perf),
    ],
)
def test_who_throws_has_its_callers_until_its_stack_is_given_up(
    more: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    """libgcc writes the handler's registers over its own: 1.6 % of this program's samples had a wrong caller."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    # Of a start that is late on a busy machine no more is copied than some thousand stacks.
    program = build_throwing(tmp_path, ["-O0", "-DSECONDS=2"])
    record("-e", "cpu-clock:u", "-F", "1999", *more, "--", program, folder=folder)
    folded = subprocess.run([*TDPROF, "export", "--to", "folded", folder], capture_output=True, text=True, check=True)
    found = judge_thrown(read_folded(folded.stdout))
    assert found.total > 0
    assert found.wrong <= 0.003 * found.total, found
    ended = [line for line in folded.stdout.splitlines() if "[incomplete: " in line]
    assert found.incomplete - found.rewritten <= 0.01 * found.total, ended
    assert found.rewritten <= 0.2 * found.resuming, ended
