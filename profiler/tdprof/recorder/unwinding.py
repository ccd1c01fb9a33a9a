"""Keeps the BPF programs able to unwind: tables of what runs, and each process's mappings as they come to be needed.

The programs ask for a process's mappings when they meet one they do not know, and again when a stack leads to where
nothing is known to be mapped. So what is never sampled costs nothing, however many processes come and go.
"""

import contextlib
import functools
import itertools
import os
import select
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from tdprof.linux.readable import is_readable
from tdprof.model.stack_ends import StackEnd
from tdprof.recorder.bpf.sampler import BpfSampler
from tdprof.recorder.bpf.unwind_arrays import TABLE_BEGINNING_BYTES, Extent, are_replaced
from tdprof.recorder.code_heaps import CodeHeaps
from tdprof.recorder.executable_maps import VDSO, ExecutableLine, FileKey, key_of, reach, read_executable_lines
from tdprof.recorder.host import own_vdso
from tdprof.recorder.hotspot import is_jvm
from tdprof.recorder.patience import Patience
from tdprof.recorder.process_memory import ProcessMemory
from tdprof.recorder.python_processes import PythonMapping, PythonProcesses, is_switcher, may_hold_python
from tdprof.recorder.python_trampolines import hold_trampolines
from tdprof.recorder.replaced_mappings import Place
from tdprof.recorder.table_batch import FirstTables, TableBatch, note_damage
from tdprof.text import plural
from tdprof.unwind.tables import (
    TableCache,
    TableDamage,
    damage_notes,
    has_v8,
    identity_of,
    read_identity,
)

_PROC = Path("/proc")
# A process that goes on asking has nothing new to be found so often.
_ASK_AGAIN_S = 0.1
_ENDED_S = 2.0  # between two looks for processes that have ended
# The start waits so long for tables.
_PREPARATION_S = 2.0
_BATCH_FILES = 64
_MFD_NOEXEC_SEAL = 8  # from Linux 6.3 on, which may refuse files in memory without it; Python before 3.13 has no name
_MOST_WANTED = 512  # each holds a descriptor, and may hold its file's memory


class _Placed(NamedTuple):
    """A file's table where walkers find it."""

    table: bytes  # its beginning, which says what it covers
    place: int
    size: int  # bytes of all of it
    has_v8: bool  # code that it makes is in the processes that have mapped the file


class Walker(Protocol):
    """What walks user stacks, and is told how."""

    @property
    def has_trampolines(self) -> bool:
        """Whether it walks through `Extent.of_trampolines`."""

    def place(self, table: bytes) -> int | None:
        """Add a checked table; returns its place, None if there can be no room."""

    def forget_tables(self) -> bool:
        """Have room for tables again, as before the first, and know no process; False: all stays as it is."""

    def extent(self, table: bytes, place: int, start: int, end: int, file_offset: int) -> Extent | None:
        """The part of a mapping that a table, of which the beginning is given, covers."""

    def look(self, pid: int) -> bool:
        """Before a process's mappings are read: whether it has taken memory where it was said to have mapped a file."""

    def publish(self, pid: int, extents: Sequence[Extent]) -> bool:
        """Say what a process has mapped (sorted, without overlap), once confirmed; False if there is no room for it."""

    def confirm(self, pid: int) -> None:
        """What was published was found mapped once more, after the last look."""

    def answer(self, pid: int, *, is_waiting: bool) -> None:
        """Let it ask again about a process of which nothing new was found, though a table may be on its way."""

    def has(self, pid: int) -> bool:
        """Whether it knows mappings of a process; it forgets them at exec."""

    def release(self, pids: Collection[int]) -> None:
        """Processes have ended."""

    def take_questions(self) -> set[int]:
        """Processes that it has asked for."""


class EndInterval(Protocol):
    """What `Unwinding` calls where addresses of a process have come to mean something else."""

    def __call__(self, pid: int, *, is_late: bool) -> None:
        """``is_late``: for some time its stacks were walked by what had been mapped before."""


def _end_nothing(pid: int, *, is_late: bool) -> None:
    del pid, is_late


_Extents = defaultdict[int, list[Extent]]  # by process


def _open_file_of_ours() -> int:
    """An empty file without a name; in memory, unless that is refused (``vm.memfd_noexec``, seccomp)."""
    for flags in (_MFD_NOEXEC_SEAL, 0):
        with contextlib.suppress(OSError):
            return os.memfd_create("tdprof", os.MFD_CLOEXEC | flags)
    import tempfile  # slow to load

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Unwinding:
    """The recorder's part of unwinding. Use as a context manager.

    Args:
        walker: what walks stacks: the BPF programs, or the recorder itself.
        questions_fd: readable when it has asked; None: who calls it sees to that.
        cache: where tables of files are kept.
        python: told of processes that may run CPython.
        heaps: told of those that run Java.

    Attributes:
        without_room: tables and processes for which the walker had no room.
        end_interval: called before that is used which was published of a process in which addresses have come to mean
            something else: what is sampled afterwards is of what was mapped when this is called. Before that, where the
            walker did not notice at once.
    """

    def __init__(
        self,
        walker: Walker,
        questions_fd: int | None,
        cache: TableCache,
        python: PythonProcesses | None = None,
        heaps: CodeHeaps | None = None,
    ) -> None:
        self.without_room = 0
        self.end_interval: EndInterval = _end_nothing
        self._changing: set[int] = set()  # processes of which it was called
        self._published: set[int] = set()  # processes of which something new was said since a file was replaced
        self._python = python
        self._heaps = heaps
        self._ready = select.epoll()
        if heaps:
            self._ready.register(heaps.fileno(), select.EPOLLIN)
        if questions_fd is not None:
            self._ready.register(questions_fd, select.EPOLLIN)
        self._walker = walker
        self._cache = cache
        self._files: dict[FileKey, _Placed | StackEnd] = {}
        self._placed: dict[bytes, _Placed] = {}  # by the file's identity
        self._damaged: dict[str, TableDamage] = {}  # by path
        self._memory: set[FileKey] = set()  # where no file is found, that is code made at run time
        self._is_full = False  # there was no room for a table
        self._known: dict[int, list[Extent]] = {}
        # What was, until the last look at what was replaced, and since.
        self._before, self._since = _Extents(list), _Extents(list)
        self._mapped_by: dict[int, tuple[FileKey, ...]] = {}  # the files of these processes
        self._unanswered: dict[int, float] = {}
        self._ended: set[int] = set()  # of the known, at the last look for them
        self._look_for_ended_s = time.monotonic() + _ENDED_S
        self._wanted: dict[FileKey, int] = {}  # descriptors of files that no worker has yet
        self._waiting: dict[FileKey, set[int]] = {}  # processes that have mapped a file whose table is not there
        self._batch: TableBatch | None = None
        self._patience = Patience()
        self._process_memory = ProcessMemory()  # whose reader starts when it is first asked for
        self._silent: set[int] = set()  # have not answered, and nothing was published of them since
        self._want_vdso()

    @property
    def fd(self) -> int:
        """Readable when the programs have asked, or tables have come."""
        return self._ready.fileno()

    def prepare_files(self, first: FirstTables) -> None:
        """Place the tables of files that will be mapped soon."""
        if self._python and any(may_hold_python(str(path)) for path in first.paths):
            self._python.prepare()
        for path, identity in first.kept.items():
            with contextlib.suppress(OSError):
                self._want(key_of(path), os.open(path, os.O_PATH | os.O_CLOEXEC), identity)
        if first.batch and not self._batch:
            self._use(first.batch)
        self._start_batch()
        if self._heaps and any(is_jvm(path) for path in first.paths):
            self._heaps.prepare()
        self._await_tables()

    def prepare_processes(self, pids: Sequence[int]) -> None:
        """Publish what processes have mapped before events count: once, when all of it has tables."""
        for pid in pids:
            lines = self._mapped(pid)
            self._look_for_heaps(pid, lines)
            self._look_for_python(pid, [line for line in lines if self._is_new(pid, line)])
        self._await_tables()
        if self._heaps:
            self._heaps.await_tried(_PREPARATION_S)
        self.add_processes(pids)
        if self._heaps:
            self._heaps.name_interpreted()

    def add_processes(self, pids: Iterable[int]) -> None:
        """Publish what processes have mapped now; those that end meanwhile are left out."""
        for pid in pids:
            self._refresh(pid)
        self._start_batch()

    def see_replaced(self, replaced: Mapping[Place, int]) -> None:
        """The same of processes in which a file was mapped where another was, and how often since the last look."""
        walked = self.led_through(replaced)
        for pid in {place.pid for place in replaced}:
            self._refresh(pid, replaced=walked.get(pid, 0))
        self._before, self._since = self._since, _Extents(list)
        self._start_batch()

    def led_through(self, replaced: Mapping[Place, int]) -> dict[int, int]:
        """Processes of which stacks may have been walked through such a place, and how often it changed.

        Of what is not told of the walker goes nowhere, whatever is mapped there.
        """
        found: dict[int, int] = {}
        for (pid, start, end), times in replaced.items():
            told = itertools.chain(self._known.get(pid, ()), self._since.get(pid, ()), self._before.get(pid, ()))
            if any(extent.start < end and start < extent.start + extent.size for extent in told):
                found[pid] = max(found.get(pid, 0), times)
        return found

    def answer(self) -> None:
        """Look at what the walker has asked for, and at what tables have come."""
        for pid in self._walker.take_questions():
            if not self._refresh(pid):
                self._unanswered[pid] = time.monotonic() + _ASK_AGAIN_S
        told: set[int] = set()
        while self._batch and is_readable(self._batch.worker.fileno()):
            told |= self._take_table()
        if self._heaps:
            told |= self._heaps.take_found()
        for pid in told:
            self._refresh(pid)
        self._start_batch()
        if self._heaps:
            self._heaps.name_interpreted()

    def tick(self) -> None:
        """From time to time: let those ask again for whom there was nothing new, and give up files that hold us up.

        And forget who has ended, so that the kernel has room for what others map.
        """
        now = time.monotonic()
        if now >= self._look_for_ended_s:
            self._look_for_ended_s = now + _ENDED_S
            self._forget_ended()
        for pid in [pid for pid, when in self._unanswered.items() if when <= now]:
            del self._unanswered[pid]
            if not (_PROC / str(pid)).exists():
                self._forget([pid])
            elif not self._refresh(pid):  # what it mapped meanwhile, or executed, is not what the walker was told
                self._walker.answer(pid, is_waiting=any(pid in pids for pids in self._waiting.values()))
        if self._batch and self._batch.stuck_at <= now:
            self._end_batch()
            self._start_batch()

    def forget_all_but(self, running: Set[int]) -> None:
        """Let go of what is known of other processes than these, which have ended, and of files that were theirs."""
        self._forget((self._known.keys() | self._mapped_by.keys() | self._changing | self._published) - running)
        self._silent &= running
        if self._python:
            self._python.forget_all_but(running)
        self._forget_files()

    def _forget_files(self) -> None:
        """Those that nobody has mapped; where their tables take most of the room that is there, the tables, too."""
        unknown = self._wanted.keys() | (self._batch.unknown.keys() if self._batch else set())
        kept = unknown.union((VDSO,), *self._mapped_by.values())
        self._files = {key: file for key, file in self._files.items() if key in kept}
        self._memory &= self._files.keys()
        self._waiting = {key: pids for key, pids in self._waiting.items() if key in kept}
        if not self._is_full:
            return
        used = {file.place: file.size for file in self._files.values() if isinstance(file, _Placed)}
        # Each time all tables in use are read and placed again, so they should be far from filling it anew.
        if 2 * sum(used.values()) < sum(file.size for file in self._placed.values()) and self._walker.forget_tables():
            self._is_full = False
            self._placed.clear()
            self._files = {key: self._files[key] for key in unknown}
            self._memory &= unknown
            self._known.clear()
            self._mapped_by.clear()
            if VDSO not in unknown:
                self._want_vdso()
            self._start_batch()

    def _await_tables(self) -> None:
        """Before any process waits for tables, but not for ever: what comes later comes while events are sampled."""
        deadline = time.monotonic() + _PREPARATION_S
        self._start_batch()
        while self._batch and (left := deadline - time.monotonic()) > 0:
            if is_readable(self._batch.worker.fileno(), left):
                self._take_table()
            self._start_batch()

    def close(self) -> None:
        """End the worker and close what is open."""
        if self._python:
            self._python.close()
        if self._heaps:
            self._heaps.close()
        if self._batch:
            self._batch.close()
        for fd in self._wanted.values():
            os.close(fd)
        self._ready.close()
        self._process_memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _want_vdso(self) -> None:
        """This process's, as all have the same; at once, since signal handlers' callers are behind it."""
        fd = _open_file_of_ours()
        os.fchmod(fd, 0o600)  # what nobody else can write is known by its build-id
        os.write(fd, own_vdso())
        self._want(VDSO, fd, read_identity(Path(f"/proc/self/fd/{fd}")))

    def _want(self, key: FileKey, fd: int, identity: bytes | None = None) -> None:
        """Have the table of a file found out, whose ``O_PATH`` descriptor this is.

        Where it is in the cache by its identity no worker need be started, which takes longer than to read it.
        """
        table = self._cache.load(identity) if identity else None
        if table is None:
            self._files[key] = StackEnd.NO_TABLE
            self._wanted[key] = fd
            return
        note_damage(self._damaged, fd, table)
        os.close(fd)
        self._files[key] = self._put(table)

    def _start_batch(self) -> None:
        if self._batch or not self._wanted:
            return
        files = dict(itertools.islice(self._wanted.items(), _BATCH_FILES))
        try:
            batch = TableBatch(files, self._cache)
        except OSError:  # no descriptor, process or memory for it now
            return
        for key in files:
            del self._wanted[key]
        self._use(batch)

    def _use(self, batch: TableBatch) -> None:
        """Take the tables of files that a worker is at; there is none yet."""
        self._batch = batch
        batch.damaged = self._damaged
        self._files |= dict.fromkeys(batch.unknown, StackEnd.NO_TABLE)
        self._ready.register(batch.worker.fileno(), select.EPOLLIN)

    def _take_table(self) -> set[int]:
        """Place the next table of the batch; returns the processes that have waited for it."""
        assert self._batch
        result = self._batch.take()
        if result is None:
            self._end_batch()
            return set()
        key, table = result
        self._files[key] = self._put(table) if table else self._without_table(key)
        return self._waiting.pop(key, set())

    def _end_batch(self) -> None:
        """The worker is done, has died, or does not get on: then the file at which it stands has no table."""
        assert self._batch
        self._ready.unregister(self._batch.worker.fileno())
        for number, (key, fd) in enumerate(self._batch.unknown.items()):
            if number:
                with contextlib.suppress(OSError):
                    self._wanted[key] = os.dup(fd)
                    continue
            self._files[key] = self._without_table(key)
            self._waiting.pop(key, None)
        self._batch.close()
        self._batch = None

    def notes(self) -> Iterator[str]:
        """What the user should know in the end."""
        if self._python:
            yield from self._python.notes()
        if self._heaps:
            yield from self._heaps.notes()
        yield from damage_notes(self._damaged)
        if self._silent:
            silent = plural(len(self._silent), "process", "es")
            yield f"what {silent} mapped could not be read in time: its stacks end as no-table"
        if self.without_room:
            yield (
                f"{self.without_room:,} unwind tables or lists of mappings had no room in the kernel: "
                "stacks that need them end as no-table"
            )

    def _forget_ended(self) -> None:
        """Those that had ended before the last look, too: their last samples have been read since."""
        ended = {pid for pid in self._known.keys() | self._mapped_by.keys() if not (_PROC / str(pid)).exists()}
        self._forget(ended & self._ended)
        self._ended = ended - self._ended

    def _forget(self, pids: Collection[int]) -> None:
        for pid in pids:
            self._known.pop(pid, None)
            self._mapped_by.pop(pid, None)
            self._changing.discard(pid)
            self._published.discard(pid)
            self._patience.forget(pid)
        if self._heaps:
            self._heaps.forget(pids)
        self._walker.release(pids)

    def _refresh(self, pid: int, *, replaced: int | None = None) -> bool:
        """Whether there was something new to publish; ``replaced``: so records told of it."""
        has_noticed = self._walker.look(pid)
        if has_noticed or replaced is not None:
            self._changing.add(pid)
        lines = self._mapped(pid)
        self._look_for_heaps(pid, lines)
        extents = self._extents(pid, lines)
        if lines:
            self._mapped_by[pid] = tuple({line.key for line in lines if line.key in self._files})
        self._look_for_python(pid, lines)
        # Another file was there, unless this tells of what was published meanwhile: the next is of something else.
        is_unseen = (replaced or 0) > (pid in self._published) and pid in self._known
        if replaced is not None:
            self._published.discard(pid)
        # The programs forget a process at exec; then even what is known is new to them.
        if not extents or (extents == self._known.get(pid) and self._walker.has(pid)):
            if is_unseen:  # it is gone before anybody looked, or its process is
                self.end_interval(pid, is_late=True)
            elif replaced == 0:  # its stacks were copied, and lead through what was there then
                self.end_interval(pid, is_late=False)
            return False
        if self._python:
            self._python.see_switchers(pid, [(line.start, line.end) for line in lines if is_switcher(line.path)])
        # It still walks by what was there, or did until its process ended, whose mappings can be read a little longer.
        is_late = self._walker.has(pid) and are_replaced(self._known.get(pid, []), extents)
        is_late = is_late or (is_unseen and not has_noticed)
        if not self._walker.publish(pid, extents):
            self.without_room += 1
            return False
        if is_late:
            self._changing.add(pid)
            self.end_interval(pid, is_late=True)
        self._since[pid] += self._known.get(pid, [])
        self._known[pid] = extents
        if replaced is None:
            self._published.add(pid)
        self._silent.discard(pid)
        # A change while it was read and published nobody has seen; from now on the walker does.
        self._walker.look(pid)
        if self._mapped(pid) == lines:
            if pid in self._changing:
                self.end_interval(pid, is_late=False)
            self._walker.confirm(pid)
        return True

    def _mapped(self, pid: int) -> list[ExecutableLine]:
        """The code that a process has mapped; none where it has ended, or its memory lets nobody know."""
        try:
            return self._patience.ask(pid, lambda: read_executable_lines(pid))
        except TimeoutError:
            self._silent.add(pid)
        return []

    def _extents(self, pid: int, lines: Iterable[ExecutableLine]) -> list[Extent]:
        for line in lines:
            self._is_new(pid, line)
            if self._files.get(line.key) is StackEnd.NO_TABLE:
                self._waiting.setdefault(line.key, set()).add(pid)
        extents = [self._extent(line) for line in lines]
        if any(file.has_v8 for line in lines if isinstance(file := self._files.get(line.key), _Placed)):
            extents = [extent.of_v8() if extent.otherwise == StackEnd.JIT else extent for extent in extents]
        if self._walker.has_trampolines and any(line.is_file and may_hold_python(line.path) for line in lines):
            extents = [self._with_trampolines(pid, extent) for extent in extents]
        return self._heaps.put_in(pid, extents) if self._heaps else extents

    def _is_new(self, pid: int, line: ExecutableLine) -> bool:
        """Whether a file is met for the first time; its table is wanted from then on."""
        if not line.is_file or line.key in self._files or len(self._wanted) >= _MOST_WANTED:
            return False
        if line.may_be_memory:
            self._memory.add(line.key)
            self._files[line.key] = StackEnd.JIT
        # The file itself, which stays reachable when the process ends, and is not opened: that could wait.
        with contextlib.suppress(OSError):
            self._want(line.key, self._patience.ask(pid, lambda: reach(pid, line), os.close))
        return True

    def _without_table(self, key: FileKey) -> StackEnd:
        return StackEnd.JIT if key in self._memory else StackEnd.NO_UNWIND_INFO

    def _look_for_python(self, pid: int, lines: Iterable[ExecutableLine]) -> None:
        """Have those files of a process looked into that may hold CPython."""
        if not self._python:
            return
        files = [line for line in lines if line.is_file and self._python.may_hold(line.key)]
        if files and self._python.wants(pid):
            with contextlib.suppress(TimeoutError):
                self._python.look(pid, self._patience.ask(pid, lambda: list(_of_python(pid, files)), _close_files))

    def _look_for_heaps(self, pid: int, lines: Sequence[ExecutableLine]) -> None:
        """Have the JVM's library of a process looked into, if it has mapped one."""
        if self._heaps and lines and (line := self._heaps.wanted(pid, lines)):
            with contextlib.suppress(OSError):
                self._heaps.look(pid, line, self._patience.ask(pid, lambda: reach(pid, line), os.close))

    def _extent(self, line: ExecutableLine) -> Extent:
        placed: _Placed | StackEnd = StackEnd.JIT
        if line.is_file or line.key == VDSO:
            placed = self._files.get(line.key, StackEnd.NO_TABLE)
        if isinstance(placed, _Placed):
            if covered := self._walker.extent(placed.table, placed.place, line.start, line.end, line.file_offset):
                return covered
            placed = StackEnd.NO_UNWIND_INFO
        return Extent(line.start, line.end - line.start, 0, placed)

    def _with_trampolines(self, pid: int, extent: Extent) -> Extent:
        """Generated code, where it is CPython's trampolines for perf, as such."""
        if extent.otherwise != StackEnd.JIT:
            return extent
        read = functools.partial(self._process_memory.read, pid)
        with contextlib.suppress(OSError):
            if hold_trampolines(read, extent.start, extent.size):
                return extent.of_trampolines()
        return extent

    def _put(self, table: bytes) -> _Placed | StackEnd:
        """Place a table, one of several copies of a file once."""
        identity = identity_of(table)
        if identity not in self._placed:
            first = self._walker.place(table)
            if first is None:
                self.without_room += 1
                self._is_full = True
                return StackEnd.NO_TABLE
            self._placed[identity] = _Placed(table[:TABLE_BEGINNING_BYTES], first, len(table), has_v8(table))
        return self._placed[identity]


def start_unwinding(sampler: BpfSampler, *, has_interpreted: bool) -> Unwinding | None:
    """None where the programs do not unwind by tables; ``has_interpreted``: interpreters' frames, too."""
    if sampler.arrays is None:
        return None
    python = PythonProcesses(sampler.python) if sampler.python and has_interpreted else None
    heaps = CodeHeaps(sampler.code_heaps_fd, sampler.walk_java, sampler.name_java) if has_interpreted else None
    return Unwinding(sampler.arrays, sampler.questions_fd, TableCache(), python, heaps)


def _close_files(found: Iterable[tuple[PythonMapping, int | None]]) -> None:
    for _, fd in found:
        if fd is not None:
            os.close(fd)


def _of_python(pid: int, files: Iterable[ExecutableLine]) -> Iterator[tuple[PythonMapping, int | None]]:
    """Mappings of files, those that likely hold CPython first, each with what `PythonProcesses.look` wants of it."""
    for line in sorted(files, key=lambda line: not may_hold_python(line.path)):
        mapping = PythonMapping(line.start, line.file_offset, line.path, line.key)
        try:
            yield mapping, reach(pid, line)
        except PermissionError:
            yield mapping, None
        except OSError:
            continue
