"""Reads the memory of other processes, in a process of its own.

What is read may be a file of a file system in user space that never answers, as the process's user likes. Who reads it
then cannot even be killed: a thread of ours would keep this process from ending. Arguments and environment of a process
lie in its memory, too.
"""

import contextlib
import errno
import os
import struct
import sys
import threading
from typing import Any, Self

from tdprof.linux.readable import is_readable

NOT_PERMITTED = "who records may not trace it (kernel.yama.ptrace_scope, CAP_SYS_PTRACE), and so not read its memory"
_PATIENCE_S = 1.0
_PATIENCE_AT_START_S = 10.0  # an interpreter starts in hundredths of one, unless the machine is busy
_PATIENCE_AT_END_S = 1.0
_MOST_STUCK = 4  # readers, some MB each
_REQUEST, _ANSWER = struct.Struct("<8s3Q"), struct.Struct("<iI")  # why nothing was read (errno, or 0), and how much
_READER = """
import os, struct, sys
os.write(1, b"r")
while len(request := os.read(0, 32)) == 32:
    name, pid, address, size = struct.unpack("<8s3Q", request)
    data, failure = b"", 0
    try:
        with open(f"{sys.argv[1]}/{pid}/" + name.rstrip(b"\\0").decode(), "rb", buffering=0) as file:
            data = os.pread(file.fileno(), size, address)
    except OverflowError:
        pass
    except OSError as error:
        failure = error.errno
    os.write(1, struct.pack("<iI", failure, len(data)) + data)
"""


class NoReaderError(OSError):
    """Nobody is there to read: the reader could not be started, or has ended."""


class ProcessMemory:
    """Starts the reader when it is first needed, and another one when it is stuck. Close it.

    Whose memory a reader is stuck in is not asked again while it is, and when some are, nobody is.

    Args:
        proc: where processes are found.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._reader = 0
        self._left: dict[int, int] = {}  # readers that are stuck, with the process whose memory they read
        self._is_ready = False
        self._ask = self._hear = -1
        self._lock = threading.Lock()

    def start(self) -> None:
        """Have the reader ready. Any thread may; the others are for one."""
        with self._lock:
            if not self._reader:
                self._start()

    def _start(self) -> None:
        ends: list[int] = []
        try:
            ends += os.pipe()
            ends += os.pipe()
            asked, ask, hear, heard = ends
            command = [sys.executable, "-I", "-S", "-c", _READER, self._proc]
            actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, asked, 0), (os.POSIX_SPAWN_DUP2, heard, 1)]
            # Stuck, it must not keep who reads our messages waiting for their end.
            actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
            # Ctrl-C is not for it: it ends when nobody can ask any more.
            self._reader = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setpgroup=0)
        except OSError:
            for end in ends:
                os.close(end)
            raise
        self._ask, self._hear = ask, hear
        os.close(asked)
        os.close(heard)

    def read(self, pid: int, address: int, size: int) -> bytes:
        """``size`` bytes, at most some MiB, or fewer where what is mapped ends.

        Raises:
            OSError: the process has ended, nothing is mapped there, (PermissionError) this user may not read it, or
                (TimeoutError) it does not answer.
            NoReaderError: as it says.
        """
        data, failure = self._answer(b"mem", pid, address, size)
        if failure in (errno.EACCES, errno.EPERM):
            raise PermissionError(failure, os.strerror(failure))
        if not data:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return data

    def arguments(self, pid: int, most_bytes: int) -> bytes:
        """The beginnings of a process's arguments and of its environment, as far as this user may look.

        Raises:
            TimeoutError: it does not answer.
            NoReaderError: as it says.
        """
        return b"\0".join(self._answer(name, pid, 0, most_bytes)[0] for name in (b"cmdline", b"environ"))

    def _answer(self, name: bytes, pid: int, offset: int, size: int) -> tuple[bytes, int]:
        """What was read, and why nothing was, as errno has it."""
        self._left = {reader: read for reader, read in self._left.items() if not _has_ended(reader)}
        if pid in self._left.values():
            raise TimeoutError(errno.ETIMEDOUT, "its memory did not answer")
        if len(self._left) >= _MOST_STUCK:
            raise TimeoutError(errno.ETIMEDOUT, "too many others' memory did not answer")
        try:
            self.start()
        except OSError as error:
            raise NoReaderError(error.errno, "what reads its memory could not be started") from error
        try:
            if not self._is_ready:
                self._hear_part(1, _PATIENCE_AT_START_S, "what reads its memory did not start")
                self._is_ready = True
            os.write(self._ask, _REQUEST.pack(name, pid, offset, size))
            data = b""
            while len(data) < _ANSWER.size or len(data) < _ANSWER.size + _ANSWER.unpack_from(data)[1]:
                data += self._hear_part(_ANSWER.size + size, _PATIENCE_S, "its memory did not answer")
        except OSError as error:
            self._left[self._leave()] = pid
            if isinstance(error, BrokenPipeError):
                raise NoReaderError(errno.EPIPE, "what reads its memory has ended") from error
            raise
        return data[_ANSWER.size :], _ANSWER.unpack_from(data)[0]

    def _hear_part(self, most: int, patience_s: float, failure: str) -> bytes:
        if not is_readable(self._hear, patience_s):
            raise TimeoutError(errno.ETIMEDOUT, failure)
        if not (part := os.read(self._hear, most)):
            raise BrokenPipeError
        return part

    def _leave(self) -> int:
        """The reader, without waiting for its end, which may never come."""
        for fd in (self._ask, self._hear):
            os.close(fd)
        reader, self._reader = self._reader, 0
        self._is_ready = False
        return reader

    def close(self) -> None:
        """The reader has nothing more to do, and ends; one that does not is left."""
        if self._reader:
            _has_ended(self._leave(), _PATIENCE_AT_END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _has_ended(pid: int, patience_s: float = 0) -> bool:
    """Whether a child of ours ends in so many seconds; then nothing is left of it."""
    with contextlib.suppress(OSError):  # SIGCHLD is ignored: it was not kept for us
        handle = os.pidfd_open(pid)
        try:
            if not is_readable(handle, patience_s):
                return False
        finally:
            os.close(handle)
        os.waitpid(pid, 0)
    return True
