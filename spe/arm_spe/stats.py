"""Records added up: by any pair of keys, in compiled code and bounded memory."""

from __future__ import annotations

import ctypes
from ctypes import c_uint64, c_void_p
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from arm_spe.columns import RecordBatch
from arm_spe.native import Columns, load_native
from arm_spe.packet import Kind
from arm_spe.text import describe_operation

LEVELS = 8
SNOOPED = 0x80
LATENCIES = (("total_latency", Kind.TOT), ("issue_latency", Kind.ISSUE), ("translation_latency", Kind.XLAT))
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
_FIRST_CAPACITY = 1 << 12


class Sum(IntEnum):
    """What `add_up` adds; the order of `enum spe_sum`. All but OPERATIONS are of retired operations."""

    OPERATIONS = 0
    RETIRED = 1
    LOADS = 2
    STORES = 3
    BRANCHES = 4
    OTHERS = 5
    MISPREDICTED = 6  # branches
    NOT_TAKEN = 7  # branches
    L1D_ACCESS = 8  # loads, as all of the caches: stores may leave the bits unset
    L1D_REFILL = 9
    LLC_ACCESS = 10
    LLC_REFILL = 11
    TLB_ACCESS = 12  # loads and stores
    TLB_WALK = 13
    VECTOR = 14  # SVE and SME operations
    PARTIAL_PREDICATE = 15
    EMPTY_PREDICATE = 16
    SNOOPED = 17  # loads
    TOTAL_CYCLES = 18
    TOTAL_COUNT = 19
    ISSUE_CYCLES = 20
    ISSUE_COUNT = 21
    TRANSLATION_CYCLES = 22
    TRANSLATION_COUNT = 23
    LOADS_BY_LEVEL = 24  # the first of LEVELS columns


SUMS = Sum.LOADS_BY_LEVEL + LEVELS


def _traits() -> NDArray[np.uint8]:
    """By ``class << 8 | payload``: bits load, store, branch, other, vector."""
    traits = np.zeros(1024, np.uint8)
    for op_class in range(3):
        for payload in range(256):
            words = describe_operation(op_class, payload)
            kind = (8, 1 + (payload & 1), 4)[op_class]
            traits[op_class << 8 | payload] = kind | (16 if "EVLEN" in words or "ETS" in words else 0)
    return traits


class _Groups(ctypes.Structure):
    """`struct spe_groups`."""

    _fields_ = (
        ("slots", c_uint64),
        ("capacity", c_uint64),
        ("count", c_uint64),
        *((name, c_void_p) for name in ("slot", "first", "second", "hits")),
    )


class GroupTable:
    """Numbers pairs of uint64 keys in the order of their first appearance."""

    def __init__(self) -> None:
        self._allocate(_FIRST_CAPACITY)

    def __len__(self) -> int:
        return int(self._struct.count)

    @property
    def first(self) -> U64:
        """uint64: first key of each group."""
        return self._first[: len(self)]

    @property
    def second(self) -> U64:
        """uint64: second key of each group."""
        return self._second[: len(self)]

    @property
    def hits(self) -> U64:
        """uint64: rows of each group."""
        return self._hits[: len(self)]

    def _allocate(self, capacity: int) -> None:
        self._slot = np.zeros(2 * capacity, np.uint32)
        self._first, self._second, self._hits = (np.zeros(capacity, np.uint64) for _ in range(3))
        self._struct = _Groups(
            slots=2 * capacity,
            capacity=capacity,
            slot=self._slot.ctypes.data,
            first=self._first.ctypes.data,
            second=self._second.ctypes.data,
            hits=self._hits.ctypes.data,
        )

    def _grow(self) -> None:
        first, second, hits = self.first, self.second, self.hits
        self._allocate(2 * int(self._struct.capacity))
        self.number(first, second)
        self._hits[: len(hits)] = hits

    def number(self, first: U64, second: U64) -> U32:
        """uint32[n]: the group of each of n pairs."""
        library = load_native()
        if library is None:
            return self._number_in_python(first, second)
        first, second = np.ascontiguousarray(first, np.uint64), np.ascontiguousarray(second, np.uint64)
        groups = np.empty(len(first), np.uint32)
        done = 0
        while True:
            places = (array[done:].ctypes.data for array in (first, second, groups))
            first_at, second_at, groups_at = places
            done += library.spe_group(first_at, second_at, len(first) - done, ctypes.byref(self._struct), groups_at)
            if done == len(first):
                return groups
            self._grow()

    def count_latencies(self, batch: RecordBatch, groups: U32, row_of: I64) -> None:
        """Counts latencies of retired operations: first key ``row * len(LATENCIES) + kind``, second key cycles.

        Args:
            batch: the records.
            groups: uint32[n], group of each.
            row_of: int64[groups], its row; -1: left out.
        """
        library = load_native()
        if library is None:
            row = row_of[groups]
            retired = (row >= 0) & ((batch["events"].view(np.uint64) & np.uint64(2)) != 0)
            for kind, (column, packet) in enumerate(LATENCIES):
                rows = np.flatnonzero(retired & batch.has(packet))
                self.number(
                    (row[rows] * len(LATENCIES) + kind).astype(np.uint64), batch[column][rows].astype(np.uint64)
                )
            return
        columns = Columns.over({name: batch[name] for name in batch})
        done = 0
        while True:
            places = groups.ctypes.data, row_of.ctypes.data, ctypes.byref(self._struct)
            done = library.spe_count_latencies(ctypes.byref(columns), done, len(batch), *places)
            if done == len(batch):
                return
            self._grow()

    def _number_in_python(self, first: U64, second: U64) -> U32:
        known = {pair: group for group, pair in enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True))}
        groups = []
        for pair in zip(first.tolist(), second.tolist(), strict=True):
            if pair not in known:
                if len(known) == self._struct.capacity:
                    self._grow()
                known[pair] = len(known)
                self._first[known[pair]], self._second[known[pair]] = pair
                self._struct.count = len(known)
            self._hits[known[pair]] += 1
            groups.append(known[pair])
        return np.array(groups, np.uint32)


class SumTable:
    """Sums of records by group; grows with the groups."""

    def __init__(self) -> None:
        self._sums = np.zeros((_FIRST_CAPACITY, SUMS), np.uint64)
        self._traits = _traits()
        self._groups = 0

    @property
    def sums(self) -> U64:
        """uint64[groups, SUMS]."""
        return self._sums[: self._groups]

    def add_up(self, batch: RecordBatch, groups: U32, level: NDArray[np.uint8]) -> None:
        """Adds a batch.

        Args:
            batch: the records.
            groups: uint32[n], group of each.
            level: uint8[n], each load's place in the memory hierarchy, below LEVELS, with SNOOPED set if another cache
                gave the line; ignored for other operations.
        """
        if not len(batch):
            return
        self._groups = max(self._groups, int(groups.max()) + 1)
        if self._groups > len(self._sums):
            # In place, new rows 0; nobody holds a view while records are added.
            self._sums.resize((self._groups * 3 // 2, SUMS), refcheck=False)
        library = load_native()
        if library is None:
            add_up_in_python(self._sums, batch, groups, level, self._traits)
            return
        columns = Columns.over({name: batch[name] for name in batch})
        places = (array.ctypes.data for array in (groups, level, self._traits, self._sums))
        library.spe_add_up(ctypes.byref(columns), len(batch), *places)


def add_up_in_python(
    sums: U64, batch: RecordBatch, groups: U32, level: NDArray[np.uint8], traits: NDArray[np.uint8]
) -> None:
    """What `SumTable.add_up` does, in NumPy: for tests, and for machines without the compiled library."""
    events: U64 = batch["events"].view(np.uint64)
    code = batch["op_class"].astype(np.uint16) << 8 | batch["op"].astype(np.uint16)
    trait = traits[code]
    load, store, branch, other, vector = ((trait >> bit & 1).astype(bool) for bit in range(5))

    def has(bit: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (events >> np.uint64(bit) & np.uint64(1)) != 0
        return found

    memory = load | store
    values: dict[int, NDArray[np.generic]] = {
        Sum.RETIRED: np.ones(len(batch), bool),
        Sum.LOADS: load,
        Sum.STORES: store,
        Sum.BRANCHES: branch,
        Sum.OTHERS: other,
        Sum.MISPREDICTED: branch & has(7),
        Sum.NOT_TAKEN: branch & has(6),
        Sum.L1D_ACCESS: load & has(2),
        Sum.L1D_REFILL: load & has(2) & has(3),
        Sum.LLC_ACCESS: load & has(8),
        Sum.LLC_REFILL: load & has(8) & has(9),
        Sum.TLB_ACCESS: memory & has(4),
        Sum.TLB_WALK: memory & has(4) & has(5),
        Sum.VECTOR: vector,
        Sum.PARTIAL_PREDICATE: vector & has(17),
        Sum.EMPTY_PREDICATE: vector & has(18),
        Sum.SNOOPED: load & (level >= SNOOPED),
        Sum.TOTAL_CYCLES: batch["total_latency"],
        Sum.TOTAL_COUNT: batch.has(Kind.TOT),
        Sum.ISSUE_CYCLES: batch["issue_latency"],
        Sum.ISSUE_COUNT: batch.has(Kind.ISSUE),
        Sum.TRANSLATION_CYCLES: batch["translation_latency"],
        Sum.TRANSLATION_COUNT: batch.has(Kind.XLAT),
    }
    for number in range(LEVELS):
        values[Sum.LOADS_BY_LEVEL + number] = load & (level & 7 == number)
    np.add.at(sums[:, Sum.OPERATIONS], groups, np.uint64(1))
    retired = has(1)
    for column, value in values.items():
        np.add.at(sums[:, column], groups[retired], value[retired].astype(np.uint64))
