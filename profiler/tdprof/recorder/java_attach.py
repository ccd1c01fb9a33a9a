"""Asks a HotSpot JVM for a map of its compiled code, as ``jcmd PID Compiler.perfmap`` does; nothing of a JDK is needed.

The protocol: who finds no socket ``/tmp/.java_pidN`` creates ``/tmp/.attach_pidN`` and sends SIGQUIT, upon which the
JVM listens there (src/hotspot/os/linux/attachListener_linux.cpp of the JDK). A request is its version, a command and
three arguments, each ended by a zero byte; the answer a number in a line, 0 for success, then text. Paths are the
JVM's, and everything is opened below its root with its identity: what else these names may stand for harms nobody.
"""

import contextlib
import errno
import fcntl
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tdprof.linux.readable import is_readable
from tdprof.recorder.foreign_files import hold_below
from tdprof.recorder.host import read_text
from tdprof.recorder.identity import HeldProcess, Identity, call_as
from tdprof.recorder.java_mappings import JVM_LIBRARY
from tdprof.recorder.process_memory import ProcessMemory
from tdprof.text import printable

_DISPATCHER = "Signal Dispatch"  # the thread that is told of SIGQUIT, as long a name as the kernel keeps
_REQUEST = b"1\0jcmd\0Compiler.perfmap\0\0\0"
_MOST_ANSWER_BYTES = 1 << 16
_LOOK_AGAIN_S = 0.02
_HAS_ENDED = "the process has ended"
# What a JVM that answers SIGQUIT with something else than a socket has among its arguments or in its environment.
_REFUSES = re.compile(rb"-XX:\+DisableAttachMechanism")
_MOST_ARGUMENT_BYTES = 1 << 20


class NotAskedError(Exception):
    """The text says why a JVM cannot be asked."""


class NotReadyError(Exception):
    """The JVM has only just begun: asking would end it."""


@contextlib.contextmanager
def perf_map(pid: int, patience_s: float) -> Iterator[None]:
    """While the block runs there is a ``/tmp/perf-N.map`` by the JVM, N its number as it knows it itself.

    Raises:
        NotReadyError: it does not catch SIGQUIT yet, or it never will (``-Xrs``).
        NotAskedError: it cannot be asked, or has answered that it did not.
        ProcessLookupError: it has ended.
        OSError: we have not the right to ask it.
    """
    deadline = time.monotonic() + patience_s
    handle = os.pidfd_open(pid)
    try:
        with HeldProcess(pid) as process:
            if is_readable(handle):  # then the process held may be another one
                raise ProcessLookupError(errno.ESRCH, _HAS_ENDED)
            with _alone(process, deadline):
                was_there = _has(process, f"perf-{process.inner_pid}.map")
                try:
                    with _listening(process) or _woken(process, handle, deadline) as connection:
                        _ask(connection, deadline)
                    yield
                finally:  # one that ends while it is asked may have written it and not said so
                    if not was_there:  # in a year it would name another process's code
                        _remove(process, f"perf-{process.inner_pid}.map")
    except (FileNotFoundError, PermissionError, ConnectionError) as error:  # as of one that has just ended
        if is_readable(handle):
            raise ProcessLookupError(errno.ESRCH, _HAS_ENDED) from error
        raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def _alone(process: HeldProcess, deadline: float) -> Iterator[None]:
    """While no other recording asks: it would remove the map too soon, or one would take the other's for the user's."""

    def folder() -> int:
        held = hold_below(process.root, "tmp")
        try:
            return os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(held)

    give_up = _half_way(deadline)
    try:
        lock = call_as(process.identity, folder, discard=os.close)
    except PermissionError:  # it may be a folder that one may write into and not read
        yield
        return
    try:
        # Anybody may lock the folder: who does so for long is no recording.
        while not _is_locked(lock) and time.monotonic() < give_up:
            time.sleep(_LOOK_AGAIN_S)
        yield
    finally:
        os.close(lock)


def _is_locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has(process: HeldProcess, name: str) -> bool:
    """Whether there is such a file in its /tmp."""
    try:
        os.close(call_as(process.identity, lambda: hold_below(process.root, f"tmp/{name}"), discard=os.close))
    except FileNotFoundError:
        return False
    return True


def _remove(process: HeldProcess, name: str) -> None:
    def unlink() -> None:
        folder = hold_below(process.root, "tmp")
        try:
            os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)

    with contextlib.suppress(OSError):
        call_as(process.identity, unlink)


def _listening(process: HeldProcess) -> socket.socket | None:
    """A connection to its socket; None if it has none."""

    def connect() -> socket.socket:
        fd = hold_below(process.root, f"tmp/.java_pid{process.inner_pid}")
        try:
            status = os.fstat(fd)
            # Not root's either: who listens there is told by the kernel that we are root, whatever mounted it here.
            if not stat.S_ISSOCK(status.st_mode) or status.st_uid != process.identity.uid:
                raise NotAskedError("another user's file has the name of its socket")
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(1)
                connection.connect(f"/proc/self/fd/{fd}")
            except OSError:
                connection.close()
                raise
            return connection
        finally:
            os.close(fd)

    try:
        return call_as(process.identity, connect)
    except (FileNotFoundError, ConnectionRefusedError):
        return None


def _woken(process: HeldProcess, handle: int, deadline: float) -> socket.socket:
    """A connection to the socket of a JVM that is told to listen."""
    call_as(Identity.own(), lambda: _check_wakes(process.pid))
    # In its memory, which may be a file that never answers.
    with ProcessMemory() as memory:
        if _REFUSES.search(memory.arguments(process.pid, _MOST_ARGUMENT_BYTES)):
            raise NotAskedError("-XX:+DisableAttachMechanism")
    with _request_file(process) as is_ours:
        # A JVM that listens takes another signal for the wish to see its threads' stacks, in the program's output.
        # Whose file was there before asks just now, or was ended while he did.
        connection = _listening(process) if is_ours else _heard(process, handle, _half_way(deadline))
        if connection is None:
            process.confirm()  # a program of more rights that it executes now would be ended
            signal.pidfd_send_signal(handle, signal.SIGQUIT)
            connection = _heard(process, handle, deadline)
    if connection is None:
        raise NotAskedError("it does not listen")
    return connection


def _half_way(deadline: float) -> float:
    return (time.monotonic() + deadline) / 2


def _heard(process: HeldProcess, handle: int, deadline: float) -> socket.socket | None:
    """A connection to its socket as soon as it has one; None if it has none by then."""
    while time.monotonic() < deadline:
        if connection := _listening(process):
            return connection
        if is_readable(handle, _LOOK_AGAIN_S):
            raise ProcessLookupError(errno.ESRCH, _HAS_ENDED)
    return None


def _check_wakes(pid: int) -> None:
    """Raises for a process that SIGQUIT would end, or make do anything else than listen."""
    maps = read_text(f"/proc/{pid}/maps")
    if JVM_LIBRARY not in maps:
        raise NotAskedError("it has no JVM any more")
    if "/libj9" in maps:
        raise NotAskedError("OpenJ9 has no such map (-Xjit:perfTool, or -XX:+PerfTool writes one)")
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", read_text(f"/proc/{pid}/status"), re.MULTILINE)
    is_caught = caught is not None and int(caught[1], 16) >> (signal.SIGQUIT - 1) & 1
    if not is_caught or _DISPATCHER not in map(read_text, Path(f"/proc/{pid}/task").glob("*/comm")):
        raise NotReadyError("it leaves SIGQUIT to others (-Xrs)")


@contextlib.contextmanager
def _request_file(process: HeldProcess) -> Iterator[bool]:
    """The file by which the JVM knows why it gets SIGQUIT; without it, it writes its threads' stacks.

    Yields:
        Whether it was not there before.
    """
    name = f".attach_pid{process.inner_pid}"

    def make() -> bool:
        folder = hold_below(process.root, "tmp")
        try:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder))
        except FileExistsError:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (process.identity.uid, 0):
                raise NotAskedError("another user's file has the name of the one that asks it") from None
            return False
        finally:
            os.close(folder)
        return True

    is_ours = call_as(process.identity, make)
    try:
        yield is_ours
    finally:
        _remove(process, name)


def _ask(connection: socket.socket, deadline: float) -> None:
    connection.settimeout(1)
    connection.sendall(_REQUEST)
    answer = b""
    while len(answer) < _MOST_ANSWER_BYTES:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        if not (part := connection.recv(4096)):
            break
        answer += part
    status, _, text = answer.partition(b"\n")
    if b"Unknown diagnostic command" in text:
        raise NotAskedError("it has no Compiler.perfmap (JDK 17 and later have)")
    if status.strip() != b"0":
        raise NotAskedError(f"it answered '{printable(text[:200].decode('utf-8', 'replace').strip())}'")
