"""Finds where JVMs keep compiled code, so that the BPF programs find its callers without frame pointers.

In a thread of its own: the files are others' and may lie in a file system that does not answer.
"""

import bisect
import contextlib
import ctypes
import errno
import functools
import os
import queue
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import NamedTuple

from tdprof.linux.elf import ElfError
from tdprof.model.stack_ends import StackEnd
from tdprof.recorder.bpf.maps import BPF_MAP_UPDATE_ELEM, map_element
from tdprof.recorder.bpf.unwind_arrays import Extent
from tdprof.recorder.executable_maps import ExecutableLine
from tdprof.recorder.hotspot import (
    CodeHeap,
    HotSpot,
    HotSpotLibrary,
    NotKnownError,
    NotThereYetError,
    find_library,
    open_library,
)
from tdprof.recorder.process_memory import ProcessMemory
from tdprof.text import plural
from tdprof.values import dataclass

_MOST_HEAPS = 256  # MOST_CODE_HEAPS
_MOST_WAITING = 256
# A JVM needs hundredths of a second to be so far, on a busy machine seconds: it is tried again after a tenth of the
# time that it has taken, within these bounds.
_AGAIN_S, _LATER_S, _MOST_TRIES = 0.005, 0.05, 225  # 10 s
# Before its library is linked it describes nothing, or is in no memory: so often that is no answer.
_TRIES_UNLINKED = 45  # 1 s
_NOT_NOW = (errno.EFAULT, errno.EIO, errno.ETIMEDOUT)
# A program that has read where a process's heaps are may still read there for that long.
_GRACE_S = 0.5


class _Library(NamedTuple):
    """A JVM's library as a process has mapped it."""

    pid: int
    start: int
    file_offset: int


@dataclass(slots=True)
class _Question:
    """A library that is to be looked into."""

    library: _Library
    file: HotSpotLibrary
    shift: int  # from the file's ELF addresses to the process's
    since_s: float
    tries: int = 0
    jvm: HotSpot | None = None  # once it has described itself, which does not change


@dataclass(slots=True)
class _Known:
    library: _Library
    is_tried: bool = False
    heaps: list[tuple[CodeHeap, int]] = field(default_factory=list)  # with the number that the programs know each by


class CodeHeaps:
    """The code heaps of processes. Close it; it owns its thread and a descriptor.

    Args:
        map_fd: the programs' map of them.
        walk: has the programs walk by heaps; called before the first process's can be taken, by who calls `look` or
            `prepare`.
        name: has them name what is interpreted; called by who calls `prepare` or `name_interpreted`.
    """

    def __init__(self, map_fd: int, walk: Callable[[], object], name: Callable[[], object]) -> None:
        self._map = map_fd
        self._to_load = deque((walk, name))  # each takes tenths of a second
        self._waiting: queue.Queue[tuple[_Library, int] | None] = queue.Queue(_MOST_WAITING)
        self._known: dict[int, _Known] = {}
        self._free = deque((0.0, number) for number in range(_MOST_HEAPS))  # since when, the first that came free first
        self._without_room = 0
        self._found: set[int] = set()
        self._lock = threading.Condition()  # of all these; told when a library was tried
        self._memory = ProcessMemory()
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None

    def fileno(self) -> int:
        """Readable when there is something for `take_found`."""
        return self._event

    def prepare(self) -> None:
        """A JVM is about to start: have the kernel's side ready."""
        self._load(2)

    def name_interpreted(self) -> None:
        """Have what is interpreted named where heaps were found: once they are told of, since stacks are whole then."""
        with self._lock:
            is_found = any(known.heaps for known in self._known.values())
        if is_found:
            self._load(2)

    def _load(self, programs: int) -> None:
        """Have the first so many programs in the kernel."""
        while len(self._to_load) > 2 - programs:
            self._to_load.popleft()()

    def wanted(self, pid: int, lines: Iterable[ExecutableLine]) -> ExecutableLine | None:
        """The JVM's library among what a process has mapped, unless it is known; forgets what is there no more."""
        line = find_library(lines)
        with self._lock:
            known = self._known.get(pid)
            if line and known and known.library == _Library(pid, line.start, line.file_offset):
                return None
        self.forget([pid])
        return line

    def look(self, pid: int, line: ExecutableLine, fd: int) -> None:
        """Have a process's library looked into, by this ``O_PATH`` descriptor, which is this object's from here on."""
        library = _Library(pid, line.start, line.file_offset)
        with self._lock:
            self._known[pid] = _Known(library)
        try:
            self._waiting.put_nowait((library, fd))
        except queue.Full:
            os.close(fd)
            self._note_tried(pid)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._load(1)  # beside that

    def await_tried(self, patience_s: float) -> None:
        """Wait until what was to be looked into was once, or so long."""
        with self._lock:
            self._lock.wait_for(lambda: all(known.is_tried for known in self._known.values()), patience_s)

    def take_found(self) -> set[int]:
        """Processes of which heaps were found since the last time."""
        with self._lock:
            found, self._found = self._found, set()
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._event)
        return found

    def put_in(self, pid: int, extents: list[Extent]) -> list[Extent]:
        """A process's mappings with its heaps, as far as they are reserved, instead of memory without a file there."""
        with self._lock:
            known = self._known.get(pid)
            heaps = list(known.heaps) if known else []
        for heap, number in heaps:
            extents = _with_heap(extents, heap, number)
        return extents

    def forget(self, pids: Iterable[int]) -> None:
        """Processes have ended, or execute something else."""
        with self._lock:
            for pid in pids:
                known = self._known.pop(pid, None)
                self._free += [(time.monotonic(), number) for _, number in known.heaps] if known else []

    def notes(self) -> list[str]:
        """What the user should know in the end."""
        if not self._without_room:
            return []
        return [
            f"{plural(self._without_room, 'JVM', 's')} had no room in the kernel: Java's callers are missing in them"
        ]

    def close(self) -> None:
        """End the thread once it has done what it is at; nobody waits for that."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        with self._lock:
            os.close(self._event)
            self._event = -1

    def _run(self) -> None:
        again: list[tuple[float, _Question]] = []  # when, ascending: one that is not ready holds up no other
        with contextlib.closing(self._memory):
            while True:
                question: _Question | None
                try:
                    item = self._waiting.get(timeout=max(0.0, again[0][0] - time.monotonic()) if again else None)
                except queue.Empty:
                    question = again.pop(0)[1]
                else:
                    if item is None:
                        return
                    question = _opened(*item)
                    if question is None:
                        self._note_tried(item[0].pid)
                        continue
                if self._is_to_be_tried_again(question) and len(again) < _MOST_WAITING:
                    now = time.monotonic()
                    pause = min(max(_AGAIN_S, (now - question.since_s) / 10), _LATER_S)
                    bisect.insort(again, (now + pause, question), key=lambda each: each[0])
                else:
                    self._note_tried(question.library.pid)
                del question  # with all that a JVM says of itself, until the next one comes

    def _is_to_be_tried_again(self, question: _Question) -> bool:
        question.tries += 1
        try:
            self._look_into(question)
        except NotThereYetError:
            return question.tries < _MOST_TRIES
        except NotKnownError:
            return question.tries < _TRIES_UNLINKED
        except OSError as error:
            return error.errno in _NOT_NOW and question.tries < _TRIES_UNLINKED
        except struct.error:  # an address that there is not
            pass
        return False

    def _note_tried(self, pid: int) -> None:
        with self._lock:
            if known := self._known.get(pid):
                known.is_tried = True
            self._lock.notify_all()

    def _look_into(self, question: _Question) -> None:
        library = question.library
        if question.jvm is None:
            read = functools.partial(self._memory.read, library.pid)
            question.jvm = HotSpot(question.file, question.shift, read)
        heaps = question.jvm.heaps()
        with self._lock:
            known = self._known.get(library.pid)
            if known is None or known.library != library or known.heaps or self._event < 0:
                return
            rested = sum(since + _GRACE_S <= time.monotonic() for since, _ in self._free)
            self._without_room += len(heaps) > rested
            for heap in heaps[:rested]:
                _, number = self._free.popleft()
                known.heaps.append((heap, number))
                map_element(BPF_MAP_UPDATE_ELEM, self._map, ctypes.c_uint32(number), heap.layout)
            self._found.add(library.pid)
            os.eventfd_write(self._event, 1)


def _opened(library: _Library, fd: int) -> _Question | None:
    """What is to be asked of a library by this ``O_PATH`` descriptor, which is closed; None: it is no JVM's."""
    try:
        return _Question(library, *open_library(fd, library.start, library.file_offset), time.monotonic())
    except (OSError, ElfError, NotKnownError):
        return None
    finally:
        os.close(fd)


def _with_heap(extents: list[Extent], heap: CodeHeap, number: int) -> list[Extent]:
    """Mappings, sorted and without overlap, with a heap among them; as they were where it would lie over something."""
    parts = []
    for extent in extents:
        end = extent.start + extent.size
        if end <= heap.start or extent.start >= heap.end:
            parts.append(extent)
            continue
        if extent.otherwise != StackEnd.JIT or extent.place:
            return extents
        if extent.start < heap.start:
            parts.append(extent._replace(size=heap.start - extent.start))
        if end > heap.end:
            parts.append(extent._replace(start=heap.end, size=end - heap.end))
    return sorted([*parts, Extent(heap.start, heap.end - heap.start, 1 + number, StackEnd.JIT)])
