"""The ring-buffer rung's walk: user stacks that perf copied become call chains while the rings are drained.

So the capture does not grow with what is copied. Records whose process or table is not known yet stay as they are, up
to a bound, and are walked when the recording ends. Loads no NumPy: the recorder stays small.
"""

import ctypes
import os
from collections.abc import Collection, Iterable, Iterator, Sequence

from tdprof.linux.elf import MACHINES
from tdprof.linux.perf_abi import WALK_REGISTERS
from tdprof.model.stack_ends import StackEnd
from tdprof.native.library import load_native
from tdprof.native.ring_walk import MOST_RECORD_BYTES, MOST_REGISTERS, Part, RingSpace, RingWalk
from tdprof.native.ring_walk import Mapping as RingMapping
from tdprof.recorder.bpf.unwind_arrays import MOST_COPIES, OF_TRAMPOLINES, Extent, copies_after_nothing_new
from tdprof.recorder.call_graph import MOST_STACK_BYTES, CallGraph
from tdprof.recorder.chain_source import ChainSource
from tdprof.recorder.events import Event
from tdprof.recorder.ring import RingPart
from tdprof.recorder.targets import Rate

_NO_INFORMATION = 0xFFFFFFFF  # the number of no table
_TABLE, _JIT, _NO_TABLE, _TRAMPOLINES = range(4)  # enum unwind_mapping_kind of profiler/native/unwind_api.h
_KIND = {StackEnd.JIT: _JIT, StackEnd.NO_TABLE: _NO_TABLE}
_MOST_KEPT_BYTES = 256 << 20  # of records that stay as they are; they are gone once the recording is finished
_MOST_QUESTIONS = 1024
_OUT_BYTES = 4 * MOST_RECORD_BYTES
_MOST_EVENTS = 4  # a Topdown recording has ninety; copies of their stacks would leave no room in the rings
# A ring of the usual size has room for some dozens of the least, and for as long as a reader may be late of the most.
_BYTES_AT_1000_HZ, _LEAST_BYTES, _BYTES_OF_PERIODS = 16 << 10, 2 << 10, 4 << 10
_MOST_HZ_OF_PERIODS = _BYTES_AT_1000_HZ * 1000 // _LEAST_BYTES  # where no less is copied
_LATE_READERS_A_SECOND = 8


def as_frequency(rate: Rate, events: Sequence[Event]) -> Rate:
    """A fixed period as the frequency that it can have at most, where that is known and no more than copies are for."""
    if not rate.period or not all(event.most_hz for event in events):
        return rate
    frequency_hz = max(-(-event.most_hz // rate.period) for event in events)
    return Rate(frequency_hz=frequency_hz) if frequency_hz <= _MOST_HZ_OF_PERIODS else rate


def chain_source(asked_bytes: int, rate: Rate, events: int) -> ChainSource:
    """How much of each stack is copied, so that the recorder has time to drain the rings.

    Args:
        asked_bytes: that much; 0: as much as suits.
        rate: of each event; a fixed period by `as_frequency`.
        events: that count at a time.
    """
    if asked_bytes or not rate.frequency_hz:
        return ChainSource(asked_bytes or _BYTES_OF_PERIODS)
    samples_a_second = rate.frequency_hz * events
    least = max(_BYTES_AT_1000_HZ * 1000 // samples_a_second // 1024 * 1024, _LEAST_BYTES)
    return ChainSource(min(least, MOST_STACK_BYTES), copies_in_ring=-(-samples_a_second // _LATE_READERS_A_SECOND))


def can_walk(call_graph: CallGraph, events: int, rate: Rate) -> bool:
    """Whether stacks of this machine can be walked, and are wanted to be.

    Of itself not for each of many events, nor at a fixed period of which no frequency is known: samples may come faster
    than copies can be drained, and a sample that is lost is worse than one whose callers are missing.
    """
    is_bounded = events <= _MOST_EVENTS and rate.frequency_hz > 0
    wanted = call_graph is CallGraph.DWARF or (call_graph is CallGraph.AUTO and is_bounded)
    return wanted and os.uname().machine in MACHINES and load_native() is not None


def _in_place(part: RingPart) -> Part:
    """The same for C; it holds for as long as the ring is mapped."""
    return Part(ctypes.addressof(ctypes.c_char.from_buffer(part.data)), len(part.data), part.start, part.end)


class RingWalker:
    """Walks what is drained; `unwinding.Walker` says how it is told of tables and mappings."""

    def __init__(self) -> None:
        library = load_native()
        assert library is not None, "can_walk() was not asked"
        self._library = library
        machine = os.uname().machine
        self.has_trampolines = machine == "x86_64"  # elsewhere they keep frame pointers
        registers = sorted(WALK_REGISTERS[machine])
        places = [registers.index(number) for number in WALK_REGISTERS[machine]]
        self._asked = (ctypes.c_uint32 * _MOST_QUESTIONS)()
        self._out = ctypes.create_string_buffer(_OUT_BYTES)
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

    def side_band(self, part: RingPart) -> bytes:
        """The records that are no samples."""
        there, at = _in_place(part), self._library.tdprof_ring_side_band
        out = ctypes.create_string_buffer(at(ctypes.byref(there), None))
        at(ctypes.byref(there), out)
        return out.raw

    def forget(self, side_band: Iterable[bytes]) -> None:
        """Forget processes of which it says that they have executed something else, or ended.

        Args:
            side_band: of each ring all that has not been drained, and what has come since it was known what is drained.
        """
        for data in side_band:
            self._library.tdprof_ring_forget(ctypes.byref(self._walk), data, len(data))

    def walk(self, part: RingPart) -> Iterator[memoryview]:
        """What becomes of the records of a ring, in pieces, each of which holds until the next is asked for."""
        there = _in_place(part)
        while there.start < there.end:
            used = self._library.tdprof_ring_walk(ctypes.byref(self._walk), ctypes.byref(there), self._out, _OUT_BYTES)
            yield memoryview(self._out)[:used]

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
            kind = _TRAMPOLINES if kind == _JIT and place == OF_TRAMPOLINES else kind
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
