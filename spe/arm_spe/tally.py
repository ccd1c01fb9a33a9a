"""Records added up by the rows of a report, in compiled code, one pass and bounded memory.

A record's group is a pair of keys, such as address and thread. The caller places groups in rows (a function, a line),
many at a time; until a group is placed its records wait. So nothing but the rows holds counts, and they are few.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from arm_spe.columns import RecordBatch
from arm_spe.groups import GroupTable
from arm_spe.native import Columns, need_native
from arm_spe.text import describe_operation

LATENCIES = ("total_latency", "issue_latency", "translation_latency")
LEVELS = 8
SNOOPED = 0x80
NOTHING = 2**64 - 1
"""First key of records that have none: no data address, or no load."""
OTHERS = 2**64 - 2
"""Both keys of the group that takes what comes after ``max_groups`` groups."""
NO_ROW = -1
"""Row of a group whose records are left out."""

_LANES, _LOW, _PAGE, _SOURCES, _BLOCK = 32, 32, 16, 512, 128  # the numbers of tally.h
_UNPLACED = -2
_MAX_WAITING = 1 << 15
_COUNTER_LIMIT = 1 << 31  # records after which 32-bit counters are taken away
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
        *((name, c_void_p) for name in ("slot", "key", "hits")),
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
    )


ROW = np.dtype([("lanes", "u4", (_LANES,)), ("cycles", "u8", (3,)), ("low", "u4", (3, _LOW))])
"""`struct spe_row`."""
ITEM = np.dtype([("group", "u4"), ("lanes", "u4"), ("latency", "u2", (3,)), ("pad", "u2")])
"""`struct spe_item`."""


@dataclass(frozen=True, slots=True)
class Tallied:
    """Counts by row, n of them.

    Attributes:
        lanes: uint64[n, 32], see `Lane`.
        cycles: uint64[n, 3], sums of LATENCIES.
        latency_key: uint64[m], ``(row * 3 + kind) << 16 | cycles``, each once; ascending in what `sum` returns.
        latency_count: uint32[m] or uint64[m], records with that latency.
    """

    lanes: U64
    cycles: U64
    latency_key: U64
    latency_count: NDArray[np.unsignedinteger]

    @staticmethod
    def sum(parts: list[Tallied]) -> Tallied:
        """The sum of parts, which may have different numbers of rows."""
        rows = max((len(part.lanes) for part in parts), default=0)
        lanes, cycles = np.zeros((rows, _LANES), np.uint64), np.zeros((rows, len(LATENCIES)), np.uint64)
        for part in parts:
            lanes[: len(part.lanes)] += part.lanes
            cycles[: len(part.cycles)] += part.cycles
        distinct = np.concatenate([np.zeros(0, np.uint64), *(part.latency_key for part in parts)])
        distinct.sort()  # np.unique would take several times the memory, for a hash table
        distinct = distinct[np.diff(distinct, prepend=np.uint64(NOTHING)) != 0]
        counts = np.zeros(len(distinct), np.uint64)
        for part in parts:
            counts[np.searchsorted(distinct, part.latency_key)] += part.latency_count  # each key once
        return Tallied(lanes, cycles, distinct, counts)

    def grouped(self, group: NDArray[np.int64], groups: int) -> Tallied:
        """The sums of groups of rows.

        Args:
            group: int64[n], the group of each row, or NO_ROW: left out.
            groups: how many there are.
        """
        lanes, cycles = np.zeros((groups, _LANES), np.uint64), np.zeros((groups, len(LATENCIES)), np.uint64)
        rows = np.argsort(group, kind="stable")
        rows = rows[group[rows] != NO_ROW]
        if not len(rows):
            return Tallied(lanes, cycles, np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        start = np.flatnonzero(np.diff(group[rows], prepend=NO_ROW))
        lanes[group[rows[start]]] = np.add.reduceat(self.lanes[rows], start)
        cycles[group[rows[start]]] = np.add.reduceat(self.cycles[rows], start)
        row, kind = np.divmod((self.latency_key >> np.uint64(16)).astype(np.int64), len(LATENCIES))
        kept = np.flatnonzero(group[row] != NO_ROW)
        key = (group[row[kept]] * len(LATENCIES) + kind[kept]).astype(np.uint64) << np.uint64(16)
        key |= self.latency_key[kept] & np.uint64(0xFFFF)
        order = np.argsort(key, kind="stable")
        key, count = key[order], self.latency_count[kept[order]].astype(np.uint64)
        start = np.flatnonzero(np.diff(key, prepend=np.uint64(NOTHING)))
        return Tallied(lanes, cycles, key[start], np.add.reduceat(count, start) if len(start) else count)


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
        self._rows, self._used = np.zeros(0, ROW), 0
        self._waiting = np.empty(1 << 12, ITEM)
        self._struct = _Tally(others=-1)
        self._parts: list[Tallied] = []
        self._records = 0
        self._allocate_pages(1 << 10)

    @property
    def with_context(self) -> int:
        """Records whose thread a context packet names."""
        return int(self._struct.with_context)

    def add(self, batch: RecordBatch, rules: Rules, threads: U64 | None = None) -> None:
        """Adds a batch.

        Args:
            batch: the records.
            rules: how they are read.
            threads: uint64[n], the thread of each record where no context packet names it, or of all
                (`Rules.ignores_contexts`); None: `Rules.thread`.
        """
        if self._records + len(batch) > _COUNTER_LIMIT:
            self._settle()
            self._parts = [Tallied.sum([*self._parts, self._take()])]
        self._records += len(batch)
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

    def finish(self) -> list[Tallied]:
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
        self._page_key = np.empty(capacity, np.uint64)
        self._page_hits = np.empty((capacity, _PAGE), np.uint32)
        self._pages = _Pages(
            slots=2 * capacity,
            capacity=capacity,
            slot=self._page_slot.ctypes.data,
            key=self._page_key.ctypes.data,
            hits=self._page_hits.ctypes.data,
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
        if self._pages.capacity - count >= len(LATENCIES) * _BLOCK:
            return
        keys, hits = self._page_key[:count], self._page_hits[:count]
        self._allocate_pages(2 * self._pages.capacity)
        self._page_key[:count], self._page_hits[:count] = keys, hits
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
                grown = np.zeros(max(self._used, len(self._rows) * 3 // 2), ROW)
                grown[: len(self._rows)] = self._rows
                self._rows = grown
        self._point()
        while not self._library.spe_fold(ctypes.byref(self._pages), ctypes.byref(self._struct)):
            self._make_pages()

    def _take(self) -> Tallied:
        """The counts since the last time, which begin at zero again."""
        rows = self._rows[: self._used]
        low, hits = rows["low"].reshape(-1), self._page_hits[: self._pages.count].reshape(-1)
        in_rows, in_pages = np.flatnonzero(low), np.flatnonzero(hits)
        key = np.concatenate(
            [
                (in_rows // _LOW << 16 | in_rows % _LOW).astype(np.uint64),
                self._page_key[in_pages // _PAGE] * np.uint64(_PAGE) + (in_pages % _PAGE).astype(np.uint64),
            ]
        )
        count = np.concatenate([low[in_rows], hits[in_pages]])
        taken = Tallied(rows["lanes"].astype(np.uint64), rows["cycles"].copy(), key, count)
        self._rows[:] = 0
        self._allocate_pages(1 << 10)
        self._records = 0
        return taken
