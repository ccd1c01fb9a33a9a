"""The memory of processes is read by another process, which may be left where it is stuck."""

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from builders.waiting import PATIENCE_S, ends_within, wait_until
from tdprof.linux.readable import is_readable
from tdprof.recorder import process_memory
from tdprof.recorder.process_memory import NoReaderError, ProcessMemory

TEXT = b"what stands in memory"


def test_memory_is_read_as_far_as_it_is_mapped() -> None:
    here = ctypes.create_string_buffer(TEXT)
    with contextlib.closing(ProcessMemory()) as memory:
        assert memory.read(os.getpid(), ctypes.addressof(here), len(TEXT)) == TEXT
        for pid, address in ((os.getpid(), 16), (os.getpid(), 2**64 - 8), (2**22 + 1, 4096)):
            with pytest.raises(OSError, match="Bad address"):
                memory.read(pid, address, 8)
        assert memory.read(os.getpid(), ctypes.addressof(here), 4) == TEXT[:4]


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root, and setpriv (util-linux)")
def test_memory_that_one_may_not_read_is_a_matter_of_rights() -> None:
    read = "import sys; from tdprof.recorder.process_memory import ProcessMemory as Memory; memory = Memory()\n"
    read += "try: memory.read(int(sys.argv[1]), 4096, 8)\n"
    read += "except PermissionError: print(memory.arguments(int(sys.argv[1]), 5))"
    with subprocess.Popen(["sleep", "1000"], user=65534) as other:
        try:
            without = ["setpriv", "--bounding-set=-sys_ptrace", sys.executable, "-c", read, str(other.pid)]
            result = subprocess.run(without, capture_output=True, text=True, check=True)
        finally:
            other.kill()
    assert result.stdout.startswith("b'sleep")  # what it was executed with is for everyone to see


@contextlib.contextmanager
def threads(count: int) -> Iterator[list[int]]:
    """Numbers that all stand for this process's memory."""
    go, them = threading.Event(), list[threading.Thread]()
    for _ in range(count):
        them.append(threading.Thread(target=go.wait))
        them[-1].start()
    try:
        yield [each.native_id or 0 for each in them]
    finally:
        go.set()
        for each in them:
            each.join()


def test_a_reader_that_is_stuck_is_left_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ctypes.create_string_buffer(TEXT)
    stuck = dict[int, int]()
    with threads(4) as pids, contextlib.closing(ProcessMemory()) as memory:
        for pid in pids:
            memory.read(os.getpid(), ctypes.addressof(here), 4)
            stuck[pid] = memory._reader
            os.kill(stuck[pid], signal.SIGSTOP)
            with monkeypatch.context() as patched:
                patched.setattr(process_memory, "_PATIENCE_S", 0.1)
                with pytest.raises(TimeoutError):
                    memory.read(pid, ctypes.addressof(here), 4)
            before = memory._reader
            with pytest.raises(TimeoutError):
                memory.read(pid, ctypes.addressof(here), 4)
            assert memory._reader == before, "it was asked again"
        with pytest.raises(TimeoutError, match="too many"):
            memory.read(os.getpid(), ctypes.addressof(here), 4)
        os.kill(stuck[pids[0]], signal.SIGCONT)  # its answer is late, and it ends
        os.waitid(os.P_PID, stuck.pop(pids[0]), os.WEXITED | os.WNOWAIT)
        assert memory.read(pids[0], ctypes.addressof(here), 4) == TEXT[:4]
    for reader in stuck.values():
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)


def test_a_reader_that_starts_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    patience_s = list[float]()

    def wait(descriptor: int, seconds: float) -> bool:
        patience_s.append(seconds)
        return is_readable(descriptor, PATIENCE_S)

    monkeypatch.setattr(process_memory, "_PATIENCE_S", 1.0)
    monkeypatch.setattr(process_memory, "is_readable", wait)
    monkeypatch.setattr(process_memory, "_READER", f"import time; time.sleep(0.2)\n{process_memory._READER}")
    here = ctypes.create_string_buffer(TEXT)
    with ProcessMemory() as memory:
        assert memory.read(os.getpid(), ctypes.addressof(here), len(TEXT)) == TEXT
    started_s, *answered_s = patience_s[:-1]  # the last: that it has ended
    assert (started_s, set(answered_s)) == (PATIENCE_S, {1.0})


def test_a_reader_that_ended_is_an_error_and_another_one_starts() -> None:
    here = ctypes.create_string_buffer(TEXT)
    with ProcessMemory() as memory:
        memory.read(os.getpid(), ctypes.addressof(here), 4)
        os.kill(memory._reader, signal.SIGKILL)
        os.waitid(os.P_PID, memory._reader, os.WEXITED | os.WNOWAIT)
        with pytest.raises(NoReaderError, match="has ended"):
            memory.read(os.getpid(), ctypes.addressof(here), 4)
        assert memory.read(os.getpid(), ctypes.addressof(here), 4) == TEXT[:4]


def test_the_end_does_not_wait_for_a_reader_that_is_stuck() -> None:
    here = ctypes.create_string_buffer(TEXT)
    memory = ProcessMemory()
    memory.read(os.getpid(), ctypes.addressof(here), 4)
    stuck = memory._reader
    os.kill(stuck, signal.SIGSTOP)
    with ends_within(int(PATIENCE_S), AssertionError("it waited")):
        memory.close()
    os.kill(stuck, signal.SIGKILL)
    os.waitpid(stuck, 0)


def test_arguments_and_environment_of_a_process() -> None:
    command = [sys.executable, "-c", "input()", "an argument", "x" * 100_000]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={"NAME": "value"}) as process, ProcessMemory() as memory:
        wait_until(lambda: b"an argument" in memory.arguments(process.pid, 1 << 20), process)
        found = memory.arguments(process.pid, 1 << 20)
        assert b"x" * 100_000 in found
        assert b"NAME=value" in found.split(b"\0")
        assert len(memory.arguments(process.pid, 10)) == 10 + 1 + 10
        process.kill()
    with ProcessMemory() as memory:
        assert memory.arguments(2**22 + 1, 10) == b"\0"


def test_a_reader_that_cannot_start_is_an_error_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    here = ctypes.create_string_buffer(TEXT)
    with ProcessMemory() as memory:
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_spawn", refuse)
            with pytest.raises(NoReaderError, match="could not be started"):
                memory.read(os.getpid(), ctypes.addressof(here), 4)
        assert memory.read(os.getpid(), ctypes.addressof(here), 4) == TEXT[:4]


@pytest.mark.parametrize("pipes", [0, 1])
def test_what_a_refused_pipe_leaves_open_is_nothing(monkeypatch: pytest.MonkeyPatch, pipes: int) -> None:
    made = os.pipe
    allowed = iter(range(pipes))

    def some() -> tuple[int, int]:
        if next(allowed, None) is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return made()

    monkeypatch.setattr(os, "pipe", some)
    before = os.listdir("/proc/self/fd")
    with ProcessMemory() as memory, pytest.raises(NoReaderError, match="could not be started"):
        memory.read(os.getpid(), 0, 4)
    assert os.listdir("/proc/self/fd") == before
