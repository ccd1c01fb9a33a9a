"""Sampling on real PMU overflows of QEMU's armv8_pmuv3: where the samples fall and what they add up to."""

import signal
import subprocess
from pathlib import Path

import pytest

from live_aarch64.machine import (
    ALONE,
    HANGS_S,
    IS_COUNTED,
    OUT_OF_STEP,
    report,
    run_tdprof,
    self_counts,
    wait_for_child,
    wait_for_cpu_time,
    wait_until,
)

# Of one round of the workload's `hot` and `cold`: turns of two instructions, and a few around them.
HOT, COLD = 150_000, 50_000
# Four samples fall into each round of 200,000: three in `hot`, one in `cold`. They drift by 436 a round, so that each
# passes the border between the two within a round or two, whatever some interrupts add. Tried for every place to begin
# at, with each sample moved by up to 500 at random: the counts are never further than four from the truth. Each time
# that the recorder takes the CPU may add one.
IN_STEP = 49_891
# Spreads samples as OUT_OF_STEP does, and leaves the emulator time for something else than samples of a program that
# never ends.
SLOW_OUT_OF_STEP = 123_607
# The recorder has no questions to answer, which would be time of the CPU that it shares with the program.
SILENT = ("--call-graph", "fp")


@pytest.mark.needs_perf
@pytest.mark.parametrize("rung", ["bpf-pmu", "ring-buffer"])
def test_split_is_exact(rung: str, workload: Path, tmp_path: Path) -> None:
    rounds = 200
    options = ["--no-bpf"] if rung == "ring-buffer" else []
    capture = tmp_path / "capture"
    run_tdprof("record", *options, *SILENT, "-e", "cycles:u", "-c", IN_STEP, "-o", capture,
               "--", workload, "-w", "hc", "-n", rounds, before=ALONE)  # fmt: skip
    found = report(capture)
    counts = self_counts(found, "cycles:u")
    assert found["rung"] == rung
    assert not any(value for value in found["losses"].values() if isinstance(value, int))
    if IS_COUNTED:
        # One instruction is one cycle and exactly every 49,891st is sampled. At random they would scatter by 24 and 14.
        for name, cycles in (("hot", HOT), ("cold", COLD)):
            assert counts[name] / IN_STEP == pytest.approx(rounds * cycles / IN_STEP, abs=8), name
        assert counts["hot"] + counts["cold"] == pytest.approx(rounds * (HOT + COLD), rel=0.01)
    else:
        assert counts["hot"] / (counts["hot"] + counts["cold"]) == pytest.approx(0.75, abs=0.03)


@pytest.mark.needs_perf
@pytest.mark.parametrize("cpus", ["0", "0,1"])
def test_threads_and_forks_are_all_sampled(cpus: str, workload: Path, tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    run_tdprof("record", *SILENT, "-e", "cycles:u", "-c", OUT_OF_STEP, "-o", capture,
               "--", workload, "-w", "hc", "-n", 30, "-f", 2, "-t", 1, before=("taskset", "-c", cpus))  # fmt: skip
    counts = self_counts(report(capture), "cycles:u")
    counted, truth = counts["hot"] + counts["cold"], 6 * 30 * (HOT + COLD)  # three processes with two threads each
    if cpus == "0":
        assert counted == pytest.approx(truth, rel=0.02)
    else:
        # With counted instructions QEMU's clock is one for both CPUs: each also counts what the other executes, the
        # kernel and the sampling there included.
        assert 0.98 * truth < counted < 4 * truth
    # At least 1,500 samples: six standard deviations, even if they fell at random.
    assert counts["hot"] / counted == pytest.approx(0.75, abs=0.07)


@pytest.mark.needs_perf
@pytest.mark.parametrize("how", ["-p", "-a"])
def test_attach_and_system_wide(how: str, workload: Path, tmp_path: Path) -> None:
    """The program stands still until it is recorded: beside a busy CPU all else takes minutes in the emulator."""
    capture = tmp_path / "capture"
    process = subprocess.Popen([workload, "-w", "hc", "-n", "1000000"])
    process.send_signal(signal.SIGSTOP)
    target = ["-p", str(process.pid)] if how == "-p" else ["-a"]
    words = [*SILENT, "-e", "cycles:u", "-c", str(SLOW_OUT_OF_STEP), "-o", str(capture), *target]
    recorder = subprocess.Popen(["tdprof", "record", *words])
    try:
        wait_until((capture / "capture.json").exists, recorder)
        process.send_signal(signal.SIGCONT)
        wait_for_cpu_time(process.pid, 0.4, recorder)
        process.send_signal(signal.SIGSTOP)
        recorder.send_signal(signal.SIGINT)
        recorder.wait(HANGS_S)
    finally:
        process.kill()
        recorder.kill()
    counts = self_counts(report(capture), "cycles:u")
    # Of 3,200 samples more than half: six standard deviations, even if they fell at random.
    assert counts["hot"] + counts["cold"] > 1600 * SLOW_OUT_OF_STEP
    assert counts["hot"] / (counts["hot"] + counts["cold"]) == pytest.approx(0.75, abs=0.07)


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
            str(SLOW_OUT_OF_STEP),
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
    try:
        wait_for_cpu_time(wait_for_child(process, workload.name), 0.1, process)
        process.send_signal(signal.SIGINT)
        process.wait(HANGS_S)
    finally:
        process.kill()
    assert self_counts(report(capture), "cycles:u")["hot"] > 0
