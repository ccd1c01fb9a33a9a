"""Recordings of control groups: who is in one, also later, and in which one each sample was taken."""

import functools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.waiting import wait_until
from live.recording import Capture, has_bytes, run_record, start_record
from tdprof.capture.tables import read_table
from tdprof.model.thread_state import ThreadState
from tdprof.recorder.cgroups import Hierarchy, mounted_hierarchies, perf_counts_by

pytestmark = [pytest.mark.needs_perf, pytest.mark.needs_root]

Build = Callable[[str], Path]
EACH = ["v2", pytest.param("v1", marks=pytest.mark.thorough)]
ENOUGH = 20  # of the samples that 0.3 s of work have where nothing else runs, 600


def hierarchy(which: str) -> Hierarchy:
    """One in which a test can make control groups that any process may be moved to."""
    for found in mounted_hierarchies():
        fits = perf_counts_by(found) if which == "perf" else found.is_v2 == (which == "v2")
        if fits and os.access(found.mount, os.W_OK) and "cpuset" not in found.controllers:
            return found
    pytest.skip(f"no writable cgroup hierarchy here: {which}")


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A new control group with two more below it, a and b; of the hierarchy that the test's parameter names."""
    above = hierarchy(getattr(request, "param", "v2")).mount / f"tdprof-{uuid.uuid4().hex[:8]}"
    try:
        (above / "a").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cannot make a control group here: {error.strerror}")
    (above / "b").mkdir()
    yield above
    for folder in (above / "a", above / "b", above):
        if folder.exists():
            wait_until(functools.partial(is_empty, folder))
            folder.rmdir()


def is_empty(folder: Path) -> bool:
    return not (folder / "cgroup.procs").read_text().strip()


def working(build: Build, folder: Path | None = None) -> "subprocess.Popen[str]":
    """A process that works until it is killed or the tests end (an emulated recorder takes a minute to begin).

    It is in the group from its first instruction on.
    """
    program = f"setpriv --pdeathsig KILL {build('split.c')}"
    script = (f"echo $$ > {folder}/cgroup.procs; " if folder else "") + f"exec {program} 600"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def has_begun(folder: Path) -> bool:
    """What ran before is looked at once events count."""
    return has_bytes(folder / "spool" / "initial.jsonl")


def move(pid: int, folder: Path) -> None:
    (folder / "cgroup.procs").write_text(str(pid))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def work_for(process: "subprocess.Popen[str]", seconds: float, recorder: "subprocess.Popen[str]") -> None:
    begin = cpu_seconds(process.pid)
    wait_until(lambda: cpu_seconds(process.pid) - begin >= seconds, recorder)


def samples_by_cgroup(folder: Path, pid: int) -> dict[str | None, int]:
    """Of a process, by path; from the tables, since symbols of a whole busy machine take their time."""
    paths = {row["cgroup"]: row["path"] for row in read_table(folder, "cgroups").to_pylist()}
    found: dict[str | None, int] = {}
    for row in read_table(folder, "samples", ["cgroup"]).select(["pid", "cgroup", "count"]).to_pylist():
        if row["pid"] == pid:
            path = paths.get(row["cgroup"])
            found[path] = found.get(path, 0) + row["count"]
    return found


def stop(recorder: "subprocess.Popen[str]") -> None:
    recorder.send_signal(signal.SIGINT)
    _, said = recorder.communicate()
    assert recorder.returncode == 0, said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("group", "options"),
    [
        pytest.param("v2", [], id="v2", marks=pytest.mark.needs_bpf),
        pytest.param("perf", ["--no-bpf"], id="ring-buffer", marks=pytest.mark.thorough),
        pytest.param("v1", [], id="v1", marks=[pytest.mark.needs_bpf, pytest.mark.thorough]),
    ],
    indirect=["group"],
)
def test_only_what_is_in_it_and_below_it(group: Path, options: list[str], build: Build, folder: Path) -> None:
    with working(build, group / "a") as inside, working(build) as outside:
        recorder = start_record(*options, "--cgroup", group, "-F", "1999", folder=folder)
        try:
            wait_until(lambda: has_begun(folder), recorder)
            work_for(inside, 0.3, recorder)
            stop(recorder)
        finally:
            inside.kill()
            outside.kill()
    capture = Capture(folder)
    assert capture.count(lambda sample: sample.pid).keys() == {inside.pid}
    assert capture.manifest["cgroups"] == [f"/{group.name}"]
    [(path, count)] = samples_by_cgroup(folder, inside.pid).items()
    assert path == f"/{group.name}/a"
    assert count >= ENOUGH


@pytest.mark.needs_bpf
def test_processes_to_come_have_their_samples(group: Path, build: Build, folder: Path) -> None:
    """One starts another in the group, which works after it."""
    recorder = start_record("--cgroup", group, "-F", "1999", folder=folder)
    try:
        wait_until(lambda: has_begun(folder), recorder)
        script = f"echo $$ > {group}/b/cgroup.procs; {build('split.c')} 0.3; {build('split.c')} 0.3; true"
        subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.DEVNULL)
    finally:
        stop(recorder)
    worked = Capture(folder).count(lambda sample: sample.pid if sample.thread == "split" else None)
    assert len(worked) == 2
    assert min(worked.values()) >= ENOUGH


@pytest.mark.needs_bpf
@pytest.mark.parametrize("group", EACH, indirect=True)
def test_who_moves_has_samples_in_each_and_a_removed_group_keeps_its_name(
    group: Path, build: Build, folder: Path
) -> None:
    """Also where its time went is told, of the groups that were asked for alone."""
    is_perfs = perf_counts_by(next(each for each in mounted_hierarchies() if each.mount == group.parent))
    with working(build, group / "a") as process, working(build) as outside:
        recorder = start_record("--cgroup", group, "-F", "1999", "--off-cpu=1ms", folder=folder)
        try:
            wait_until(lambda: has_begun(folder), recorder)
            work_for(process, 0.1, recorder)
            move(process.pid, group / "b")
            (group / "a").rmdir()
            work_for(process, 0.1, recorder)
            (group / "c").mkdir()
            move(process.pid, group / "c")  # it was made while recording, and is gone before the end
            work_for(process, 0.1, recorder)
            move(process.pid, group / "b")
            (group / "c").rmdir()
            stop(recorder)
        finally:
            process.kill()
            outside.kill()
    found = samples_by_cgroup(folder, process.pid)
    # perf tells all that are made; of another hierarchy one may be gone before anybody looks.
    assert all(found[f"/{group.name}/{name}"] >= ENOUGH for name in ("abc" if is_perfs else "ab"))
    if is_perfs:
        assert None not in found
    [times] = read_table(folder, "thread_times").to_pylist()
    assert times["pid"] == process.pid
    assert times["running_ns"] >= 250_000_000


@pytest.mark.needs_bpf
@pytest.mark.parametrize("group", EACH, indirect=True)
def test_time_is_that_in_the_groups(group: Path, build: Build, folder: Path) -> None:
    """Of whoever comes and goes while recording: one that works, and three that sleep.

    Of these one wakes while it is there, one never does, and one comes to stay.
    """
    asleep = [subprocess.Popen(["sleep", "600"], text=True) for _ in range(3)]
    with working(build, group / "b") as busy:
        processes = [busy, *asleep]
        try:
            recorder = start_record("--cgroup", group / "a", "--off-cpu=1ms", folder=folder)
            wait_until(lambda: has_begun(folder), recorder)
            work_for(busy, 0.2, recorder)
            before_ns = time.monotonic_ns()
            for process in processes:
                move(process.pid, group / "a")
            came_ns = time.monotonic_ns()
            for number in (signal.SIGSTOP, signal.SIGCONT):  # which it wakes of, to sleep again
                asleep[0].send_signal(number)
            work_for(busy, 0.2, recorder)
            leaving_ns = time.monotonic_ns()
            for process in processes[:3]:
                move(process.pid, group / "b")
            gone_ns = time.monotonic_ns()
            work_for(busy, 0.2, recorder)
            stop(recorder)
            ended_ns = time.monotonic_ns()
        finally:
            for process in processes:
                process.kill()
                process.wait()
    rows = {row["pid"]: row for row in read_table(folder, "thread_times").to_pylist()}
    assert rows.keys() == {process.pid for process in processes}
    for process in processes:
        row = rows[process.pid]
        assert before_ns <= row["begin_ns"] <= came_ns
        assert sum(row[f"{state.name.lower()}_ns"] for state in ThreadState) == row["end_ns"] - row["begin_ns"]
    assert all(leaving_ns <= rows[process.pid]["end_ns"] <= gone_ns for process in processes[:3])
    assert gone_ns <= rows[asleep[2].pid]["end_ns"] <= ended_ns
    assert rows[busy.pid]["running_ns"] > 0
    assert min(rows[process.pid]["interruptible_ns"] for process in asleep[1:]) >= leaving_ns - came_ns


@pytest.mark.needs_bpf
@pytest.mark.parametrize("group", EACH, indirect=True)
def test_who_comes_back_has_each_stay(group: Path, build: Build, folder: Path) -> None:
    """One that works and one that sleeps: they are there when the recording begins, leave, and come back.

    Another that sleeps is moved meanwhile, and never leaves.
    """
    inside, outside, below = group / "a", group / "b", group / "a" / "below"
    below.mkdir()
    still = subprocess.Popen(["sleep", "600"], text=True)
    with working(build, inside) as busy, subprocess.Popen(["sleep", "600"], text=True) as asleep:
        processes = [busy, asleep]
        move(asleep.pid, inside)
        move(still.pid, inside)
        try:
            recorder = start_record("--cgroup", inside, "--off-cpu=1ms", folder=folder)
            wait_until(lambda: has_begun(folder), recorder)
            for number in (signal.SIGSTOP, signal.SIGCONT):  # so that the programs know it before it is moved
                asleep.send_signal(number)
            work_for(busy, 0.2, recorder)
            moved_ns = []
            for to in (outside, inside):
                before_ns = time.monotonic_ns()
                for process in processes:
                    move(process.pid, to)
                move(still.pid, below)
                moved_ns.append((before_ns, time.monotonic_ns()))
                work_for(busy, 0.2, recorder)
            stop(recorder)
        finally:
            for process in (*processes, still):
                process.kill()
                process.wait()
            wait_until(functools.partial(is_empty, below))
            below.rmdir()
    (leaving_ns, gone_ns), (coming_ns, came_ns) = moved_ns
    rows = read_table(folder, "thread_times").to_pylist()
    for process in processes:
        first, last = sorted(
            ((row["begin_ns"], row["end_ns"]) for row in rows if row["pid"] == process.pid), key=lambda stay: stay[0]
        )
        assert first[0] < leaving_ns <= first[1] <= gone_ns
        assert coming_ns <= last[0] <= came_ns < last[1]
    [stay] = [(row["begin_ns"], row["end_ns"]) for row in rows if row["pid"] == still.pid]
    assert stay[0] < leaving_ns < came_ns < stay[1]
    assert not sum(row["interruptible_ns"] for row in rows if row["pid"] == busy.pid)


def _has(file: Path, text: str) -> bool:
    return text in file.read_text()


def wake(process: "subprocess.Popen[str]", recorder: "subprocess.Popen[str]") -> None:
    """Of one that sleeps: it comes to a CPU twice, and sleeps again."""
    stat = Path(f"/proc/{process.pid}/stat")
    for number, state in ((signal.SIGSTOP, ") T "), (signal.SIGCONT, ") S ")):
        process.send_signal(number)
        wait_until(functools.partial(_has, stat, state), recorder)


@pytest.mark.needs_bpf
@pytest.mark.parametrize("group", EACH, indirect=True)
@pytest.mark.parametrize(
    "is_first_inside",
    [pytest.param(True, id="from inside", marks=pytest.mark.thorough), pytest.param(False, id="from outside")],
)
def test_moves_within_one_sleep_make_each_stay(group: Path, build: Build, folder: Path, is_first_inside: bool) -> None:
    """Of sleeps that the programs saw begin or not, and end or not."""
    places = [group / "a", group / "b"] if is_first_inside else [group / "b", group / "a"]
    sleeps = [(is_seen, is_woken) for is_seen in (True, False) for is_woken in (True, False)]
    with working(build, group / "a") as busy:
        asleep = [subprocess.Popen(["sleep", "600"], text=True) for _ in sleeps]
        try:
            for process in asleep:
                move(process.pid, places[0])
            recorder = start_record("--cgroup", group / "a", "--off-cpu=1ms", folder=folder)
            wait_until(lambda: has_begun(folder), recorder)
            work_for(busy, 0.2, recorder)
            moved_ns = []
            for turn in range(6):
                if turn == 1 - is_first_inside:
                    for process, (is_seen, _) in zip(asleep, sleeps, strict=True):
                        if is_seen:
                            wake(process, recorder)
                work_for(busy, 0.02, recorder)
                before_ns = time.monotonic_ns()
                for process in asleep:
                    move(process.pid, places[(turn + 1) % 2])
                moved_ns.append((before_ns, time.monotonic_ns()))
            for process, (_, is_woken) in zip(asleep, sleeps, strict=True):
                if is_woken:
                    wake(process, recorder)
            work_for(busy, 0.02, recorder)
            stop_ns = time.monotonic_ns()
            stop(recorder)
            ended_ns = time.monotonic_ns()
        finally:
            for process in (busy, *asleep):
                process.kill()
                process.wait()
    # When each stay began and ended, between two moments.
    borders = [(0, moved_ns[0][0]), *moved_ns, (stop_ns, ended_ns)] if is_first_inside else moved_ns
    rows = read_table(folder, "thread_times").to_pylist()
    for process, sleep in zip(asleep, sleeps, strict=True):
        own = sorted((row for row in rows if row["pid"] == process.pid), key=lambda row: int(row["begin_ns"]))
        found = [row[name] for row in own for name in ("begin_ns", "end_ns")]
        assert len(found) == len(borders), (sleep, found)
        is_between = [first <= time_ns <= last for time_ns, (first, last) in zip(found, borders, strict=True)]
        assert all(is_between), (sleep, is_between)
        for row in own:
            wall_ns = row["end_ns"] - row["begin_ns"]
            assert sum(row[f"{state.name.lower()}_ns"] for state in ThreadState) == wall_ns
            if row in own[1:-1]:  # in the others a busy machine may let a woken thread wait for a CPU
                assert row["interruptible_ns"] == row["unsampled_ns"] == wall_ns


@pytest.mark.needs_bpf
def test_who_waits_for_a_cpu_when_its_process_is_moved_has_not_slept(group: Path, build: Build, folder: Path) -> None:
    """A thread that is not the process's first, and that the programs have not seen before."""
    script = "import threading, time\nthread = threading.Thread(target=lambda: [0 for _ in iter(int, 1)])\n"
    script += "thread.start()\nprint(thread.native_id, flush=True)\ntime.sleep(600)"
    cpu = {min(os.sched_getaffinity(0))}
    command = [sys.executable, "-c", script]
    with working(build, group / "a") as busy, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as moved:
        try:
            assert moved.stdout
            tid = int(moved.stdout.readline())
            os.sched_setaffinity(busy.pid, cpu)
            os.sched_setaffinity(tid, cpu)
            os.sched_setscheduler(tid, os.SCHED_IDLE, os.sched_param(0))
            recorder = start_record("--cgroup", group / "a", "--off-cpu=1ms", folder=folder)
            wait_until(lambda: has_begun(folder), recorder)
            work_for(busy, 0.05, recorder)
            move(moved.pid, group / "a")
            work_for(busy, 0.1, recorder)
            os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
            work_for(moved, 0.02, recorder)
            stop(recorder)
        finally:
            for process in (busy, moved):
                process.kill()
                process.wait()
    [row] = [row for row in read_table(folder, "thread_times").to_pylist() if row["tid"] == tid]
    assert (row["interruptible_ns"], row["uninterruptible_ns"]) == (0, 0)
    assert row["runnable_ns"] > 0


@pytest.mark.needs_bpf
@pytest.mark.parametrize("group", ["v1"], indirect=True)
def test_threads_are_in_groups_by_themselves(group: Path, build: Build, folder: Path) -> None:
    with subprocess.Popen([build("waits.c"), "pool", "3"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            *_, alone = sorted(int(entry.name) for entry in Path(f"/proc/{process.pid}/task").iterdir())
            (group / "a" / "tasks").write_text(str(alone))
            recorder = start_record("--cgroup", group / "a", "--off-cpu", folder=folder)
            wait_until(lambda: has_begun(folder), recorder)
            stop(recorder)
        finally:
            process.kill()
    assert [row["tid"] for row in read_table(folder, "thread_times").to_pylist()] == [alone]


@pytest.mark.needs_bpf
def test_a_group_may_be_named_by_another_mount_of_its_hierarchy(
    group: Path, build: Build, folder: Path, tmp_path: Path
) -> None:
    at = tmp_path / "elsewhere"
    at.mkdir()
    found = subprocess.run(["mount", "--bind", group, at], check=False, capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"cannot mount here: {found.stderr}")
    try:
        with working(build, group / "a") as inside:
            try:
                result = run_record("--cgroup", at / "a", "--duration", "0.3", folder=folder)
            finally:
                inside.kill()
    finally:
        subprocess.run(["umount", at], check=True)
    assert result.returncode == 0, result.stderr
    capture = Capture(folder)
    assert capture.manifest["cgroups"] == [f"/{group.name}/a"]
    assert capture.count(lambda sample: sample.pid).keys() == {inside.pid}


@pytest.mark.needs_bpf
def test_a_recording_ends_with_its_groups(group: Path, build: Build, folder: Path) -> None:
    with working(build, group / "a") as process:
        recorder = start_record("--cgroup", group / "a", "--cgroup", group / "b", "-F", "1999", folder=folder)
        wait_until(lambda: has_begun(folder), recorder)
        (group / "b").rmdir()
        work_for(process, 0.3, recorder)
        process.kill()
        process.wait()
        wait_until(lambda: is_empty(group / "a"))
        (group / "a").rmdir()
        _, said = recorder.communicate(timeout=300)
    assert recorder.returncode == 0, said
    assert "Traceback" not in said
    assert sum(samples_by_cgroup(folder, process.pid).values()) >= ENOUGH


def test_groups_that_are_not_there_are_refused(folder: Path) -> None:
    result = run_record("--cgroup", "/no-such-group", folder=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert "there is no control group /no-such-group" in result.stderr
    assert not folder.exists()
    refused = run_record("--cgroup", "/x", "-p", "1", folder=folder)
    assert refused.returncode == 2
    assert "exclude each other" in refused.stderr
