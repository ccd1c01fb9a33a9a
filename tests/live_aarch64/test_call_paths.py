"""Random programs whose call paths are known: the samples' are the true ones, leaf functions' callers among them."""

from pathlib import Path

import pytest

from builders.call_paths import build_program, judge, make_program, read_folded
from live_aarch64.machine import run_tdprof

# So long that the first moments, in which the recorder learns what the program has mapped, are less than a percent.
SECONDS = 3
PERIOD = 100_003
BUILDS = {
    "gcc -O2": (2, "-O2"),  # its stacks are the largest: see LEAST_TRUE
    "gcc -O3, no frame pointers": (3, "-O3", "-fomit-frame-pointer", "-momit-leaf-frame-pointer"),
    "gcc -Os, return addresses signed": (4, "-Os", "-mbranch-protection=pac-ret+leaf"),
}

# On a busy machine up to 2.6 % of this one's stacks were said to be incomplete, none was wrong; why is not known.
LEAST_TRUE = {"-O2": 0.95}


@pytest.mark.needs_bpf
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_random_paths_are_the_true_ones(build: tuple[int, *tuple[str, ...]], tmp_path: Path) -> None:
    seed, *flags = build
    program = make_program(seed)
    binary = build_program(program, tmp_path / "program", flags=flags)
    # The first leaves the unwind tables in the cache; to build them takes the emulator a part of the recording.
    for seconds in (0, SECONDS):
        capture = tmp_path / f"capture-{seconds}"
        run_tdprof("record", "-e", "cycles:u", "-c", PERIOD, "-o", capture, "--", binary, seconds)
    found = judge(program, read_folded(run_tdprof("export", "--to", "folded", capture).stdout))
    assert found.total > 10_000 * PERIOD
    assert found.exact >= LEAST_TRUE.get(flags[0], 0.99) * found.total, found
    assert found.wrong <= 0.003 * found.total, found
    assert found.leaf > 0.5 * found.total
    assert found.leaf_exact >= 0.995 * found.leaf, found
