"""Records added up by the rows of a report, in compiled code, one pass and bounded memory.

A record's group is a pair of keys, such as address and thread. The caller places groups in rows (a function, a line),
many at a time; until a group is placed its records wait. So nothing but the rows holds counts, and they are few.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_uint16, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from arm_spe.columns import RecordBatch
from arm_spe.counts import DecodeCounts
from arm_spe.decoder import ColumnMemory
from arm_spe.groups import GroupTable
from arm_spe.growing import GrowingTable
from arm_spe.native import Buffer, Columns, Decoder, need_native
from arm_spe.tallied import LATENCIES, PAGE, ROW, WIDE, TallyPart
from arm_spe.text import describe_operation

LEVELS = 8
NOTHING = 2**64 - 1
"""First key of records that have none: no data address, or no load."""
OTHERS = 2**64 - 2
"""Both keys of the group that takes what comes after ``max_groups`` groups."""

_SOURCES, _BLOCK, _NEIGHBOURS = 512, 128, 8  # the numbers of tally.h
_EVENT_INDEX = 1024
_UNPLACED, _FIRST_ROW = 1, 3  # `enum spe_placing`
_MAX_WAITING = 1 << 18  # 4 MiB: each time they are placed, all functions that they fall into are named
_COUNTER_LIMIT = 1 << 31  # records after which 32-bit counters are taken away
_SHORTEST_RECORD = 2  # bytes at least
_T = TypeVar("_T", bound=np.generic)
U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]


class Lane(IntEnum):
    """What is counted in a row; `enum spe_lane`. All but OPERATIONS are of operations that the program executed."""

    OPERATIONS = 0
    RETIRED = 1
    L1D_ACCESS = 2  # loads, as all of the caches: stores may leave the bits unset
    L1D_REFILL = 3
    TLB_ACCESS = 4  # loads and stores
    TLB_WALK = 5
    NOT_TAKEN = 6  # branches
    MISPREDICTED = 7
    LLC_ACCESS = 8
    LLC_REFILL = 9
    SNOOPED = 10  # loads
    LOADS = 11
    STORES = 12
    BRANCHES = 13
    OTHERS = 14
    VECTOR = 15  # SVE and SME operations
    PARTIAL_PREDICATE = 17
    EMPTY_PREDICATE = 18
    LOADS_BY_LEVEL = 19  # the first of LEVELS
    TOTAL_COUNT = 27
    ISSUE_COUNT = 28
    TRANSLATION_COUNT = 29


class Key(IntEnum):
    """What makes two records the same group; `enum spe_key`."""

    CODE = 0  # PC, thread
    ADDRESS = 1  # data address >> shift, thread; NOTHING without one; see `memory_keys` where there is a physical one
    SOURCE = 2  # code of a load's data source, core; NOTHING for what is no load


class Rules(ctypes.Structure):
    """`struct spe_rules`: how the records of one span are read."""

    _fields_ = (
        ("thread", c_uint64),  # of a record that nothing else tells the thread of
        ("core", c_uint64),  # second key of Key.SOURCE
        ("times", c_void_p),  # `Times.address`, or None: times do not matter
        ("key", c_uint32),
        ("shift", c_uint32),
        ("first_source", c_uint32),  # code of data source packet 0
        ("known_sources", c_uint32),  # values from here on are not looked at
        ("ignores_contexts", c_uint32),  # `Tally.add` is told every record's thread
        ("lanes", c_uint32 * 1024),
        ("source_of_events", c_uint16 * _EVENT_INDEX),  # see `event_index`
        ("source_lanes", c_uint32 * (_SOURCES + _EVENT_INDEX)),  # by code, then by events: see `set_sources`
    )

    def set_sources(self, source_of_events: list[int], lanes: list[int]) -> None:
        """How loads tell their source, and what they count for then.

        Args:
            source_of_events: 1024 codes, by `event_index`.
            lanes: by code: the bit of the level, from Lane.LOADS_BY_LEVEL on, and of SNOOPED if another cache gave the
                line.
        """
        self.source_of_events[:] = source_of_events
        self.source_lanes[: len(lanes)] = lanes
        self.source_lanes[_SOURCES:] = [lanes[code] for code in source_of_events]


def event_index(events: U64) -> NDArray[np.intp]:
    """Index into `Rules.source_of_events`: bits 2, 3, 8 to 10 and 19 to 23 of events packets, side by side."""
    low, middle, high = (
        (events >> np.uint64(shift) & np.uint64(mask)) << np.uint64(place)
        for shift, mask, place in ((2, 3, 0), (8, 7, 2), (19, 31, 5))
    )
    index: NDArray[np.intp] = (low | middle | high).astype(np.intp)
    return index


def operation_lanes() -> list[int]:
    """`Rules.lanes`: by ``class << 8 | payload`` the operation's own lanes, and those that may be set besides.

    Its events may set them, or the source of a load.
    """
    memory = 1 << Lane.TLB_ACCESS | 1 << Lane.TLB_WALK
    caches = sum(1 << lane for lane in (Lane.L1D_ACCESS, Lane.L1D_REFILL, Lane.LLC_ACCESS, Lane.LLC_REFILL))
    sources = 1 << Lane.SNOOPED | (1 << LEVELS) - 1 << Lane.LOADS_BY_LEVEL
    vector = 1 << Lane.VECTOR | 1 << Lane.PARTIAL_PREDICATE | 1 << Lane.EMPTY_PREDICATE
    by_class = {
        (0, 0): 1 << Lane.OTHERS,
        (0, 1): 1 << Lane.OTHERS,
        (1, 0): 1 << Lane.LOADS | memory | caches | sources,
        (1, 1): 1 << Lane.STORES | memory,
        (2, 0): 1 << Lane.BRANCHES | 1 << Lane.NOT_TAKEN | 1 << Lane.MISPREDICTED,
        (2, 1): 1 << Lane.BRANCHES | 1 << Lane.NOT_TAKEN | 1 << Lane.MISPREDICTED,
    }
    lanes = [0] * 1024
    for op_class in range(3):
        for payload in range(256):
            words = describe_operation(op_class, payload)
            is_vector = "EVLEN" in words or "ETS" in words
            own = 1 << Lane.RETIRED | by_class[op_class, payload & 1]
            lanes[op_class << 8 | payload] = own | (vector if is_vector else 0)
    return lanes


class _Pages(ctypes.Structure):
    """`struct spe_pages`."""

    _fields_ = (
        ("slots", c_uint64),
        ("capacity", c_uint64),
        ("count", c_uint64),
        *((name, c_void_p) for name in ("slot", "page")),
    )


class _Tally(ctypes.Structure):
    """`struct spe_tally`."""

    _fields_ = (
        *((name, c_void_p) for name in ("row_of", "rows", "wide_of", "wide")),
        ("wide_capacity", c_uint64),
        ("wide_count", c_uint64),
        *((name, c_void_p) for name in ("waiting", "met")),
        ("waiting_capacity", c_uint64),
        ("waiting_count", c_uint64),
        ("met_count", c_uint64),
        ("folded", c_uint64),
        ("groups", c_uint64),
        ("most_groups", c_uint64),
        ("others", c_int64),
        ("with_context", c_uint64),
        ("unnamed", c_uint64),
        ("decoded", c_uint64),
        ("added", c_uint64),
    )


ITEM = np.dtype([("group", "u4"), ("lanes", "u4"), ("latency", "u2", (3,)), ("pad", "u2")])
"""`struct spe_item`."""
MET = np.dtype([("first", "u8"), ("second", "u8"), ("group", "u4"), ("pad", "u4")])
"""`struct spe_met`."""


Place = Callable[[U64, U64], I32]
"""Rows of groups: uint64[n] first and second keys to int32[n] rows, or NO_ROW. The rows of a pair never change."""


class Tally:
    """One thread's counts.

    Args:
        place: called with groups that have no row yet, now and then.
        max_groups: pairs after these are of the group (OTHERS, OTHERS).

    Raises:
        NotCompiledError: the compiled library is not there.
    """

    def __init__(self, place: Place, *, max_groups: int = 1 << 22) -> None:
        self._library = need_native()
        self._place = place
        self._neighbourhoods = GroupTable()
        self._row_of = np.zeros((self._neighbourhoods.capacity, _NEIGHBOURS), np.int32)
        self._used = 0
        self._waiting, self._met = np.empty(1 << 12, ITEM), np.empty(1 << 12, MET)
        self._struct = _Tally(others=-1, most_groups=max_groups)
        self._parts: list[TallyPart] = []
        self._allocate_counters(0)

    @property
    def with_context(self) -> int:
        """Records whose thread a context packet names."""
        return int(self._struct.with_context)

    @property
    def unnamed(self) -> int:
        """Records of spans with `Rules.times` whose thread nothing tells."""
        return int(self._struct.unnamed)

    @property
    def rows(self) -> int:
        """Rows that there are counters of."""
        return self._used

    def add_span(self, data: Buffer, rules: Rules, memory: ColumnMemory) -> DecodeCounts:
        """Decodes a span and adds its records, without the interpreter between the two.

        Args:
            data: the span's bytes.
            rules: how its records are read.
            memory: where they are decoded; few rows, which stay in the CPU's caches, are fastest.

        Returns:
            How the bytes were spent.
        """
        array, decoder = np.frombuffer(data, np.uint8), Decoder()
        self._count(len(array) // _SHORTEST_RECORD)
        self._struct.decoded = self._struct.added = 0
        memory.columns.is_lean = True
        while True:
            self._point()
            if self._library.spe_add_span(
                array.ctypes.data,
                len(array),
                ctypes.byref(decoder),
                ctypes.byref(memory.columns),
                ctypes.byref(rules),
                ctypes.byref(self._neighbourhoods.struct),
                ctypes.byref(self._pages),
                ctypes.byref(self._struct),
            ):
                return decoder.counts()
            self._make_room()

    def _count(self, records: int) -> None:
        """So many more records at most, for which the counters must have room."""
        if self._records + records > _COUNTER_LIMIT:
            self._settle()
            self._parts.append(self._take())
        self._records += records

    def add(self, batch: RecordBatch, rules: Rules, threads: U64 | None = None) -> None:
        """Adds a batch.

        Args:
            batch: the records.
            rules: how they are read.
            threads: uint64[n], the thread of each record where no context packet names it, or of all
                (`Rules.ignores_contexts`); None: `Rules.thread`.
        """
        self._count(len(batch))
        columns = batch.native or Columns.over(batch.columns)
        done, size = 0, len(batch)
        while True:
            self._point()
            done = self._library.spe_tally(
                ctypes.byref(columns),
                done,
                size,
                None if threads is None else threads.ctypes.data,
                ctypes.byref(rules),
                ctypes.byref(self._neighbourhoods.struct),
                ctypes.byref(self._pages),
                ctypes.byref(self._struct),
            )
            if done == size:
                return
            self._make_room()

    def finish(self) -> list[TallyPart]:
        """The counts, in parts to `Tallied.sum`; nothing can be added after this."""
        self._settle()
        return [*self._parts, self._take()]

    def _point(self) -> None:
        """Arrays may have moved since the last call."""
        struct = self._struct
        struct.row_of = self._row_of.ctypes.data
        struct.rows, struct.wide_of = self._rows.address, self._wide_of.ctypes.data
        struct.wide, struct.wide_capacity = self._wide.ctypes.data, len(self._wide)
        struct.waiting, struct.met = self._waiting.ctypes.data, self._met.ctypes.data
        struct.waiting_capacity = len(self._waiting)

    def _allocate_counters(self, rows: int) -> None:
        """Counters that begin at zero."""
        self._rows, self._wide_of = GrowingTable(rows, ROW), np.zeros(rows, np.uint32)
        self._wide, self._struct.wide_count = np.empty((2 * _BLOCK, WIDE), np.uint32), 0
        self._page = GrowingTable(0, PAGE)
        self._make_pages(1 << 10)
        self._records = 0

    def _make_pages(self, capacity: int) -> None:
        """Room for so many pages; those that are there stay."""
        self._page.grow(capacity)
        self._page_slot = np.zeros(2 * capacity, np.uint32)
        self._pages = _Pages(
            slots=2 * capacity,
            capacity=capacity,
            slot=self._page_slot.ctypes.data,
            page=self._page.address,
        )

    def _make_room(self) -> None:
        """Room for at least a block of whatever is short."""
        struct, table = self._struct, self._neighbourhoods
        if struct.others < 0 and table.capacity - len(table) <= _BLOCK:  # one for the others, too
            table.grow()
            self._row_of = _grown(self._row_of, table.capacity)
        self._make_counters()
        if len(self._waiting) - struct.waiting_count < _BLOCK:
            if len(self._waiting) < _MAX_WAITING:
                self._waiting, self._met = (_grown(each, 2 * len(each)) for each in (self._waiting, self._met))
            else:
                self._settle()
        if struct.others < 0 and struct.most_groups - struct.groups < _BLOCK:
            self._make_others()

    def _make_others(self) -> None:
        """The group of what comes from now on; no neighbourhood has this key."""
        rest = np.array([OTHERS], np.uint64)
        group = int(self._neighbourhoods.number(rest, rest)[0]) * _NEIGHBOURS
        self._row_of.reshape(-1)[group] = _UNPLACED
        self._met[self._struct.met_count] = (OTHERS, OTHERS, group, 0)
        self._struct.met_count += 1
        self._struct.others = group

    def _make_counters(self) -> None:
        """Room for a block's pages and wide counters."""
        if len(self._wide) - self._struct.wide_count < _BLOCK:
            self._wide = _grown(self._wide, 2 * len(self._wide))
        count = self._pages.count
        if self._pages.capacity - count >= len(LATENCIES) * _BLOCK:
            return
        self._make_pages(2 * self._pages.capacity)
        self._library.spe_index_pages(ctypes.byref(self._pages), count)

    def _settle(self) -> None:
        """Places the groups that have no row, and adds the records that waited for it."""
        met = self._met[: self._struct.met_count]
        if len(met):
            rows = self._place(met["first"], met["second"])
            self._row_of.reshape(-1)[met["group"]] = rows + np.int32(_FIRST_ROW)
            self._used = max(self._used, int(rows.max(initial=-1)) + 1)
            if self._used > len(self._rows):
                size = 2 * self._used + _BLOCK
                self._rows.grow(size)
                self._wide_of = _grown(self._wide_of, size)
        self._point()
        while not self._library.spe_fold(ctypes.byref(self._pages), ctypes.byref(self._struct)):
            self._make_counters()
            self._point()

    def _take(self) -> TallyPart:
        """The counts since the last time, which begin at zero again."""
        wide = self._wide[: self._struct.wide_count]
        rows, pages = self._rows.array()[: self._used], self._page.array()[: self._pages.count]
        taken = TallyPart(rows, self._wide_of[: self._used], wide, pages)
        self._allocate_counters(len(self._rows))
        return taken


def _grown(array: NDArray[_T], length: int) -> NDArray[_T]:
    """The array with zeros behind it."""
    grown = np.zeros((length, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
