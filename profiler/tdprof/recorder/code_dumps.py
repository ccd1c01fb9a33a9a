"""Notices when code made at run time takes other code's place, by what its program appends to its ``jit-PID.dump``.

BPF rows are added up over an interval, within which an address then has two meanings. An interval that ends soon after
such a moment keeps them apart. Dumps are read in a thread of its own: a file of the recorded program's choosing may
never answer. What is noticed late, or never, costs an interval that is not ended.
"""

import bisect
import contextlib
import ctypes
import errno
import os
import queue
import re
import select
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tdprof.recorder.foreign_files import open_below
from tdprof.recorder.identity import HeldProcess, call_as

_MOST_DUMPS, _MOST_FUNCTIONS = 64, 1 << 16
_MOST_RECORDS = 1 << 18  # of a dump: half a second of this thread's time, whatever a program appends
_PAUSE_S = 0.02  # between two intervals that are ended for this
_ENDING_S = 1.0
_IN_MODIFY, _IN_FLAGS = 2, os.O_NONBLOCK | os.O_CLOEXEC
_EVENT = struct.Struct("<iIII")  # struct inotify_event, which has no name for a file that is watched itself
# PERF_RECORD_MMAP2 of user space, with or without a build-id; its path stands behind 72 bytes, and ends it.
_MMAP = re.compile(rb"\x0a\0\0\0\x02[\0\x20\x40\x60]", re.DOTALL)
_SIZE_AND_PID, _PATH = struct.Struct("<HI"), 72
_DUMP_NAME = re.compile(rb"/jit-\d+\.dump")
# The dump's format: see tdprof.symbolize.jitdump.
_FILE_HEADER, _MAGIC = struct.Struct("<III"), 0x4A695444
_RECORD, _LONGEST_NAME = struct.Struct("<II8x"), 256
# Of code that is loaded: its address twice, its size, its number; then its name. Of code that moves: the same with old
# and new address and the size; then its number, which stands for its name here.
_PLACED = struct.Struct("<8xQQQQ")
_JIT_CODE_LOAD, _JIT_CODE_MOVE = 0, 1


@dataclass(slots=True)
class DumpedCode:
    """What stands where, by the records of one dump that were read.

    Attributes:
        position: in the dump, behind the last whole record; -1: it is no dump, damaged from there on, or too long.
        records: that were read.
    """

    position: int = 0
    records: int = 0
    _start: list[int] = field(default_factory=list)
    _end: list[int] = field(default_factory=list)
    _name: list[bytes] = field(default_factory=list)

    def read_on(self, fd: int) -> bool:
        """Read what the file has more; returns whether code was put where other code of another name stands."""
        size, is_replaced = os.fstat(fd).st_size, False
        if self.position == 0 and size >= _FILE_HEADER.size:
            magic, _, header_size = _FILE_HEADER.unpack(os.pread(fd, _FILE_HEADER.size, 0))
            self.position = header_size if magic == _MAGIC and header_size else -1
        while 0 < self.position < size:
            record = os.pread(fd, _RECORD.size + _PLACED.size + _LONGEST_NAME, self.position)
            if len(record) < _RECORD.size:
                break
            kind, length = _RECORD.unpack_from(record)
            self.records += 1
            if length < _RECORD.size or self.records > _MOST_RECORDS:
                self.position = -1
            elif self.position + length > size:
                break
            else:
                self.position += length
                if kind in (_JIT_CODE_LOAD, _JIT_CODE_MOVE) and length >= _RECORD.size + _PLACED.size <= len(record):
                    is_replaced |= self._put(kind, record[_RECORD.size :])
        return is_replaced

    def _put(self, kind: int, body: bytes) -> bool:
        """Whether a function that is loaded, or moved, covers what has another name."""
        _, second, third, fourth = _PLACED.unpack_from(body)
        start, size = (second, third) if kind == _JIT_CODE_LOAD else (third, fourth)
        name = body[_PLACED.size :].partition(b"\0")[0]
        first, last = bisect.bisect_right(self._end, start), bisect.bisect_left(self._start, start + size)
        if not size or first > last:
            return False
        is_other = any(each != name for each in self._name[first:last])
        if len(self._start) >= _MOST_FUNCTIONS:
            self._start, self._end, self._name, first, last = [], [], [], 0, 0
        self._start[first:last], self._end[first:last], self._name[first:last] = [start], [start + size], [name]
        return is_other


class CodeDumps:
    """The dumps that processes have mapped, read as they grow; `finish` ends that.

    Attributes:
        fd: readable once code was replaced, until `take_replaced`.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._found: queue.SimpleQueue[tuple[int, str] | None] = queue.SimpleQueue()
        self._known: set[tuple[int, str]] = set()
        self._thread: threading.Thread | None = None

    def found(self, pid: int, path: str) -> None:
        """A process has mapped a dump of this path, as it sees it."""
        if (pid, path) in self._known or len(self._known) >= _MOST_DUMPS:
            return
        self._known.add((pid, path))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._tell((pid, path))

    def take_replaced(self) -> bool:
        """Whether code was replaced since the last call."""
        try:
            return os.eventfd_read(self.fd) > 0
        except BlockingIOError:
            return False

    def finish(self) -> None:
        """Read no more."""
        if self._thread:
            self._tell(None)
            self._thread.join(_ENDING_S)
            self._thread = None

    def _tell(self, message: tuple[int, str] | None) -> None:
        self._found.put(message)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with contextlib.ExitStack() as opened:
            watch = libc.inotify_init1(_IN_FLAGS)
            if watch < 0:
                return
            opened.callback(os.close, watch)
            poller = select.poll()
            for fd in (watch, self._wake):
                poller.register(fd, select.POLLIN)
            dumps: dict[int, tuple[int, DumpedCode]] = {}  # by the number of the watch
            while True:
                poller.poll()
                grown = set(_grown(watch))
                with contextlib.suppress(BlockingIOError):
                    for _ in range(os.eventfd_read(self._wake)):
                        if (message := self._found.get()) is None:
                            return
                        with contextlib.suppress(OSError):
                            fd = _open_dump(*message)
                            opened.callback(os.close, fd)
                            number = libc.inotify_add_watch(watch, f"/proc/self/fd/{fd}".encode(), _IN_MODIFY)
                            dumps[number] = fd, DumpedCode()
                            grown.add(number)
                with contextlib.suppress(OSError):
                    replaced = [code.read_on(fd) for fd, code in map(dumps.__getitem__, grown & dumps.keys())]
                    if any(replaced):
                        os.eventfd_write(self.fd, 1)
                        time.sleep(_PAUSE_S)


def _grown(watch: int) -> Iterator[int]:
    """The watched files that have changed."""
    with contextlib.suppress(BlockingIOError):
        for number, _, _, _ in _EVENT.iter_unpack(os.read(watch, 64 * _EVENT.size)):
            yield number


def _open_dump(pid: int, path: str) -> int:
    """A descriptor of a process's dump, opened with its rights; it has to be its own, or root's.

    Raises:
        OSError: it cannot be opened so, or is another's.
    """
    with HeldProcess(pid) as process:
        fd = call_as(process.identity, lambda: open_below(process.root, path))
        if os.fstat(fd).st_uid in (process.identity.uid, 0):
            return fd
    os.close(fd)
    raise PermissionError(errno.EPERM, "it belongs to another user")


def dumps_mapped(records: bytes) -> Iterator[tuple[int, str]]:
    """(process, path) of each dump that perf records say is mapped: so programs tell profilers of it."""
    if b".dump" not in records:
        return
    for found in _MMAP.finditer(records):
        if found.end() + _SIZE_AND_PID.size > len(records):
            continue
        size, pid = _SIZE_AND_PID.unpack_from(records, found.end())
        path = records[found.start() + _PATH : found.start() + size].partition(b"\0")[0]
        if found.start() + size <= len(records) and _DUMP_NAME.fullmatch(path[path.rfind(b"/") :]):
            yield pid, os.fsdecode(path)
