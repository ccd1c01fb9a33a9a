"""Sampling on real PMU overflows of QEMU's armv8_pmuv3: where the samples fall and what they add up to."""

import os
import signal
import subprocess
import time
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


@pytest.mark.needs_perf
def test_threads_and_forks_are_all_sampled(workload: Path, tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    run_tdprof("record", "-e", "cycles:u", "-c", 99991, "-o", capture,
               "--", workload, "-w", "hc", "-n", 20, "-f", 2, "-t", 1)  # fmt: skip
    found = report(capture)
    counts = self_counts(found, "cycles:u")
    # Three processes with two threads each. With counted instructions QEMU's clock is one for both CPUs, so a busy CPU
    # also counts what the other executes: between once and twice the truth.
    truth = 6 * 20 * (HOT + COLD)
    assert 0.95 * truth < counts["hot"] + counts["cold"] < 2.1 * truth
    assert counts["hot"] / (counts["hot"] + counts["cold"]) == pytest.approx(0.75, abs=0.04)


@pytest.mark.needs_perf
def test_attach_and_system_wide(workload: Path, tmp_path: Path) -> None:
    process = subprocess.Popen([workload, "-w", "hc", "-n", "1000000"])
    try:
        for mode in (["-p", process.pid], ["-a"]):
            capture = tmp_path / f"capture{mode[0]}"
            run_tdprof("record", *mode, "-e", "cycles:u", "-c", 99991, "--duration", 0.2, "-o", capture)
            counts = self_counts(report(capture), "cycles:u")
            assert counts["hot"] / (counts["hot"] + counts["cold"]) == pytest.approx(0.75, abs=0.06), mode
    finally:
        process.kill()
        process.wait()


@pytest.mark.needs_perf
def test_interrupted_recording_keeps_what_there_is(workload: Path, tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    process = subprocess.Popen(
        [
            "tdprof",
            "record",
            "-e",
            "cycles:u",
            "-c",
            "99991",
            "-o",
            capture,
            "--",
            workload,
            "-w",
            "hc",
            "-n",
            "1000000",
        ]
    )
    deadline = time.monotonic() + 60
    while not (capture / "capture.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    process.wait(60)
    assert self_counts(report(capture), "cycles:u")["hot"] > 0
