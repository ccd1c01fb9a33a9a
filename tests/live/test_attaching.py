"""Recording what already runs: processes with -p, the whole system with -a; and how such recordings stop."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders.waiting import PATIENCE_S, wait_until
from live.recording import EACH_RUNG, Capture, assert_share, has_bytes, has_spooled, record, start_record
from tdprof.cli.main import cli
from tdprof.recorder import counted_run, following, perf_event
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.counter_set import CounterSet, CountingTarget
from tdprof.recorder.events import Event, parse_event
from tdprof.recorder.host import online_cpus
from tdprof.recorder.locked_memory import RingSizes
from tdprof.recorder.opening import OpenedEvents, Opener
from tdprof.recorder.targets import Rate, SamplingTarget, tasks_of, threads_of
from tdprof.recorder.wanted_events import WantedEvents

pytestmark = pytest.mark.needs_perf

Build = Callable[[str], Path]


@pytest.fixture
def server(build: Build) -> Iterator[subprocess.Popen[str]]:
    """A running process whose threads busy-a and busy-b work until the test ends."""
    with subprocess.Popen([build("server.c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def assert_both_threads(capture: Capture, pid: int) -> None:
    """Each thread works in its own function and has its own name; the kernel shares the processors out."""
    work = capture.count(
        lambda sample: next(((sample.pid, sample.thread, f) for f in sample.frames if f.startswith("serve_")), None)
    )
    assert set(work) == {(pid, "busy-a", "serve_a"), (pid, "busy-b", "serve_b")}
    assert work.total() >= 100  # of 1,400 for each CPU that has nothing else to do
    assert work.total() >= 0.95 * sum(sample.count for sample in capture.samples)
    assert not capture.losses()


def test_a_process_for_a_duration(server: subprocess.Popen[str], folder: Path) -> None:
    capture = record("-F", "1999", "-p", server.pid, "--duration", "0.7", folder=folder)
    assert_both_threads(capture, server.pid)
    assert capture.profile.duration_ns >= 0.65e9


@pytest.mark.thorough
def test_without_bpf(server: subprocess.Popen[str], folder: Path) -> None:
    capture = record("--no-bpf", "-F", "1999", "-p", server.pid, "--duration", "0.7", folder=folder)
    assert_both_threads(capture, server.pid)


def start_thread(server: subprocess.Popen[str]) -> None:
    assert server.stdin
    assert server.stdout
    server.stdin.write(".")
    server.stdin.flush()
    assert server.stdout.readline() == "more\n"


@pytest.fixture
def late_thread(server: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> list[SamplingTarget]:
    """Lets the server start a thread once its threads were listed, before their events are opened; whose were then."""
    open_first = Opener.open_first
    targets: list[SamplingTarget] = []

    def start_and_open(self: Opener, target: SamplingTarget) -> OpenedEvents:
        if not targets:
            start_thread(server)
        targets.append(target)
        return open_first(self, target)

    monkeypatch.setattr(Opener, "open_first", start_and_open)
    return targets


@pytest.mark.parametrize("options", EACH_RUNG)
def test_threads_that_start_while_others_are_attached_to(
    server: subprocess.Popen[str], late_thread: list[SamplingTarget], folder: Path, options: list[str]
) -> None:
    """It inherited nothing: the BPF programs sampled it, but nothing counted it; without them it was not even seen."""
    arguments = [*options, "-e", "cpu-clock:u", "-F", "1999", "-p", str(server.pid), "--duration", "0.4"]
    result = CliRunner().invoke(cli, ["record", *arguments, "-o", str(folder)])
    assert not result.exit_code, result.output
    assert set(late_thread[-1].tasks) == set(threads_of([server.pid]))
    capture = Capture(folder)
    assert {sample.thread for sample in capture.samples} == {"busy-a", "busy-b", "busy-c"}
    assert not [note for note in capture.manifest["notes"] if "kept starting" in note]


@pytest.mark.parametrize("options", EACH_RUNG)
def test_a_process_forked_once_events_are_open_and_still_off(
    build: Build, monkeypatch: pytest.MonkeyPatch, folder: Path, options: list[str]
) -> None:
    """No record tells of it, nor of what it has mapped: all its samples were in no mapping."""
    enable = AttachedEvents.enable

    def fork_and_enable(self: AttachedEvents) -> None:
        assert parent.stdin
        assert parent.stdout
        parent.stdin.write(".")
        parent.stdin.flush()
        assert parent.stdout.readline() == "forked\n"
        enable(self)

    monkeypatch.setattr(AttachedEvents, "enable", fork_and_enable)
    with subprocess.Popen([build("forks.c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "ready\n"
        arguments = [*options, "-e", "cpu-clock:u", "-F", "1999", "-p", str(parent.pid), "--duration", "0.4"]
        result = CliRunner().invoke(cli, ["record", *arguments, "-o", str(folder)])
        assert parent.stdin
        parent.stdin.close()
    assert not result.exit_code, result.output
    samples = Capture(folder).count(lambda sample: sample.frames[0])
    assert samples["serve"] >= 0.9 * samples.total() > 0


@pytest.mark.needs_bpf
def test_the_number_of_a_thread_that_ended_may_be_anothers(
    server: subprocess.Popen[str], build: Build, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """It ended between being listed and being named, so that nothing told of its end afterwards."""
    looks: list[int] = []

    def look(pids: Sequence[int]) -> tuple[list[int], dict[int, int]]:
        processes, tasks = tasks_of(pids)
        looks.append(len(tasks))
        return processes, tasks if len(looks) > 1 else tasks | {other.pid: other.pid}

    monkeypatch.setattr(following, "tasks_of", look)
    with subprocess.Popen([build("split.c"), "60"], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "ready\n"
        try:
            arguments = ["-e", "cpu-clock:u", "-F", "1999", "-p", str(server.pid), "--duration", "0.4"]
            result = CliRunner().invoke(cli, ["record", *arguments, "-o", str(folder)])
        finally:
            other.kill()
    assert not result.exit_code, result.output
    assert {sample.pid for sample in Capture(folder).samples} == {server.pid}


def test_threads_that_start_while_others_get_counters(
    server: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    targets: list[CountingTarget] = []

    def start_and_open(groups: Sequence[Sequence[Event]], target: CountingTarget) -> CounterSet:
        if not targets:
            start_thread(server)
        targets.append(target)
        return CounterSet(groups, target)

    monkeypatch.setattr(counted_run, "CounterSet", start_and_open)
    counted_run.count_run(counted_run.Subject(("true",), (server.pid,)), [[parse_event("task-clock")]])
    assert set(targets[-1].tids) == set(threads_of([server.pid]))


@pytest.mark.parametrize("is_filtered", [False, True])
def test_what_keeps_the_recorder_is_no_time_without_a_counter(
    server: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, is_filtered: bool
) -> None:
    """Each descriptor is switched on and off by itself; on a busy machine much may happen in between."""
    clock = parse_event("cpu-clock:u" if os.geteuid() else "cpu-clock")
    target = SamplingTarget(list(threads_of([server.pid])), [server.pid], is_filtered=is_filtered and os.geteuid() == 0)
    sizes = RingSizes.wanted(has_spe=False)
    wanted = WantedEvents([clock], target, [Rate(frequency_hz=99)], None, sizes=sizes)
    with AttachedEvents(wanted, online_cpus()) as attached:
        for name in ("enable", "disable"):
            switch = getattr(perf_event, name)
            monkeypatch.setattr(perf_event, name, lambda fd, switch=switch: (time.sleep(0.01), switch(fd)))
        attached.enable()
        time.sleep(0.05)
        attached.disable()
        (count,) = attached.counts()
    assert count
    assert count.running_ns > 0
    assert count.running_ns >= 0.98 * count.enabled_ns


@pytest.mark.needs_bpf
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)], ids=["SIGINT", "SIGTERM"]
)
def test_until_a_signal(server: subprocess.Popen[str], folder: Path, number: signal.Signals) -> None:
    recorder = start_record("-F", "1999", "-p", server.pid, folder=folder)
    wait_until(lambda: has_spooled(folder), recorder)
    recorder.send_signal(number)
    _, said = recorder.communicate(timeout=PATIENCE_S)
    assert recorder.returncode == 0, said
    assert_both_threads(Capture(folder), server.pid)
    assert server.poll() is None  # what was there before is left alone


@pytest.mark.parametrize("options", EACH_RUNG)
def test_until_a_command_ends(server: subprocess.Popen[str], options: list[str], folder: Path) -> None:
    """As perf has it: the command is no part of what is recorded, but its end and its status are the recording's."""
    until = ["sh", "-c", "sleep 0.7; exit 3"]
    capture = record(*options, "-F", "1999", "-p", server.pid, "--", *until, folder=folder, status=3)
    assert_both_threads(capture, server.pid)
    assert capture.profile.duration_ns >= 0.65e9
    assert (capture.manifest["command"], capture.manifest["meanwhile"]) == ([], until)
    assert capture.profile.target == f"process {server.pid}, while sh -c 'sleep 0.7; exit 3' ran"
    assert server.poll() is None


def test_a_command_ends_with_what_is_recorded(server: subprocess.Popen[str], folder: Path) -> None:
    recorder = start_record("--no-bpf", "-p", server.pid, "--", "sleep", str(10 * PATIENCE_S), folder=folder)
    wait_until(lambda: any((folder / "spool").glob("initial.jsonl")), recorder)
    assert server.stdin
    server.stdin.close()
    _, said = recorder.communicate(timeout=PATIENCE_S)
    assert recorder.returncode == 0, said
    assert Capture(folder).manifest["state"] == "complete"


@pytest.mark.needs_root
def test_the_whole_system_until_a_command_ends(build: Build, folder: Path) -> None:
    capture = record("-a", "-F", "1999", "--", build("split.c"), "0.4", folder=folder)
    assert capture.profile.target.startswith("all CPUs, while ")
    work = capture.count(lambda sample: next((f for f in sample.frames if f in ("heavy", "light")), None))
    assert_share(work["heavy"], work.total(), 0.75)
    assert len({sample.pid for sample in capture.samples}) > 1


def test_until_the_process_ends(server: subprocess.Popen[str], folder: Path) -> None:
    recorder = start_record("-F", "1999", "--no-bpf", "-p", server.pid, folder=folder)
    wait_until(lambda: any((folder / "spool").glob("initial.jsonl")), recorder)
    assert server.stdin
    server.stdin.close()
    _, said = recorder.communicate(timeout=PATIENCE_S)
    assert recorder.returncode == 0, said
    assert Capture(folder).manifest["state"] == "complete"


@pytest.mark.needs_root
def test_the_whole_system(server: subprocess.Popen[str], build: Build, folder: Path) -> None:
    """The server was there before; the split starts within; both are seen, and neither is all there is."""
    recorder = start_record("-a", "-F", "1999", folder=folder)
    wait_until(lambda: has_bytes(folder / "spool" / "initial.jsonl"), recorder)  # written once the events count
    subprocess.run([build("split.c"), "0.4"], check=True, stdout=subprocess.DEVNULL)
    recorder.send_signal(signal.SIGINT)
    _, said = recorder.communicate(timeout=PATIENCE_S)
    assert recorder.returncode == 0, said
    capture = Capture(folder)
    work = capture.count(lambda sample: next((f for f in sample.frames if f in ("heavy", "light")), None))
    assert_share(work["heavy"], work.total(), 0.75)
    served = capture.count(lambda sample: sample.thread if sample.pid == server.pid else None)
    assert set(served) == {"busy-a", "busy-b"}
    assert len({sample.pid for sample in capture.samples}) > 2
    # The clock ticks on every CPU whatever runs there, idle or not.
    cpus = os.cpu_count() or 1
    assert capture.total() == pytest.approx(capture.profile.duration_ns * cpus, rel=0.05)
