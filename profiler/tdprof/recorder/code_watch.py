"""Reads what programs tell of the code that they make, in dumps and maps, while they run.

BPF rows are added up over an interval, within which an address then has two meanings. An interval that ends soon after
such a moment keeps them apart. And maps have no times, but lines have one for who sees them come. The files are read in
a thread of its own: one of the recorded program's choosing may never answer. What is noticed late, or never, costs an
interval that is not ended, or names that are not told apart.
"""

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
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import field
from typing import NamedTuple

from tdprof.linux.clocks import is_older
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder.code_dumps import DumpedCode
from tdprof.recorder.code_maps import MapLog, save_map_logs
from tdprof.recorder.foreign_files import open_below
from tdprof.recorder.identity import HeldProcess, call_as
from tdprof.recorder.shares import Shares
from tdprof.values import dataclass

_MOST_FILES = 128  # each of dumps and maps, of all users; `Shares` says how many of one
_MOST_BYTES_OF_MAPS = 64 << 20  # of all maps together; they are kept in memory
# A process maps its dump once; what it executes next, another.
_MOST_DUMPS_OF_PROCESS, _MOST_PROCESSES = 4, 4096
_PAUSE_S = 0.02  # between two intervals that are ended for this
_READING_PAUSE_MS = 5  # lines may come by the thousand
_ENDING_S = 1.0
_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE, _IN_FLAGS = 2, 0x80, 0x100, os.O_NONBLOCK | os.O_CLOEXEC
_EVENT = struct.Struct("<iIII")  # struct inotify_event, behind it a name of the length it ends with
_EVENTS_BYTES = 1 << 16
MAPS_FOLDER = "/tmp"
_MAP_NAME = re.compile(rb"perf-([1-9]\d{0,8})\.map")
_libc = ctypes.CDLL(None, use_errno=True)


class _Followed(NamedTuple):
    fd: int
    pid: int
    uid: int
    reader: DumpedCode | MapLog


@dataclass(slots=True)
class _Watched:
    """Files by the number of their watch, each with what reads it."""

    watch: int
    files: dict[int, _Followed] = field(default_factory=dict)
    dumps: Shares = field(default_factory=lambda: Shares(_MOST_FILES))

    def add(self, fd: int, process: HeldProcess, reader: DumpedCode | MapLog) -> int:
        """Follow an open file from now on, and have it closed later; returns its number."""
        try:
            number = _add_watch(self.watch, f"/proc/self/fd/{fd}", _IN_MODIFY)
        except OSError:
            os.close(fd)
            raise
        if number in self.files:  # the file by another name, or of a process before
            self._close(number)
        self.files[number] = _Followed(fd, process.pid, process.identity.uid, reader)
        if isinstance(reader, DumpedCode):
            self.dumps.take(process.identity.uid)
        return number

    def read_on(self, numbers: Set[int]) -> bool:
        """Whether any of them tells of code in other code's place."""
        is_replaced = False
        for file in map(self.files.__getitem__, numbers & self.files.keys()):
            with contextlib.suppress(OSError):
                is_replaced |= file.reader.read_on(file.fd)
        return is_replaced

    def drop(self, pids: Set[int]) -> None:
        """Follow the files of these processes no more."""
        self._leave([number for number, file in self.files.items() if file.pid in pids])

    def end_file_of(self, log: MapLog) -> None:
        """Read the rest of the file that a map was in, and follow it no more: another has its name now."""
        numbers = [number for number, file in self.files.items() if file.reader is log]
        self.read_on(set(numbers))
        self._leave(numbers)

    def close(self) -> None:
        for number in list(self.files):
            self._close(number)

    def _leave(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            _libc.inotify_rm_watch(self.watch, number)
            self._close(number)

    def _close(self, number: int) -> None:
        file = self.files.pop(number)
        os.close(file.fd)
        if isinstance(file.reader, DumpedCode):
            self.dumps.give_back(file.uid)


class CodeWatch:
    """Of one recording; `finish` ends it.

    Args:
        ends_intervals: whether samples are added up over intervals, so that dumps are read at all.

    Attributes:
        fd: readable once code was replaced, until `take_replaced`.
    """

    def __init__(self, *, ends_intervals: bool) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.ends_intervals = ends_intervals
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # What the thread is to do, which returns files to be read; None: the last time.
        self._asked: queue.SimpleQueue[Callable[[_Watched], set[int]] | None] = queue.SimpleQueue()
        self._ended: Set[int] = frozenset()  # processes that had ended at the last `forget_all_but`
        self._dumps: dict[int, set[str]] = {}  # that were found, by process
        self._maps: dict[int, MapLog] = {}
        self._places, self._room = Shares(_MOST_FILES), Shares(_MOST_BYTES_OF_MAPS)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look for maps from now on; those that are there are read."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def found_dump(self, pid: int, path: str) -> None:
        """A process has mapped a dump of this path, as it sees it."""
        if pid not in self._dumps and len(self._dumps) >= _MOST_PROCESSES:
            return
        known = self._dumps.setdefault(pid, set())
        if path not in known and len(known) < _MOST_DUMPS_OF_PROCESS:
            known.add(path)
            self._tell(lambda watched: self._open_dump(watched, pid, path))

    def take_replaced(self) -> bool:
        """Whether code was replaced since the last call."""
        try:
            return os.eventfd_read(self.fd) > 0
        except BlockingIOError:
            return False

    @property
    def maps_bytes(self) -> int:
        """What `save_maps` writes, at most."""
        return sum(len(log.text) for log in dict(self._maps).values())

    def save_maps(self, folder: OwnFolder, follows: Callable[[int], bool]) -> list[str]:
        """Write what was read of maps into a capture; see `save_map_logs`."""
        logs = {pid: log for pid, log in dict(self._maps).items() if not _has_number_of_another(pid, log)}
        return save_map_logs(folder, logs, follows)

    def forget_all_but(self, running: Set[int]) -> None:
        """Follow no files of other processes than these; from the second time on, as last lines may be on their way."""
        ended = {*self._maps, *self._dumps} - running
        if gone := ended & self._ended:
            self._dumps = {pid: paths for pid, paths in self._dumps.items() if pid not in gone}
            self._tell(lambda watched: self._forget(watched, gone))
        self._ended = ended

    def finish(self) -> None:
        """Read everything once more, and then no more."""
        if self._thread:
            self._tell(None)
            self._thread.join(_ENDING_S)
            self._thread = None

    def _tell(self, wish: Callable[[_Watched], set[int]] | None) -> None:
        self._asked.put(wish)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
            watch = _libc.inotify_init1(_IN_FLAGS)
            if watch < 0:
                return
            opened.callback(os.close, watch)
            watched = _Watched(watch)
            opened.callback(watched.close)
            maps = _add_watch(watch, MAPS_FOLDER, _IN_CREATE | _IN_MOVED_TO)
            poller = select.poll()
            pause = select.poll()
            for fd in (watch, self._wake):
                poller.register(fd, select.POLLIN)
            pause.register(self._wake, select.POLLIN)
            grown = {
                number for name in os.listdir(os.fsencode(MAPS_FOLDER)) for number in self._open_map(watched, name)
            }
            while True:
                is_ending = False
                with contextlib.suppress(BlockingIOError):
                    for _ in range(os.eventfd_read(self._wake)):
                        wish = self._asked.get()
                        is_ending |= wish is None
                        grown |= wish(watched) if wish else watched.files.keys()
                if watched.read_on(grown) and self.ends_intervals:
                    os.eventfd_write(self.fd, 1)
                    time.sleep(_PAUSE_S)
                if is_ending:
                    return
                pause.poll(_READING_PAUSE_MS)
                poller.poll()
                grown = set()
                for number, name in _events(watch):
                    grown |= self._open_map(watched, name) if number == maps else {number}

    def _open_dump(self, watched: _Watched, pid: int, path: str) -> set[int]:
        with contextlib.suppress(OSError), HeldProcess(pid) as process:
            if watched.dumps.left_for(process.identity.uid):
                return {watched.add(_open(process, path), process, DumpedCode())}
        return set()

    def _forget(self, watched: _Watched, pids: Set[int]) -> set[int]:
        watched.drop(pids)
        for pid in pids & self._maps.keys():
            log = self._maps.pop(pid)
            log.give_room_back()
            self._places.give_back(log.uid)
        return set()

    def _open_map(self, watched: _Watched, name: bytes) -> set[int]:
        """The number of the file of this name, if it is a process's map."""
        found = _MAP_NAME.fullmatch(name)
        if found is None:
            return set()
        with contextlib.suppress(OSError), HeldProcess(int(found[1])) as process:
            fd = _open(process, f"{MAPS_FOLDER}/{name.decode()}")
            status, log = os.fstat(fd), self._log_of(process)
            file = (status.st_dev, status.st_ino)
            if log is None or log.file == file:
                os.close(fd)
                return set()
            watched.end_file_of(log)
            # What another process of that number left there is not this one's, also if it goes on in that file.
            log.begin_anew(file, status.st_size if is_older(status.st_mtime_ns, process.started_ns()) else 0)
            return {watched.add(fd, process, log)}
        return set()

    def _log_of(self, process: HeldProcess) -> MapLog | None:
        """What a process wrote so far; None where its user has no place for another."""
        log, uid = self._maps.get(process.pid), process.identity.uid
        if log and log.started_ticks != process.started_ticks:
            del self._maps[process.pid]  # of a process that has ended: not a line of it is the other's
            self._places.give_back(log.uid)
            log = None
        if log is None and self._places.left_for(uid):
            log = self._maps[process.pid] = MapLog(self._room, uid, process.started_ticks)
            self._places.take(uid)
        return log


def _add_watch(watch: int, path: str, mask: int) -> int:
    number: int = _libc.inotify_add_watch(watch, path.encode(), mask)
    if number < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return number


def _events(watch: int) -> Iterator[tuple[int, bytes]]:
    """The watched files that have changed, and the names of what is new in a watched folder."""
    with contextlib.suppress(BlockingIOError):
        events = os.read(watch, _EVENTS_BYTES)
        at = 0
        while at + _EVENT.size <= len(events):
            number, _, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            yield number, events[at - length : at].partition(b"\0")[0]


def _open(process: HeldProcess, path: str) -> int:
    """A descriptor of a process's file, opened with its rights; it has to be of its user.

    Raises:
        OSError: it cannot be opened so, or is another's: where it sees what it has mounted, anything may be there.
    """
    fd = call_as(process.identity, lambda: open_below(process.root, path), discard=os.close)
    status = os.fstat(fd)
    if status.st_uid == process.identity.uid and status.st_nlink <= 1:
        return fd
    os.close(fd)
    raise PermissionError(errno.EPERM, "it belongs to another user, or has another name, too")


def _has_number_of_another(pid: int, log: MapLog) -> bool:
    """Whether the process of that number is not the one that wrote the map."""
    try:
        with HeldProcess(pid) as process:
            return process.started_ticks != log.started_ticks
    except OSError:
        return False
