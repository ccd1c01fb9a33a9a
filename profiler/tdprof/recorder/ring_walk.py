"""The ring-buffer rung's walk: user stacks that perf copied become call chains while the rings are drained.

So the capture does not grow with what is copied. Records whose process or table is not known yet stay as they are, up
to a bound, and are walked when the recording ends. Loads no NumPy: the recorder stays small.
"""

import ctypes
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tdprof.linux.elf import MACHINES
from tdprof.linux.perf_abi import WALK_REGISTERS
from tdprof.model.stack_ends import StackEnd
from tdprof.native.library import load_native
from tdprof.native.ring_walk import MOST_REGISTERS, RingSpace, RingWalk
from tdprof.native.ring_walk import Mapping as RingMapping
from tdprof.recorder.bpf.unwind_arrays import MOST_COPIES, Extent, copies_after_nothing_new
from tdprof.recorder.call_graph import MOST_STACK_BYTES, CallGraph
from tdprof.recorder.targets import Rate

_NO_INFORMATION = 0xFFFFFFFF  # the number of no table
_TABLE, _JIT, _NO_TABLE = 0, 1, 2  # enum unwind_mapping_kind of profiler/native/unwind_api.h
_KIND = {StackEnd.JIT: _JIT, StackEnd.NO_TABLE: _NO_TABLE}
_MOST_KEPT_BYTES = 256 << 20  # of records that stay as they are; they are gone once the recording is finished
_MOST_QUESTIONS = 1024
_MOST_EVENTS = 4  # a Topdown recording has ninety; copies of their stacks would leave no room in the rings
# A copy that a ring has room for some dozens of, whatever the rate.
_BYTES_AT_1000_HZ, _LEAST_BYTES, _BYTES_OF_PERIODS = 16 << 10, 2 << 10, 4 << 10


def copied_bytes(rate: Rate, events: int) -> int:
    """How much of each stack is copied, so that the recorder has time to drain the rings."""
    if not rate.frequency_hz:
        return _BYTES_OF_PERIODS
    wanted = _BYTES_AT_1000_HZ * 1000 // (rate.frequency_hz * events)
    return min(max(wanted // 1024 * 1024, _LEAST_BYTES), MOST_STACK_BYTES)


def can_walk(call_graph: CallGraph, events: int, rate: Rate) -> bool:
    """Whether stacks of this machine can be walked, and are wanted to be.

    Of itself not for each of many events, nor at a fixed period: samples may come faster than copies can be drained,
    and a sample that is lost is worse than one whose callers are missing.
    """
    is_bounded = events <= _MOST_EVENTS and rate.frequency_hz > 0
    wanted = call_graph is CallGraph.DWARF or (call_graph is CallGraph.AUTO and is_bounded)
    return wanted and platform.machine() in MACHINES and load_native() is not None


class RingWalker:
    """Walks what is drained; `unwinding.Walker` says how it is told of tables and mappings."""

    def __init__(self) -> None:
        library = load_native()
        assert library is not None, "can_walk() was not asked"
        self._library = library
        machine = platform.machine()
        registers = sorted(WALK_REGISTERS[machine])
        places = [registers.index(number) for number in WALK_REGISTERS[machine]]
        self._asked = (ctypes.c_uint32 * _MOST_QUESTIONS)()
        self._walk = RingWalk(
            asked=ctypes.addressof(self._asked),
            asked_capacity=_MOST_QUESTIONS,
            copied_bytes_left=_MOST_KEPT_BYTES,
            register_count=len(registers),
            places=(ctypes.c_int32 * MOST_REGISTERS)(*places, *[-1] * (MOST_REGISTERS - len(places))),
            machine=MACHINES[machine],
        )
        self._tables: list[bytes] = []
        self._mappings: dict[int, ctypes.Array[RingMapping]] = {}
        self._spaces: ctypes.Array[RingSpace] = (RingSpace * 0)()
        self._index: dict[int, int] = {}

    @property
    def has_questions(self) -> bool:
        """Whether something was met of which too little is known."""
        return self._walk.asked_count > 0

    def walk(self, rings: Mapping[int, bytes], newer: Iterable[bytes]) -> Iterator[tuple[int, memoryview]]:
        """What becomes of the records that were taken from rings, by CPU.

        Args:
            rings: whole records of each CPU.
            newer: what has come since, which may say that a process has executed something else.
        """
        walk = ctypes.byref(self._walk)
        for data in (*rings.values(), *newer):
            self._library.tdprof_ring_forget(walk, data, len(data))
        for cpu, data in rings.items():
            out = ctypes.create_string_buffer(len(data))
            used = self._library.tdprof_ring_walk(walk, data, len(data), out)
            yield cpu, memoryview(out)[:used]

    def place(self, table: bytes) -> int:
        """Add a table; its place is its number."""
        self._tables.append(table)
        self._pointers = (ctypes.c_char_p * len(self._tables))(*self._tables)
        self._walk.tables, self._walk.table_count = ctypes.addressof(self._pointers), len(self._tables)
        return len(self._tables) - 1

    def forget_tables(self) -> bool:
        """All of them, and what is known of processes."""
        self.release(list(self._index))
        self._tables.clear()
        self._walk.table_count = 0
        return True

    def extent(self, _table: bytes, place: int, start: int, end: int, file_offset: int) -> Extent:
        """The whole mapping."""
        return Extent(start, end - start, place, 0, file_offset)

    def look(self, pid: int) -> bool:
        """Never: samples have times of their own, and are walked by what was mapped then."""
        del pid
        return False

    def publish(self, pid: int, extents: Sequence[Extent]) -> bool:
        """Say what a process has mapped from now on."""
        mappings = (RingMapping * len(extents))()
        for mapping, (start, size, place, otherwise, offset) in zip(mappings, extents, strict=True):
            kind = _KIND.get(StackEnd(otherwise), _TABLE) if otherwise else _TABLE
            table = _NO_INFORMATION if otherwise else place
            mapping.__init__(start, start + size, offset, table, kind)
        if pid not in self._index:
            self._resize({*self._index, pid})
        space = self._spaces[self._index[pid]]
        self._mappings[pid] = mappings
        space.mappings, space.mapping_count = ctypes.addressof(mappings), len(mappings)
        space.copies_left, space.is_asked = MOST_COPIES, 0
        return True

    def confirm(self, pid: int) -> None:
        """Nothing: records tell when what was published holds no more."""

    def answer(self, pid: int, *, is_waiting: bool) -> None:
        """Let it be asked for again; ``is_waiting``: a table may be on its way."""
        if pid in self._index:
            space = self._spaces[self._index[pid]]
            space.copies_left, space.is_asked = copies_after_nothing_new(is_waiting=is_waiting), 0

    def has(self, pid: int) -> bool:
        """Whether mappings of the process are known."""
        return pid in self._index and self._spaces[self._index[pid]].mapping_count > 0

    def release(self, pids: Collection[int]) -> None:
        """Processes have ended."""
        if not self._index.keys().isdisjoint(pids):
            self._resize(self._index.keys() - set(pids))
            for pid in pids:
                self._mappings.pop(pid, None)

    def take_questions(self) -> set[int]:
        """Processes of which more should be known."""
        found = set(self._asked[: self._walk.asked_count])
        self._walk.asked_count = 0
        return found

    def notes(self) -> Iterator[str]:
        """What the user should know in the end."""
        if self._walk.not_copied:
            yield (
                f"{self._walk.not_copied:,} stacks were taken before the tables of their programs were there, and had "
                "no room to be kept: most end as no-table"
            )

    def _resize(self, pids: Iterable[int]) -> None:
        """Make room for these processes, keeping what is known of them."""
        before, index = self._spaces, self._index
        self._index = {pid: at for at, pid in enumerate(sorted(pids))}
        self._spaces = (RingSpace * len(self._index))()
        for pid, at in self._index.items():
            self._spaces[at] = before[index[pid]] if pid in index else RingSpace(pid=pid)
        self._walk.spaces, self._walk.space_count = ctypes.addressof(self._spaces), len(self._spaces)
