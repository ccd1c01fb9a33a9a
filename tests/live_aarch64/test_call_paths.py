"""Programs whose call paths are known: the samples' are the true ones, leaf functions' callers among them."""

import subprocess
from pathlib import Path

import pytest

from builders.call_paths import build_program, judge, make_program, read_folded
from builders.throwing import build_throwing, judge_thrown
from live_aarch64.machine import run_tdprof

SECONDS = 3
PERIOD = 100_003
BUILDS = {
    "gcc -O2": (2, "-O2"),  # its frames are the largest
    "gcc -O3, no frame pointers": (3, "-O3", "-fomit-frame-pointer", "-momit-leaf-frame-pointer"),
    "gcc -Os, return addresses signed": (4, "-Os", "-mbranch-protection=pac-ret+leaf"),
}
# Until the recorder has first said what the program has mapped, stacks are copied, which ends within frames of 100 kB
# and when there is no more room; no stack ends so later. How long that takes is up to what else the emulator has to do.
OF_THE_START = ("[incomplete: copy-ended]", "[incomplete: no-table]")


@pytest.mark.needs_bpf
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_random_paths_are_the_true_ones(build: tuple[int, *tuple[str, ...]], tmp_path: Path) -> None:
    seed, *flags = build
    program = make_program(seed)
    binary = build_program(program, tmp_path / "program", flags=flags)
    # The first leaves the unwind tables in the cache, which the emulator takes seconds to build.
    for seconds in (0, SECONDS):
        capture = tmp_path / f"capture-{seconds}"
        run_tdprof("record", "-e", "cycles:u", "-c", PERIOD, "-o", capture, "--", binary, seconds)
    found = judge(program, read_folded(run_tdprof("export", "--to", "folded", capture).stdout))
    assert found.total > 10_000 * PERIOD
    of_the_start = sum(found.reasons.get(mark, 0) for mark in OF_THE_START)
    assert of_the_start < 0.1 * found.total, found
    assert found.exact >= 0.99 * (found.total - of_the_start), found
    assert found.wrong <= 0.003 * found.total, found
    assert found.leaf > 0.5 * found.total
    assert found.leaf_exact >= 0.995 * found.leaf, found


@pytest.mark.needs_bpf
@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-fomit-frame-pointer")], ids=" ".join)
def test_who_throws_has_no_wrong_caller(flags: tuple[str, ...], tmp_path: Path) -> None:
    """While libgcc walks the stack and writes the handler's registers over its own."""
    capture = tmp_path / "capture"
    run_tdprof("record", "-e", "cycles:u", "-c", PERIOD, "-o", capture, "--", build_throwing(tmp_path, flags))
    found = judge_thrown(read_folded(run_tdprof("export", "--to", "folded", capture).stdout))
    assert found.total - found.incomplete > 500 * PERIOD, found  # how many are of the start is up to the emulator
    assert found.wrong <= 0.003 * found.total, found


@pytest.mark.needs_bpf
def test_what_stands_before_a_coroutine_is_not_its_caller(tmp_path: Path) -> None:
    binary = tmp_path / "coroutine"
    subprocess.run(["gcc", "-O1", "-o", binary, Path(__file__).with_name("coroutine.c")], check=True)
    capture = tmp_path / "capture"
    run_tdprof("record", "-e", "cycles:u", "-c", PERIOD, "-o", capture, "--", binary)
    stacks = [*read_folded(run_tdprof("export", "--to", "folded", capture).stdout)]
    total = sum(weight for frames, weight in stacks if "coroutine" in frames)
    assert total > 1000 * PERIOD
    # Copies of the start are walked without their code.
    wrong = sum(weight for frames, weight in stacks if "not_its_caller" in frames)
    assert wrong < 0.2 * total, (wrong, total)
