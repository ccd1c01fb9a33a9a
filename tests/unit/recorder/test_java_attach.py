"""A JVM is asked for a map of its code by the protocol, harmed by nothing, and believed nothing."""

import contextlib
import errno
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders.waiting import wait_until
from tdprof.capture.files import PERF_MAP_FOLDER
from tdprof.capture.java_code import JavaHeader, code_name
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder import java_attach, java_processes
from tdprof.recorder.hotspot import NotKnownError
from tdprof.recorder.java_attach import NotAskedError, NotReadyError, perf_map
from tdprof.recorder.java_mappings import java_mapped
from tdprof.recorder.java_processes import JavaProcesses

# What HotSpot does of the protocol: at its start it removes the socket of one that was killed and had its number; on
# SIGQUIT it listens, if it finds the file that says so; else, and if it listens already, it writes stacks.
JVM = """
import contextlib, itertools, mmap, os, signal, socket, sys, tempfile, time
with tempfile.TemporaryDirectory() as folder, open(folder + "/libjvm.so", "w+b") as library:
    library.write(b"code")
    library.flush()
    mapped = mmap.mmap(library.fileno(), 4)
if sys.argv[1] != "other":
    open("/proc/self/comm", "w").write("Signal Dispatcher")
answer, me = sys.argv[1].encode(), os.getpid()
with contextlib.suppress(FileNotFoundError):
    os.unlink(f"/tmp/.java_pid{me}")

def wake(*_):
    asked = os.path.exists(f"/tmp/.attach_pid{me}") and not os.path.exists(f"/tmp/.java_pid{me}")
    print("asked" if asked else "stacks", flush=True)
    if asked and answer != b"never":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"/tmp/.java_pid{me}")
        listener.listen()
        for number in itertools.count():
            connection = listener.accept()[0]
            request = b""
            while request.count(b"\\0") < 5:
                request += connection.recv(100)
            assert request == b"1\\0jcmd\\0Compiler.perfmap\\0\\0\\0", request
            with open(f"/tmp/perf-{me}.map", "w") as file:
                file.write(f"1000 10 void Always.here()\\n{2000 + number} 10 void Only.now{number}()\\n")
            connection.sendall(answer)
            connection.close()

def change(*_):
    os.setuid(65534)
    print("ready again", flush=True)

signal.signal(signal.SIGUSR1, change)
if answer != b"deaf":
    signal.signal(signal.SIGQUIT, wake)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


@contextlib.contextmanager
def jvm(answer: str, *arguments: str, user: int | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", JVM, answer, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, user=user, group=user) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()
            for name in (f".java_pid{process.pid}", f"perf-{process.pid}.map", f".attach_pid{process.pid}"):
                Path("/tmp", name).unlink(missing_ok=True)


def left_behind(pid: int) -> list[str]:
    return [name for name in (f".attach_pid{pid}", f"perf-{pid}.map") if Path("/tmp", name).exists()]


def test_a_jvm_is_woken_and_asked_and_nothing_is_left_behind() -> None:
    with jvm("0\nCommand executed successfully\n") as process:
        for number in range(2):  # the second time it listens already
            with perf_map(process.pid, 120):
                assert f"Only.now{number}()" in Path(f"/tmp/perf-{process.pid}.map").read_text()
            assert left_behind(process.pid) == []


def test_of_several_that_ask_one_sends_the_signal() -> None:
    with jvm("0\n") as process, ThreadPoolExecutor(1) as pool:
        request = Path(f"/tmp/.attach_pid{process.pid}")
        request.touch()

        def ask() -> None:
            with perf_map(process.pid, 120):
                pass

        asking = pool.submit(ask)
        with pytest.raises(TimeoutError):
            asking.result(0.2)
        os.kill(process.pid, signal.SIGQUIT)
        asking.result(120)
        process.kill()
        assert process.stdout
        assert process.stdout.read() == "asked\n"


def test_several_recordings_ask_one_after_another() -> None:
    with jvm("0\n") as process, ThreadPoolExecutor(1) as pool:
        kept = Path(f"/tmp/perf-{process.pid}.map")

        def ask() -> str:
            with perf_map(process.pid, 120):
                return kept.read_text()

        with perf_map(process.pid, 120):
            asking = pool.submit(ask)
            with pytest.raises(TimeoutError):
                asking.result(0.2)
            assert "Only.now0()" in kept.read_text()
        assert "Only.now1()" in asking.result(120)
        assert left_behind(process.pid) == []


@pytest.fixture
def soon_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are waited for no longer than that, and the rest takes as long as it likes."""
    monkeypatch.setattr(java_attach, "_half_way", lambda _: time.monotonic() + 0.2)


@pytest.mark.usefixtures("soon_half_way")
def test_a_folder_that_stays_locked_hinders_nobody() -> None:
    with jvm("0\n") as process:
        folder = os.open("/tmp", os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            with perf_map(process.pid, 120):
                assert left_behind(process.pid) == [f"perf-{process.pid}.map"]
        finally:
            os.close(folder)


@pytest.mark.usefixtures("soon_half_way")
def test_a_request_that_nobody_made_is_made_again() -> None:
    with jvm("0\n") as process:
        Path(f"/tmp/.attach_pid{process.pid}").touch()
        with perf_map(process.pid, 120):
            assert left_behind(process.pid) == [f"perf-{process.pid}.map"]


def test_a_map_that_was_there_before_stays() -> None:
    with jvm("0\n") as process:
        Path(f"/tmp/perf-{process.pid}.map").write_text("of another tool\n")
        with perf_map(process.pid, 120):
            pass
        assert left_behind(process.pid) == [f"perf-{process.pid}.map"]


@pytest.mark.parametrize("kind", ["deaf", "other"])
def test_what_takes_the_signal_for_something_else_does_not_get_it(kind: str) -> None:
    with jvm(kind) as process:
        with pytest.raises(NotReadyError, match="-Xrs"), perf_map(process.pid, 120):
            pass
        time.sleep(0.05)
        assert process.poll() is None
        process.kill()
        assert process.stdout
        assert process.stdout.read() == ""


def test_what_is_no_jvm_does_not_get_it() -> None:
    with pytest.raises(NotAskedError, match="no JVM"), perf_map(os.getpid(), 1):
        pass


@pytest.mark.parametrize(
    ("answer", "arguments", "reason"),
    [
        ("0\n", ["-XX:+DisableAttachMechanism"], "DisableAttachMechanism"),
        ("1\njava.lang.IllegalArgumentException: Unknown diagnostic command\n", [], "JDK 17"),
        ("101\n\033[31mno\n", [], r"it answered '.*\[31mno'"),
        ("", [], "it answered ''"),  # as one that ends meanwhile does
        ("never", [], "it does not listen"),
    ],
)
def test_why_it_is_not_asked(answer: str, arguments: list[str], reason: str) -> None:
    with jvm(answer, *arguments) as process:
        with pytest.raises(NotAskedError, match=reason), perf_map(process.pid, 0.5 if answer == "never" else 120):
            pass
        assert left_behind(process.pid) == []


def test_a_link_in_place_of_its_socket_is_not_followed(tmp_path: Path) -> None:
    with jvm("0\n") as process, socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        Path(f"/tmp/.java_pid{process.pid}").symlink_to(tmp_path / "s")
        with pytest.raises(NotAskedError, match="has the name of its socket"), perf_map(process.pid, 120):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_users_socket_is_not_connected_to() -> None:
    """The process's user may have mounted root's there, whose server would take us for root."""
    with jvm("0\n", user=65534) as process, socket.socket(socket.AF_UNIX) as other:
        path = f"/tmp/.java_pid{process.pid}"
        other.bind(path)
        Path(path).chmod(0o666)
        other.listen()
        other.setblocking(False)
        with pytest.raises(NotAskedError, match="has the name of its socket"), perf_map(process.pid, 120):
            pass
        with pytest.raises(BlockingIOError):
            other.accept()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_what_executes_a_program_of_more_rights_meanwhile_is_not_sent_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = java_attach._check_wakes

    def check_and_lose(pid: int) -> None:
        check(pid)
        os.kill(pid, signal.SIGUSR1)
        wait_until(lambda: "ready again" in (process.stdout.readline() if process.stdout else ""))

    monkeypatch.setattr(java_attach, "_check_wakes", check_and_lose)
    with jvm("changes") as process:
        with pytest.raises(PermissionError), perf_map(process.pid, 120):
            pass
        process.kill()
        assert process.stdout
        assert process.stdout.read() == ""


def test_names_of_code_that_was_freed_are_kept(tmp_path: Path) -> None:
    with jvm("0\n") as process, OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        java.found(process.pid)
        kept = tmp_path / PERF_MAP_FOLDER / f"perf-{process.pid}.map"
        wait_until(kept.exists)
        assert java.finish()[0] == "asked 1 Java process for the names of compiled code (--no-interpreters does not)"
        freed, always, *more = [line.split(" ", 2)[2] for line in kept.read_text().splitlines()]
        assert (freed, always) == ("void Only.now0()", "void Always.here()")
        # Asked at least twice; on a busy machine its turn may have come between.
        assert more == [f"void Only.now{number}()" for number in range(1, len(more) + 1)] != []


def test_of_one_that_ends_while_it_is_held_it_is_not_said_that_its_user_may() -> None:
    """It is still there for who started it, without what /proc has of others."""
    process = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessLookupError, match="the process has ended"), perf_map(process.pid, 120):
            pass
    finally:
        process.wait()


def test_of_one_that_has_ended_it_is_said(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        java.found(process.pid)
        (note,) = java.finish()
    assert note == (
        f"Java code of process {process.pid} may have no names: "
        "it ended before it could be asked (record --perf-maps -- CMD)"
    )


def test_one_that_does_not_answer_is_no_matter_of_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(pid: int, patience_s: float) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "its memory did not answer")

    monkeypatch.setattr(java_processes, "perf_map", silent)
    with OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        java.found(os.getpid())
        (note,) = java.finish()
    assert note == f"Java code of process {os.getpid()} may have no names: its memory did not answer"


def test_nothing_stays_of_what_one_said_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Said:
        header = JavaHeader(0, False)

        def more(self) -> Iterator[bytes]:
            return iter(())

    said = weakref.WeakSet[Said]()

    def say(pid: int, memory: object) -> Said:
        new = Said()
        said.add(new)
        return new

    @contextlib.contextmanager
    def answer_once(pid: int, patience_s: float) -> Iterator[None]:
        if said:
            raise ProcessLookupError
        yield

    monkeypatch.setattr(java_processes, "compiled_code", say)
    monkeypatch.setattr(java_processes, "perf_map", answer_once)
    monkeypatch.setattr(java_processes, "save_run_time_code", lambda *_, **__: [])
    monkeypatch.setattr(java_processes, "_FIRST_S", 0.01)
    with OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        java.found(os.getpid())
        wait_until(lambda: java._asked and not said)  # asked, and found to have ended
        java.finish()


class _Asked:
    """In place of `perf_map`: JVMs by number, of which some answer nothing."""

    def __init__(self, *silent: int) -> None:
        self.pids: list[int] = []
        self._silent = silent

    @contextlib.contextmanager
    def perf_map(self, pid: int, patience_s: float) -> Iterator[None]:
        self.pids.append(pid)
        if pid in self._silent:
            raise NotReadyError("not yet")
        yield


def test_who_is_not_asked_for_want_of_time_or_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent, ready, others = os.getpid(), os.getppid(), (1 << 23, (1 << 23) + 1)  # the latter are nobody's numbers
    asked = _Asked(silent)
    monkeypatch.setattr(java_processes, "perf_map", asked.perf_map)
    monkeypatch.setattr(java_processes, "save_run_time_code", lambda *_, **__: [])
    monkeypatch.setattr(java_processes, "_MOST_PROCESSES", 2)
    with OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        java.found(silent)
        java.found(ready)
        wait_until(lambda: {silent, ready} <= set(asked.pids))
        java.found(others[0])
        wait_until(lambda: not java._waiting.qsize())
        notes = java.finish()
    assert notes == [
        "asked 1 Java process for the names of compiled code (--no-interpreters does not)",
        f"Java code of process {silent} may have no names: there was no time to ask it",
        f"Java code of process {others[0]} may have no names: 2 others were to be asked",
    ]


def test_who_has_ended_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _Asked()
    monkeypatch.setattr(java_processes, "perf_map", asked.perf_map)
    monkeypatch.setattr(java_processes, "save_run_time_code", lambda *_, **__: [])
    monkeypatch.setattr(java_processes, "_MOST_PROCESSES", 1)
    with OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        java.found(1 << 23)  # nobody's number
        wait_until(lambda: asked.pids)
        java.found(os.getpid())
        wait_until(lambda: os.getpid() in asked.pids)
        assert java.finish() == ["asked 2 Java processes for the names of compiled code (--no-interpreters does not)"]


def test_one_users_processes_leave_places_and_time_for_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, one = (1, 2, os.getppid()), os.getpid()
    asked = _Asked()

    def perf_map(pid: int, patience_s: float) -> contextlib.AbstractContextManager[None]:
        if pid in others:
            now_s[0] += patience_s
        return asked.perf_map(pid, patience_s)

    now_s = [1000.0]
    monkeypatch.setattr(java_processes, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(java_processes, "perf_map", perf_map)
    monkeypatch.setattr(java_processes, "save_run_time_code", lambda *_, **__: [])
    monkeypatch.setattr(java_processes, "_user_of", lambda pid: 54321 if pid in others else 54322)
    monkeypatch.setattr(java_processes, "_MOST_PROCESSES", 4)
    with OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        for pid in (*others, one):
            java._add(pid)
        assert set(java._known) == {others[0], others[1], one}
        java._due = dict.fromkeys(java._known, (0.0, 0.0))
        left = set(java._known)
        while left:
            left.remove(java._ask_one_of(left))
    assert asked.pids.index(one) < 2
    assert sorted(asked.pids) == sorted([*others[:2], one])


class _Compiled:
    """In place of `CompiledCode`: records by look."""

    header = JavaHeader(1, is_everywhere=False)

    def __init__(self, *looks: list[bytes]) -> None:
        self._looks = iter(looks)

    def more(self) -> Iterator[bytes]:
        yield from next(self._looks)


def test_behind_a_record_that_is_left_out_none_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones name methods by how many records of them came before."""
    code = _Compiled([b"first", b"x" * 100, b"same look"], [b"next look"])
    monkeypatch.setattr(java_processes, "compiled_code", lambda pid, memory: code)
    monkeypatch.setattr(java_processes, "MOST_CODE_FILE_BYTES", 64)
    with OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        java._keep_code(os.getpid())
        java._keep_code(os.getpid())
        assert list(java._notes()) == [f"{_missing(os.getpid())}: there was more of them than is kept"]
    kept = (tmp_path / PERF_MAP_FOLDER / code_name(os.getpid())).read_bytes()
    assert kept == code.header.to_bytes() + b"first"


def _missing(pid: int) -> str:
    return f"inlined methods and lines of Java process {pid} are missing"


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (PermissionError(errno.EACCES, ""), "who records may not trace it (kernel.yama.ptrace_scope, CAP_SYS_PTRACE)"),
        (NotKnownError(), "this JVM does not describe its code"),
    ],
)
def test_why_there_is_no_more_than_the_map_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, reason: str
) -> None:
    failures = [failure, failure]

    def compiled(pid: int, memory: object) -> _Compiled:
        if failures:
            raise failures.pop()
        return _Compiled([])

    monkeypatch.setattr(java_processes, "compiled_code", compiled)
    with OwnFolder.open(tmp_path) as folder:
        java = JavaProcesses(folder)
        java._keep_code(os.getpid())
        java._keep_code(os.getpid())
        (note,) = java._notes()
        java._keep_code(os.getpid())  # now it can be had
        assert list(java._notes()) == []
    assert note.startswith(f"{_missing(os.getpid())}: {reason}")


def mmap2(pid: int, path: bytes, misc: int = 0x4002) -> bytes:
    text = path + b"\0" * (8 - len(path) % 8)
    return struct.pack("<IHHII3Q24sII", 10, misc, 72 + len(text), pid, pid, 0x7000, 0x1000, 0, b"", 5, 2) + text


@pytest.mark.parametrize("misc", [2, 0x4002, 0x6002])
def test_it_is_found_where_it_is_mapped(misc: int) -> None:
    library = b"/usr/lib/jvm/x/lib/server/libjvm.so"
    records = mmap2(3, b"/bin/sh", misc) + mmap2(7, library, misc) + mmap2(8, b"/libjvm.so.old", misc)
    assert list(java_mapped(records)) == [7]
    for end in range(len(records)):  # a ring may end anywhere
        assert set(java_mapped(records[:end])) <= {7}
    assert list(java_mapped(library * 100)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_users_jvm_is_asked_as_that_user() -> None:
    with jvm("0\n", user=65534) as process:
        with perf_map(process.pid, 120):
            assert Path(f"/tmp/perf-{process.pid}.map").stat().st_uid == 65534
        assert left_behind(process.pid) == []
