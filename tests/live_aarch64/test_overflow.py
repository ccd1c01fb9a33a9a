"""Sampling on real PMU overflows of QEMU's armv8_pmuv3: where the samples fall and what they add up to."""

from pathlib import Path

import pytest

from live_aarch64.machine import IS_COUNTED, report, run_tdprof, self_counts

# Of one round of the workload's `hot` and `cold`: turns of two instructions, and a few around them.
HOT, COLD = 150_000, 50_000
PERIOD = 49_999  # a prime: no loop keeps step with it


@pytest.mark.needs_perf
@pytest.mark.parametrize("rung", ["bpf-pmu", "ring-buffer"])
def test_split_is_exact(rung: str, workload: Path, tmp_path: Path) -> None:
    rounds = 200
    options = ["--no-bpf"] if rung == "ring-buffer" else []
    capture = tmp_path / "capture"
    run_tdprof("record", *options, "-e", "cycles:u", "-c", PERIOD, "-o", capture,
               "--", workload, "-w", "hc", "-n", rounds)  # fmt: skip
    found = report(capture)
    counts = self_counts(found, "cycles:u")
    share = counts["hot"] / (counts["hot"] + counts["cold"])
    assert found["rung"] == rung
    assert not any(value for value in found["losses"].values() if isinstance(value, int))
    if IS_COUNTED:
        # One instruction is one cycle and every PERIOD-th is sampled. Where in its stretch of 150,000 a sample falls is
        # as good as random, so n samples are off by less than 4 standard deviations.
        samples = rounds * (HOT + COLD) / PERIOD
        assert abs(share - 0.75) < 4 * (0.75 * 0.25 / samples) ** 0.5 / 2
        assert counts["hot"] + counts["cold"] == pytest.approx(rounds * (HOT + COLD), rel=0.01)
    else:
        assert share == pytest.approx(0.75, abs=0.03)
