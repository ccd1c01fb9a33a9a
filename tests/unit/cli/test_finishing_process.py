"""Tables are made by a process that loaded what it takes before, and by the recorder itself where there is none."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builders import costly_spools, waiting
from builders.opened import profile_of
from tdprof.capture.manifest import Manifest, State, read_manifest
from tdprof.cli import finishing_process
from tdprof.cli.finishing_process import FinishingProcess
from tdprof.cli.record_end import RecordEnd
from tdprof.linux.own_folder import OwnFolder
from tdprof.pipeline import finish
from tdprof.pipeline.finish import finish_capture, make_tables
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.urgency import urgent

IDENTITY = {"uid": os.geteuid(), "gid": os.getegid(), "groups": []}


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    folder = tmp_path / "capture"
    folder.mkdir(mode=0o700)
    costly_spools.spool_of_distinct_stacks(folder, 100)
    return folder


@pytest.fixture(autouse=True)
def as_much_time_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CPU may be idle for long while tests run."""
    start = f"import os; os.SCHED_IDLE = os.SCHED_OTHER; {finishing_process._START}"
    monkeypatch.setattr(finishing_process, "_START", start)


@pytest.mark.parametrize("is_ahead", [False, True])
def test_tables_are_made_elsewhere_of_what_it_is_told(capture: Path, is_ahead: bool) -> None:
    with OwnFolder.open(capture) as folder, FinishingProcess(is_ahead=is_ahead) as process:
        if is_ahead:
            waiting.wait_until(lambda: process.is_ready)
        process.finish(folder, None)
        assert process.result() is None
    assert read_manifest(capture).state is State.COMPLETE
    assert not (capture / "spool").exists()


def _niceness(process: FinishingProcess) -> set[int]:
    tasks = Path(f"/proc/{process._process.pid}/task")
    return {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in tasks.iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: who is not stays behind all others")
def test_who_waits_for_tables_has_their_process_run_like_others(capture: Path) -> None:
    with OwnFolder.open(capture) as folder, FinishingProcess(is_ahead=False) as process:
        assert _niceness(process) == {19}
        process.hurry()
        assert _niceness(process) == {max(os.getpriority(os.PRIO_PROCESS, 0), 0)}
        process.finish(folder, None)
        assert process.result() is None


def test_where_another_waits_from_the_start_it_never_stays_behind() -> None:
    with FinishingProcess(is_ahead=False, hurries=True) as process:
        assert _niceness(process) == {os.getpriority(os.PRIO_PROCESS, 0)}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: who is not is never urgent")
@pytest.mark.parametrize("is_ahead", [False, True])
def test_who_is_urgent_while_it_records_starts_no_urgent_process(is_ahead: bool) -> None:
    def niceness() -> set[int]:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        with urgent(), FinishingProcess(is_ahead=is_ahead, hurries=not is_ahead) as process:
            return _niceness(process)

    with ThreadPoolExecutor(1) as thread:  # Linux has a niceness for each
        assert thread.submit(niceness).result() == {0}


def test_no_thread_of_what_it_loads_stays_behind() -> None:
    """It would keep the scheduling policy of who loads it: of idle time."""
    with FinishingProcess(is_ahead=True) as process:
        waiting.wait_until(lambda: process.is_ready)
        tasks = Path(f"/proc/{process._process.pid}/task")
        waiting.wait_until(lambda: len(list(tasks.iterdir())) == 1)  # that which loads has ended


def test_what_is_held_goes_along_however_much_it_is(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"ELF")
    fds = [os.open(tmp_path / "program", os.O_PATH | os.O_CLOEXEC) for _ in range(512)]
    told = [{"build_id": f"{number:04x}", "identity": IDENTITY} for number in range(512)]
    with (
        HeldPrograms.taken_over(told, fds) as held,
        OwnFolder.open(capture) as folder,
        FinishingProcess(is_ahead=False) as process,
    ):
        process.finish(folder, held)
        assert process.result() is None
    assert read_manifest(capture).state is State.COMPLETE


@pytest.mark.parametrize("left", [["stacks.bpf"], []])
def test_tables_that_are_whole_are_not_made_again(capture: Path, left: list[str]) -> None:
    """Who made them was killed while the spool was removed."""
    kept = {name: (capture / "spool" / name).read_bytes() for name in left}
    with OwnFolder.open(capture) as folder:
        made = finish_capture(folder)
        samples = profile_of(capture).samples.count.sum()
        (capture / "spool").mkdir()
        for name, data in kept.items():
            (capture / "spool" / name).write_bytes(data)
        assert finish_capture(folder) == made
    assert profile_of(capture).samples.count.sum() == samples > 0
    assert not (capture / "spool").exists()


def _is_waited_for(folder: Path) -> bool:
    """Whether somebody waits for a lock on it (proc_locks(5))."""
    waiting_lines = [line for line in Path("/proc/locks").read_text().splitlines() if " -> FLOCK " in line]
    return any(f":{folder.stat().st_ino} " in line for line in waiting_lines)


def _finish(capture: Path) -> None:
    with OwnFolder.open(capture) as folder:
        assert finish_capture(folder).state is State.COMPLETE


def test_who_finds_another_at_the_tables_waits_for_them(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the next recorder in a folder, while what the killed one had started goes on."""
    counted, begun = profile_of(capture).samples.count.sum(), list[Path]()

    def make_with_another(source: Path, *others: Any) -> Manifest:
        begun.append(source)
        if len(begun) == 1:
            second.start()
            waiting.wait_until(lambda: len(begun) > 1 or _is_waited_for(capture))
        return make_tables(source, *others)

    second = threading.Thread(target=_finish, args=(capture,))
    monkeypatch.setattr(finish, "make_tables", make_with_another)
    _finish(capture)
    second.join()
    assert len(begun) == 1
    assert profile_of(capture).samples.count.sum() == counted > 0


@pytest.mark.parametrize("left", [["stacks.bpf"], []])
def test_a_reader_whose_spool_goes_has_the_tables_that_were_made(
    capture: Path, monkeypatch: pytest.MonkeyPatch, left: list[str]
) -> None:
    counted = profile_of(capture).samples.count.sum()
    kept = {name: (capture / "spool" / name).read_bytes() for name in left}

    def make_too_late(source: Path, *others: Any) -> Manifest:
        monkeypatch.undo()
        _finish(source)
        if kept:
            (source / "spool").mkdir()
        for name, data in kept.items():
            (source / "spool" / name).write_bytes(data)
        return make_tables(source, *others)

    monkeypatch.setattr(finish, "make_tables", make_too_late)
    assert profile_of(capture).samples.count.sum() == counted > 0


def test_why_there_are_no_tables_is_its_last_word(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o700)
    with OwnFolder.open(tmp_path / "empty") as folder, FinishingProcess(is_ahead=False) as process:
        process.finish(folder, None)
        assert "capture.json" in (process.result() or "")


def test_one_that_is_not_asked_ends_unwaited_for(capture: Path) -> None:
    with FinishingProcess(is_ahead=True) as process:
        os.kill(process._process.pid, signal.SIGSTOP)  # as where no CPU is idle; only SIGKILL ends it then
    waiting.wait_until(lambda: process.is_done)
    assert (capture / "spool").exists()


class Unready(FinishingProcess):
    """As on a machine whose CPUs were never idle."""

    is_ready = False  # type: ignore[assignment]


class Failing(FinishingProcess):
    """As one that is killed in between."""

    def result(self) -> str | None:
        self.close()
        return "killed"


@pytest.mark.parametrize("kind", [Unready, Failing])
def test_the_recorder_makes_the_tables_where_no_process_does(
    capture: Path, monkeypatch: pytest.MonkeyPatch, kind: type[FinishingProcess]
) -> None:
    monkeypatch.setattr(finishing_process, "FinishingProcess", kind)
    with OwnFolder.open(capture) as folder, HeldPrograms() as held, RecordEnd(quiet=True, stays_small=False) as end:
        end.prepare()
        assert end.finish(folder, held).state is State.COMPLETE
    assert not (capture / "spool").exists()


def test_a_recorder_that_stays_small_makes_no_tables_of_its_last_segment(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdprof.pipeline.finish.finish_capture", lambda *_: pytest.fail("in this process"))
    with OwnFolder.open(capture) as folder, HeldPrograms() as held, RecordEnd(quiet=True, stays_small=True) as end:
        assert end.finish(folder, held).state is State.COMPLETE
