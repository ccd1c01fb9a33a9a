"""Time off a CPU: waits have their share of samples, and each thread's time is told whole."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

from builders.waiting import wait_until
from live.recording import TDPROF, Capture, record, run_record
from tdprof.capture.tables import read_table
from tdprof.model.off_cpu import TimeSpent
from tdprof.model.thread_state import ThreadState
from tdprof.profile.wakers import INTERRUPT, WOKEN_BY, sample_wakers
from tdprof.recorder.cgroups import Hierarchy, mounted_hierarchies

pytestmark = [pytest.mark.needs_perf, pytest.mark.needs_root]

Build = Callable[[str], Path]
SPENT = tuple(f"{state.name.lower()}_ns" for state in ThreadState)


def times_of(capture: Capture) -> dict[int, dict[str, int]]:
    """The rows of threads, by number; of each the four times add up to what it was recorded for."""
    rows = read_table(capture.folder, "thread_times").to_pylist()
    assert all(sum(row[name] for name in SPENT) == row["end_ns"] - row["begin_ns"] for row in rows)
    return {row["tid"]: row for row in rows}


def never_sleeping(build: Build, running: contextlib.ExitStack) -> "subprocess.Popen[str]":
    process = subprocess.Popen([build("split.c"), "60"], stdout=subprocess.PIPE, text=True)
    running.callback(process.wait)
    running.callback(process.kill)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.needs_bpf
def test_waits_have_their_share(build: Build, folder: Path) -> None:
    capture = record("--off-cpu=1ms", "--", build("waits.c"), "sleep", "12", folder=folder)
    asleep: Counter[str] = Counter()
    for at, sample in enumerate(capture.samples):
        # Not what a busy machine adds to each: the wait for a CPU.
        if capture.profile.samples.state[at] == ThreadState.INTERRUPTIBLE:
            asleep.update(dict.fromkeys({"long_wait", "short_wait"}.intersection(sample.frames), sample.count))
    # At least 360 and 120 periods.
    assert asleep["long_wait"] > 350
    assert 0.65 < asleep["long_wait"] / asleep.total() < 0.82
    [row] = times_of(capture).values()
    assert capture.profile.thread_times
    assert capture.profile.thread_times.total() == TimeSpent(
        1, row["end_ns"] - row["begin_ns"], [row[name] for name in SPENT], unsampled_ns=0, unsampled_threads=0
    )
    assert row["interruptible_ns"] >= 480_000_000
    assert row["waits"] >= 24
    assert row["unsampled_ns"] == 0
    # One period may have begun, or its sample have come early; new threads' first waits have none.
    assert abs(capture.weight(1) - capture.total(1)) <= 1_000_000 * (1 + sum(capture.losses().values()))
    states = read_table(folder, "samples", ("event", "state"))
    assert set(states.filter(pc.equal(states["event"], 1))["state"].to_pylist()) <= {1, 2, 3}
    assert set(states.filter(pc.equal(states["event"], 0))["state"].to_pylist()) <= {None}


@pytest.fixture
def fifth() -> Iterator[Path]:
    """A control group that has a CPU for 20 ms of each 100, and no more."""
    group = next(filter(None, map(_with_quota, mounted_hierarchies())), None)
    if group is None:
        pytest.skip("control groups have no quota of CPUs here")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text().strip())
    group.rmdir()


def _with_quota(hierarchy: Hierarchy) -> Path | None:
    group = hierarchy.mount / f"tdprof-{uuid.uuid4().hex[:8]}"
    settings = {"cpu.max": "20000 100000", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"}
    with contextlib.suppress(OSError):
        group.mkdir()
        there = [name for name in settings if (group / name).exists()]
        for name in there:
            (group / name).write_text(settings[name])
        if there:
            return group
        group.rmdir()
    return None


@pytest.mark.needs_bpf
def test_who_has_used_up_the_quota_of_a_control_group_waits_for_a_cpu(build: Build, fifth: Path, folder: Path) -> None:
    with contextlib.ExitStack() as running:
        process = never_sleeping(build, running)
        (fifth / "cgroup.procs").write_text(str(process.pid))
        capture = record("--off-cpu=1ms", "-p", str(process.pid), "--duration", "1", folder=folder)
    [row] = times_of(capture).values()
    wall_ns = row["end_ns"] - row["begin_ns"]
    assert wall_ns >= 1_000_000_000
    # A slice of the scheduler more than the quota, of the periods that it begins and ends in.
    assert 0 < row["running_ns"] <= wall_ns / 5 + 60_000_000
    assert row["runnable_ns"] == wall_ns - row["running_ns"]


@pytest.mark.needs_bpf
def test_waiting_for_a_cpu_is_as_long_as_the_kernel_says(build: Build, folder: Path) -> None:
    ran = run_record("--off-cpu", "--", build("waits.c"), "queue", "150", folder=folder)
    assert ran.returncode == 0, ran.stderr
    times = times_of(Capture(folder))
    told = [tuple(map(int, line.split())) for line in ran.stdout.splitlines()]
    assert len(told) == 4
    for tid, cpu_ns, delay_ns, _ in told:
        row = times[tid]
        # What a thread does before and after it looks; and the kernel's clocks differ by a tick.
        assert row["running_ns"] == pytest.approx(cpu_ns, rel=0.1, abs=20_000_000)
        assert row["runnable_ns"] == pytest.approx(delay_ns, rel=0.15, abs=60_000_000)
    waited_ns = sum(times[tid]["runnable_ns"] for tid, *_ in told)
    # Of four that need 150 ms each, they wait for the others' turns for 900 ms in all; some begin later.
    assert waited_ns > 450_000_000
    # The kernel counts nothing of threads where programs time them; only these know how long all ran.
    assert Capture(folder).total(0) == sum(row["running_ns"] for row in times.values())


@pytest.mark.needs_bpf
def test_run_time_is_that_of_all_threads(build: Build, folder: Path) -> None:
    """Also of those that end, and of other processes; what else is sampled the kernel counts."""
    events = ("-e", "cpu-clock,page-faults", "-c", "1000000")
    script = f"{build('waits.c')} queue 40; for n in 1 2 3 4; do (:); done; exec {build('split.c')} 0.05"
    capture = record("--off-cpu", *events, "--", "sh", "-c", script, folder=folder)
    ran_ns = sum(row["running_ns"] for row in times_of(capture).values())
    assert capture.total(0) == ran_ns >= 160_000_000
    assert capture.total(1) > 100


@pytest.mark.needs_bpf
def test_who_ends_sleeps(build: Build, folder: Path) -> None:
    ran = run_record("--off-cpu=1ms", "--wakers", "--", build("waits.c"), "wakers", "64", folder=folder)
    assert ran.returncode == 0, ran.stderr
    often_ns, rarely_ns = map(int, ran.stdout.split())  # not 3:1 where either was kept from a CPU
    capture = Capture(folder)
    profile = capture.profile
    names, number = sample_wakers(profile)
    ended: Counter[str] = Counter()
    for row, sample in enumerate(capture.samples):
        if "wait_for_signal" in sample.frames and profile.samples.state[row] == ThreadState.INTERRUPTIBLE:
            ended[names[number[row]].partition(" of ")[0]] += sample.count
    by_signals = ended["signal_often"] + ended["signal_rarely"]
    assert by_signals > 350  # of 512 at least, but for the first wait, whose beginning may not be seen
    assert by_signals >= 0.9 * ended.total()
    assert abs(ended["signal_often"] / by_signals - often_ns / (often_ns + rarely_ns)) < 0.12
    # The first thread sleeps until a timer's interrupt.
    naps = {names[number[row]] for row, sample in enumerate(capture.samples) if "nap" in sample.frames}
    assert any(name.endswith(f" of {INTERRUPT}") for name in naps)
    exported = subprocess.run(
        [*TDPROF, "export", folder, "--to", "folded", "--event", "off-cpu"], capture_output=True, text=True, check=True
    )
    woken = [line.split(f";{WOKEN_BY};") for line in exported.stdout.splitlines() if WOKEN_BY in line]
    assert any("wait_for_signal" in sleep and "signal_often" in waker for sleep, waker in woken)


@pytest.mark.needs_bpf
def test_what_waits_all_the_time_is_told_without_a_sample(folder: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            capture = record("--off-cpu", "-p", process.pid, "--duration", "0.3", folder=folder)
        finally:
            process.kill()
    [row] = times_of(capture).values()
    assert (row["tid"], row["waits"], row["running_ns"]) == (process.pid, 0, 0)
    assert row["interruptible_ns"] == row["unsampled_ns"] >= 300_000_000
    assert capture.total(0) == capture.total(1) == capture.weight(1) == 0


@pytest.mark.needs_bpf
def test_who_has_no_turn_waits_for_a_cpu(build: Build, folder: Path) -> None:
    """Also from before the recording on: two that never sleep, of which one has a CPU when the other does without."""
    cpu = min(os.sched_getaffinity(0))
    processes = []
    with contextlib.ExitStack() as running:
        for policy in ("--fifo", "--idle"):
            process = never_sleeping(build, running)
            os.sched_setaffinity(process.pid, {cpu})
            subprocess.run(["chrt", policy, "-p", "1" if policy == "--fifo" else "0", str(process.pid)], check=True)
            processes.append(process)
        pids = ",".join(str(process.pid) for process in processes)
        capture = record("--off-cpu=1ms", "-p", pids, "--duration", "0.5", folder=folder)
    times = times_of(capture)
    for process in processes:
        row = times[process.pid]
        assert (row["interruptible_ns"], row["uninterruptible_ns"]) == (0, 0)
        assert row["running_ns"] + row["runnable_ns"] >= 500_000_000
    assert capture.total(0) == sum(row["running_ns"] for row in times.values())
    # One CPU is not two threads' at once.
    assert sum(row["running_ns"] for row in times.values()) <= max(
        row["end_ns"] - row["begin_ns"] for row in times.values()
    )


@pytest.mark.thorough
@pytest.mark.needs_bpf
def test_who_asks_for_the_scheduler_and_keeps_its_cpu_has_not_waited(folder: Path) -> None:
    """Nobody else has this thread's priority; when it asks it has run since before the programs could see it."""
    script = "import os, signal\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n"
    script += "signal.signal(signal.SIGUSR1, lambda *_: os.sched_yield())\nprint(flush=True)\nwhile True: pass"
    cpu, *others = sorted(cpus := os.sched_getaffinity(0))
    command = ["taskset", "-c", str(cpu), sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            # Whatever waits for that CPU is let onto it now and then, and the programs see the thread then.
            os.sched_setaffinity(0, others or cpus)
            assert process.stdout
            process.stdout.readline()
            is_known = f"until test -s {folder}/spool/initial.jsonl; do sleep 0.01; done"
            asking = f"{is_known}; sleep 0.03; kill -USR1 {process.pid}; sleep 0.03"
            capture = record("--off-cpu=1ms", "-p", str(process.pid), "--", "sh", "-c", asking, folder=folder)
        finally:
            process.kill()
            os.sched_setaffinity(0, cpus)
    waits = capture.count(lambda sample: any("sched_yield" in name for name in sample.frames), "off-cpu")
    # Others of its CPU may have it for some, at any time.
    assert waits[True] <= 5


@pytest.mark.thorough
@pytest.mark.needs_bpf
def test_who_has_its_turn_before_anybody_looks_has_not_slept(build: Build, folder: Path) -> None:
    """Many that never sleep: when the recording begins most of them wait for a CPU, and some have one soon after."""
    with contextlib.ExitStack() as running:
        processes = [never_sleeping(build, running) for _ in range(4 * len(os.sched_getaffinity(0)))]
        pids = ",".join(str(process.pid) for process in processes)
        capture = record("--off-cpu=1ms", "-p", pids, "--duration", "0.2", folder=folder)
    times = times_of(capture)
    assert [times[process.pid]["interruptible_ns"] for process in processes] == [0] * len(processes)
    assert sum(times[process.pid]["runnable_ns"] for process in processes) > 0


@pytest.mark.needs_bpf
def test_who_is_woken_after_the_end_was_recorded_no_longer_than_others(folder: Path) -> None:
    script = "import threading as t, time\n"
    script += 20 * "t.Thread(target=lambda: any(map(time.sleep, 99999 * [0.001]))).start()\n"
    with subprocess.Popen([sys.executable, "-c", script + "print(flush=True)"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            # Of whole CPUs it takes milliseconds until the programs are gone.
            capture = record("--off-cpu", "-a", "--duration", "0.3", folder=folder)
        finally:
            process.kill()
    rows = [row for row in times_of(capture).values() if row["pid"] == process.pid]
    assert len(rows) == 21
    assert {row["end_ns"] for row in rows} == {capture.manifest["end_monotonic_ns"]}


@pytest.mark.needs_bpf
def test_waits_that_the_end_of_a_process_ends_have_whole_stacks(build: Build, folder: Path) -> None:
    """The first thread ends before the others are back on a CPU: more than stacks may be copied of a process."""
    with subprocess.Popen([build("waits.c"), "pool", "1500"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            is_known = f"until test -s {folder}/spool/initial.jsonl; do sleep 0.01; done"
            ending = f"{is_known}; kill -USR1 {process.pid}; exec sleep 600"
            capture = record("--off-cpu=100us", "-p", process.pid, "--", "sh", "-c", ending, folder=folder)
        finally:
            process.kill()
    waited: Counter[bool] = Counter()
    for sample, state in zip(capture.samples, capture.profile.samples.state, strict=True):
        if state == ThreadState.INTERRUPTIBLE and "futex_wait" in sample.frames:
            waited["wait_for_end" in sample.frames and "outlive" in sample.frames] += sample.count
    assert waited.total() > 10_000
    assert waited[True] > 0.95 * waited.total()


@pytest.mark.needs_bpf
def test_the_first_wait_of_a_thread_has_no_call_stack_of_ours(build: Build, folder: Path) -> None:
    capture = record("--off-cpu=10us", "--", build("waits.c"), "wakers", "4", folder=folder)
    first = [
        sample.frames for sample in capture.samples if sample.event == "off-cpu" and "ret_from_fork" in sample.frames
    ]
    if not first:
        pytest.skip("all new threads had their first turn within 10 µs")
    assert not [frames for frames in first if any(frame.startswith("bpf_") for frame in frames)]


@pytest.mark.needs_bpf
def test_who_has_no_sample_has_the_name_of_its_program(folder: Path, tmp_path: Path) -> None:
    script = f"sleep 600 >/dev/null 2>&1 & echo $! > {tmp_path}/left; "
    script += 'until read -r name </proc/$!/comm && [ "$name" = sleep ]; do :; done; exec sleep 0.01'
    capture = record("--off-cpu=4s", "--", "sh", "-c", script, folder=folder)
    left = int((tmp_path / "left").read_text())
    os.kill(left, signal.SIGKILL)
    rows = {row["tid"]: row["thread_name"] for row in read_table(capture.folder, "thread_times").to_pylist()}
    assert rows.pop(left) == "sleep"
    assert [*rows.values()] == ["sleep"]


# As unlike in length as can be, of threads that take turns on a CPU: some kernels leave behind one what was there.
_NAMES = ("a-very-long-nam", "middling", "ab", "x")
_NAMED = f"""
import threading, time
def work(name):
    open("/proc/thread-self/comm", "w").write(name)
    while time.thread_time() < 0.1:
        time.sleep(0.001)
        sum(range(20000))
threads = [threading.Thread(target=work, args=(name,)) for name in {_NAMES}]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.needs_bpf
def test_threads_have_their_names_and_nothing_behind(folder: Path) -> None:
    capture = record("--wakers", "--off-cpu=1ms", "--", sys.executable, "-c", _NAMED, folder=folder)
    for table in ("samples", "thread_times", "wakers"):
        names = {row["thread_name"] for row in read_table(capture.folder, table).to_pylist()}
        assert names >= set(_NAMES) or table == "wakers", table
        assert not [name for name in names if "\0" in name], table


@pytest.mark.needs_bpf
def test_who_executes_a_file_and_has_its_process_s_number_is_another_thread(build: Build, folder: Path) -> None:
    script = f"echo | {build('successor.c')} | cat"
    capture = record("--off-cpu=1ms", "--", "sh", "-c", script, folder=folder)
    rows = read_table(capture.folder, "thread_times").to_pylist()
    assert all(sum(row[name] for name in SPENT) == row["end_ns"] - row["begin_ns"] for row in rows)
    assert capture.total(0) == sum(row["running_ns"] for row in rows)
    named = {row["thread_name"]: row for row in rows}
    first, before, after, beside = (named[name] for name in ("successor", "becomes", "after", "beside"))
    assert first["pid"] == before["pid"] == after["pid"] == beside["pid"] == first["tid"] == after["tid"]
    assert len({row["tid"] for row in (first, before, beside)}) == 3
    assert before["begin_ns"] < first["end_ns"] <= before["end_ns"] == after["begin_ns"] < beside["begin_ns"]
    for row, least_ms in ((before, 50), (after, 300), (beside, 300)):
        assert row["running_ns"] >= least_ms * 900_000  # clocks of the kernel begin a turn some microseconds earlier


def test_without_bpf_it_is_refused(folder: Path) -> None:
    ran = run_record("--off-cpu", "--no-bpf", "--", "true", folder=folder)
    assert ran.returncode == 1
    assert "time off a CPU is sampled by BPF alone; no BPF: asked for with --no-bpf" in ran.stderr
    assert "try: record as root, without --no-bpf" in ran.stderr
    assert not os.path.lexists(folder)
