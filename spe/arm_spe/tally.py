"""Records added up by the rows of a report, in compiled code, one pass and bounded memory.

A record's group is a pair of keys, such as address and thread. The caller places groups in rows (a function, a line),
many at a time; until a group is placed its records wait. So nothing but the rows holds counts, and they are few.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from arm_spe.columns import RecordBatch
from arm_spe.counts import DecodeCounts
from arm_spe.decoder import ColumnMemory
from arm_spe.groups import GroupTable
from arm_spe.native import Buffer, Columns, Decoder, need_native
from arm_spe.tallied import LANES, LATENCIES, PAGE, PAGE_SIZE, ROW, TallyPart
from arm_spe.text import describe_operation

LEVELS = 8
SNOOPED = 0x80
NOTHING = 2**64 - 1
"""First key of records that have none: no data address, or no load."""
OTHERS = 2**64 - 2
"""Both keys of the group that takes what comes after ``max_groups`` groups."""

_SOURCES, _BLOCK = 512, 128  # the numbers of tally.h
_PAGES_OF_RECORD = len(LATENCIES) + LANES // PAGE_SIZE + 1
_UNPLACED = -2
_MAX_WAITING = 1 << 18  # 4 MiB: each time they are placed, all functions that they fall into are named
_COUNTER_LIMIT = 1 << 31  # records after which 32-bit counters are taken away
_SHORTEST_RECORD = 2  # bytes at least
_CACHE_LINE = 64
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
    ADDRESS = 1  # data address >> shift, thread; NOTHING without one
    SOURCE = 2  # code of a load's data source, core; NOTHING for what is no load


class Rules(ctypes.Structure):
    """`struct spe_rules`: how the records of one span are read."""

    _fields_ = (
        ("thread", c_uint64),  # of a record that nothing else tells the thread of
        ("core", c_uint64),  # second key of Key.SOURCE
        ("key", c_uint32),
        ("shift", c_uint32),
        ("first_source", c_uint32),  # code of data source packet 0
        ("known_sources", c_uint32),  # values from here on are not looked at
        ("ignores_contexts", c_uint32),  # `Tally.add` is told every record's thread
        ("lanes", c_uint32 * 1024),
        ("source_of_events", c_uint16 * 1024),  # see `event_index`
        ("level", c_uint8 * _SOURCES),  # by code: level below LEVELS, with SNOOPED if another cache gave the line
    )


def event_index(events: U64) -> NDArray[np.intp]:
    """Index into `Rules.source_of_events`: bits 2, 3, 8 to 10 and 19 to 23 of events packets, side by side."""
    low, middle, high = (
        (events >> np.uint64(shift) & np.uint64(mask)) << np.uint64(place)
        for shift, mask, place in ((2, 3, 0), (8, 7, 2), (19, 31, 5))
    )
    index: NDArray[np.intp] = (low | middle | high).astype(np.intp)
    return index


def operation_lanes() -> list[int]:
    """`Rules.lanes`: by ``class << 8 | payload`` the operation's own lanes, and those that its events may set."""
    memory = 1 << Lane.TLB_ACCESS | 1 << Lane.TLB_WALK
    caches = sum(1 << lane for lane in (Lane.L1D_ACCESS, Lane.L1D_REFILL, Lane.LLC_ACCESS, Lane.LLC_REFILL))
    vector = 1 << Lane.VECTOR | 1 << Lane.PARTIAL_PREDICATE | 1 << Lane.EMPTY_PREDICATE
    by_class = {
        (0, 0): 1 << Lane.OTHERS,
        (0, 1): 1 << Lane.OTHERS,
        (1, 0): 1 << Lane.LOADS | memory | caches,
        (1, 1): 1 << Lane.STORES | memory,
        (2, 0): 1 << Lane.BRANCHES | 1 << Lane.NOT_TAKEN | 1 << Lane.MISPREDICTED,
        (2, 1): 1 << Lane.BRANCHES | 1 << Lane.NOT_TAKEN | 1 << Lane.MISPREDICTED,
    }
    lanes = [0] * 1024
    for op_class in range(3):
        for payload in range(256):
            words = describe_operation(op_class, payload)
            is_vector = "EVLEN" in words or "ETS" in words
            lanes[op_class << 8 | payload] = by_class[op_class, payload & 1] | (vector if is_vector else 0)
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
        *((name, c_void_p) for name in ("row_of", "rows", "waiting")),
        ("waiting_capacity", c_uint64),
        ("waiting_count", c_uint64),
        ("folded", c_uint64),
        ("others", c_int64),
        ("with_context", c_uint64),
        ("decoded", c_uint64),
        ("added", c_uint64),
    )


ITEM = np.dtype([("group", "u4"), ("lanes", "u4"), ("latency", "u2", (3,)), ("pad", "u2")])
"""`struct spe_item`."""


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
        self._max_groups = max_groups
        self._groups = GroupTable()
        self._row_of = np.full(self._groups.capacity, _UNPLACED, np.int32)
        self._placed = 0
        self._rows, self._used = _zeros(0, ROW), 0
        self._waiting = np.empty(1 << 12, ITEM)
        self._struct = _Tally(others=-1)
        self._parts: list[TallyPart] = []
        self._records = 0
        self._allocate_pages(1 << 10)

    @property
    def with_context(self) -> int:
        """Records whose thread a context packet names."""
        return int(self._struct.with_context)

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
            if self._library.spe_tally_span(
                array.ctypes.data,
                len(array),
                ctypes.byref(decoder),
                ctypes.byref(memory.columns),
                ctypes.byref(rules),
                ctypes.byref(self._groups.struct),
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
                ctypes.byref(self._groups.struct),
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
        self._struct.row_of = self._row_of.ctypes.data
        self._struct.rows = self._rows.ctypes.data
        self._struct.waiting = self._waiting.ctypes.data
        self._struct.waiting_capacity = len(self._waiting)

    def _allocate_pages(self, capacity: int) -> None:
        self._page_slot = np.zeros(2 * capacity, np.uint32)
        self._page = _zeros(capacity, PAGE)
        self._pages = _Pages(
            slots=2 * capacity,
            capacity=capacity,
            slot=self._page_slot.ctypes.data,
            page=self._page.ctypes.data,
        )

    def _make_room(self) -> None:
        """Room for at least a block of whatever is short."""
        if self._struct.others < 0 and self._groups.capacity - len(self._groups) <= _BLOCK:  # one for the others, too
            if len(self._groups) < self._max_groups:
                self._groups.grow()
                self._row_of = np.concatenate([self._row_of, np.full_like(self._row_of, _UNPLACED)])
            else:
                rest = np.array([OTHERS], np.uint64)
                self._struct.others = int(self._groups.number(rest, rest)[0])
        self._make_pages()
        if len(self._waiting) - self._struct.waiting_count < _BLOCK:
            if len(self._waiting) < _MAX_WAITING:
                self._waiting = np.concatenate([self._waiting, np.empty_like(self._waiting)])
            else:
                self._settle()

    def _make_pages(self) -> None:
        count = self._pages.count
        if self._pages.capacity - count >= _PAGES_OF_RECORD * _BLOCK:
            return
        pages = self._page[:count]
        self._allocate_pages(2 * self._pages.capacity)
        self._page[:count] = pages
        self._library.spe_index_pages(ctypes.byref(self._pages), count)

    def _settle(self) -> None:
        """Places the groups that have no row, and adds the records that waited for it."""
        first, second = self._groups.first[self._placed :], self._groups.second[self._placed :]
        if len(first):
            rows = self._place(first, second)
            self._row_of[self._placed : len(self._groups)] = rows
            self._placed = len(self._groups)
            self._used = max(self._used, int(rows.max(initial=-1)) + 1)
            if self._used > len(self._rows):
                # Pages that nothing is written to take no memory: seldom is there much to copy.
                grown = _zeros(max(self._used, 4 * len(self._rows)), ROW)
                grown[: len(self._rows)] = self._rows
                self._rows = grown
        self._point()
        while not self._library.spe_fold(ctypes.byref(self._pages), ctypes.byref(self._struct)):
            self._make_pages()

    def _take(self) -> TallyPart:
        """The counts since the last time, which begin at zero again."""
        taken = TallyPart(self._rows[: self._used], self._page[: self._pages.count])
        self._rows = _zeros(len(self._rows), ROW)
        self._allocate_pages(1 << 10)
        self._records = 0
        return taken


def _zeros(length: int, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Zeros on cache lines of their own."""
    memory = np.zeros(length * dtype.itemsize + _CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    return memory[start : start + length * dtype.itemsize].view(dtype)
