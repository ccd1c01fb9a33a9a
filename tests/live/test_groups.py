"""Events sampled in groups: every rung, groups together and a run for each; and --topdown where there is no PMU."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.waiting import PATIENCE_S
from live.recording import Capture, record, run_record, user_function
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.tables import read_table
from tdprof.model.events import SampledGroup, TopdownInfo
from tdprof.pipeline.finish import finish_capture
from tdprof.recorder import session
from tdprof.recorder.events import parse_event
from tdprof.recorder.options import RecordOptions
from tdprof.recorder.pmu import find_arm_pmu
from tdprof.recorder.targets import Rate

Build = Callable[[str], Path]
# Software events stand in for a PMU's: the kernel opens, starts, inherits and reads groups of them in the same way.
NAMES = ["cpu-clock", "task-clock"]
HZ = 499
BENCH = Path(__file__).resolve().parents[2] / "tools/bench"


@pytest.mark.needs_bpf
@pytest.mark.parametrize(
    ("use_bpf", "is_pass_per_group"),
    [
        (True, True),
        pytest.param(True, False, marks=pytest.mark.thorough),
        (False, False),
        pytest.param(False, True, marks=pytest.mark.thorough),
    ],
)
def test_every_event_of_every_group_samples(build: Build, folder: Path, use_bpf: bool, is_pass_per_group: bool) -> None:
    groups = [SampledGroup([0, 1], NAMES, []), SampledGroup([2, 3], NAMES, [])]
    passes: list[tuple[int, int]] = []
    options = RecordOptions(
        events=[parse_event(name) for name in NAMES * 2],
        rate=Rate(frequency_hz=HZ),
        command=[str(build("split.c")), "0.8"],
        use_bpf=use_bpf,
        topdown=TopdownInfo("neoverse-n3", groups, is_pass_per_group),
        on_pass=lambda number, total: passes.append((number, total)),
    )
    with OutputFolder(folder) as output:
        outcome = session.record(options, output)
        assert outcome.failure is None
        finish_capture(output.folder)
    capture = Capture(folder)
    assert capture.losses() == {}
    assert passes == ([(1, 2), (2, 2)] if is_pass_per_group else [(1, 1)])
    profile = capture.profile
    pids = []
    for row, event in enumerate(profile.events):
        assert event.total
        assert event.running_ns
        assert event.enabled_ns == event.running_ns
        own = profile.samples.event == row
        pids.append(set(profile.samples.pid[own].tolist()))
        # The first samples stand for a guess at how fast the event is, the others for what it turned out to be; a slow
        # machine learns that late.
        assert 0.2 * HZ < profile.samples.count[own].sum() / (event.running_ns / 1e9) < 1.2 * HZ
    assert len(set.union(*pids)) == (2 if is_pass_per_group else 1)
    assert pids[0] == pids[1]
    assert pids[2] == pids[3]
    for name in NAMES:
        own = capture.count(user_function, name)
        samples = own["heavy"] + own["light"]
        # One chance in three million to be further off; samples of the two groups may fall together: half as many.
        assert abs(own["heavy"] / samples - 0.75) < 5 * math.sqrt(0.75 * 0.25 / (samples / 2))


@pytest.mark.needs_bpf
def test_threads_started_later_are_sampled_with_the_corrected_period(folder: Path) -> None:
    script = (
        "import threading, time\n"
        "time.sleep(1)\n"
        "def work():\n    while time.thread_time() < .5: sum(range(1000))\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
    )
    options = RecordOptions(
        events=[parse_event(name) for name in NAMES],
        rate=Rate(frequency_hz=HZ),
        command=[sys.executable, "-c", script],
        topdown=TopdownInfo("neoverse-n3", [SampledGroup([0, 1], NAMES, [])]),
    )
    with OutputFolder(folder) as output:
        session.record(options, output)
        finish_capture(output.folder)
    samples = Capture(folder).profile.samples
    threads = sorted(set(samples.tid.tolist()))
    assert len(threads) == 4
    for thread in threads[1:]:
        # The guess for an event of unknown pace is one for a 3 GHz core: here it would give a third of this.
        assert samples.count[(samples.tid == thread) & (samples.event == 0)].sum() > 0.6 * 0.5 * HZ


@pytest.mark.needs_perf
def test_topdown_without_a_pmu_records_time_and_says_what_is_missing(folder: Path) -> None:
    if find_arm_pmu() is not None:
        pytest.skip("this machine has the PMU of an Arm core")
    result = run_record("--topdown=2", "--", "true", folder=folder)
    assert result.returncode == 0, result.stderr
    assert "note: no Topdown metrics, which need the PMU of an Arm core" in result.stderr
    assert Capture(folder).manifest["topdown"] is None
    assert "no Topdown metrics" in " ".join(
        record("--topdown", "-q", "--", "true", folder=folder / "b").manifest["notes"]
    )


@pytest.mark.needs_perf
def test_the_benchmark_lets_groups_take_turns(build: Build, folder: Path) -> None:
    command: list[str | Path] = [sys.executable, BENCH / "turns.py", "2", folder, build("split.c"), "0.3"]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    capture = Capture(folder)
    assert capture.manifest["state"] == "complete"
    assert len(capture.manifest["events"]) == 14
    assert capture.user_samples().keys() >= {"heavy", "light"}


@pytest.mark.needs_bpf
def test_of_a_process_what_it_starts_later_has_names_and_strangers_are_left_out(build: Build, folder: Path) -> None:
    """Side-band records are those of CPUs, whatever runs there; the groups follow the tasks."""
    program = build("split.c")
    script = f"read go; {program} 0.3; exec {program} 0.3"  # reads until its input ends
    stranger = subprocess.Popen(["sh", "-c", f"while {program} 0.1; do :; done"], stdout=subprocess.DEVNULL)
    shell = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert shell.stdin
    options = RecordOptions(
        events=[parse_event(name) for name in NAMES],
        rate=Rate(frequency_hz=HZ),
        pids=[shell.pid],
        topdown=TopdownInfo("neoverse-n3", [SampledGroup([0, 1], NAMES, [])]),
        on_begun=shell.stdin.close,
    )
    try:
        with OutputFolder(folder) as output:
            session.record(options, output)
            finish_capture(output.folder)
    finally:
        for process in (stranger, shell):
            process.kill()
            process.wait()
    capture = Capture(folder)
    assert capture.losses() == {}
    pids = set(capture.profile.samples.pid.tolist())
    assert shell.pid in pids
    assert len(pids) == 2
    assert set(read_table(folder, "processes")["pid"].to_pylist()) == pids
    own = capture.count(user_function, NAMES[0])
    assert own["heavy"] + own["light"] > 0.9 * own.total()
