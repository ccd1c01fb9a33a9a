"""Operations that SPE sampled: added up as rows of a report, or as samples of a profile with labels of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, I64, U64, distinct
from tdprof.model.profile import Profile
from tdprof.values import dataclass

RECORDS = "spe_records"


@dataclass(frozen=True, slots=True)
class SampledOperations:
    """Distinct sampled operations; rows are those of ``profile.samples``, whose stacks are one instruction each.

    Attributes:
        profile: of one event, ``RECORDS``: a sample's weight and count are SPE records.
        latency_cycles: int64[n], exact sum of the records' total latencies.
        latencies: int64[n] by name, cycles; -1 where a record has none.
        words: by name; None where it does not apply.
        detail: what was given up so that these are not too many; empty if nothing.
    """

    profile: Profile
    latency_cycles: I64
    latencies: Mapping[str, I64]
    words: Mapping[str, Sequence[str | None]]
    detail: str


QUANTILES = (0.5, 0.9, 0.99)
LATENCIES = {"total_latency": "TOTAL", "issue_latency": "ISSUE", "translation_latency": "TRANSLATION"}


@dataclass(frozen=True, slots=True)
class RatioColumn:
    """A ratio with its 95 % interval, float64[n] each, in the metric's units; NaN where there is none."""

    value: F64
    low: F64
    high: F64


@dataclass(frozen=True, slots=True)
class RecordWeight:
    """Operations of the program that one record stands for.

    Attributes:
        value: the estimate.
        relative_standard_error: of it; None where it is the interval alone, which collisions make too low by a share
            that nobody counted.
        source: what it was estimated from.
    """

    value: float
    relative_standard_error: float | None
    source: str


@dataclass(frozen=True, slots=True)
class MemoryUser:
    """Who knows a block of memory by which address.

    Attributes:
        pid: None for the kernel, and where it is not known.
        command: the process's name, "kernel" for the kernel's own addresses; empty where none is known.
        address: the block's.
        threads: that touched it there.
    """

    pid: int | None
    command: str
    address: int
    threads: int

    def __str__(self) -> str:
        return self.command if self.pid is None else f"{self.command}[{self.pid}]"


@dataclass(frozen=True, slots=True)
class LineAccess:
    """What a process does with eight bytes of a cache line in one function.

    Attributes:
        user: with the threads that do it.
        offset: in the line, in bytes.
        function: empty where none is known.
        loads, stores: sampled operations; an atomic one is a store.
    """

    user: MemoryUser
    offset: int
    function: str
    loads: int
    stores: int


@dataclass(frozen=True, slots=True)
class LineSharing:
    """Who shares a cache line.

    Attributes:
        how: "true" or "false".
        accesses: by whom, those with most operations first.
        turns: where processes share it: how often the next one to touch it was another one, of ``in_order`` accesses.
        in_order: accesses whose order was looked at; 0 where threads of one process share it.
    """

    how: str
    accesses: Sequence[LineAccess]
    turns: int = 0
    in_order: int = 0


@dataclass(frozen=True, slots=True)
class SpeReport:
    """Rows of a report, n of them.

    Attributes:
        names: of the rows.
        counts: uint64[n] by name: OPERATIONS are all records; the rest is of retired ones.
        levels: uint64[n] by level of the memory hierarchy: loads served from it.
        latencies: float64[n, len(QUANTILES)] by name, in cycles; NaN where none was measured.
        ratios: by the catalog's metric name, or a name of their own where it has none.
        threads: uint64[n], threads that touched the address; None in other reports.
        sharing: who shares each cache line, None for those that nobody does; None in other reports.
        users: of each block of memory, where there are physical addresses; None in other reports.
        notes: what a reader should know, a sentence each.
        total_operations: records in all, with those in no row.
        weight: operations that one record stands for; None where the recording does not tell.
        left_out: rows of fewer operations than these, which were not asked for.
        levels_met: those that any load was served from, of rows that were left out too.
        following: how many rows of no more operations `rest` has.
        rest: makes reports of these, some thousand rows each, in order: all at once they would take much memory.
    """

    names: Sequence[str]
    counts: Mapping[str, U64]
    levels: Mapping[str, U64]
    latencies: Mapping[str, F64]
    ratios: Mapping[str, RatioColumn]
    threads: U64 | None
    sharing: Sequence[LineSharing | None] | None
    notes: Sequence[str]
    total_operations: int
    users: Sequence[Sequence[MemoryUser]] | None = None
    weight: RecordWeight | None = None
    left_out: int = 0
    levels_met: Sequence[str] = ()
    following: int = 0
    rest: Callable[[], Iterator[SpeReport]] = lambda: iter(())

    def parts(self, limit: int = 0) -> Iterator[tuple[SpeReport, NDArray[np.int64]]]:
        """All rows in their order, or the first ``limit``: reports one after the other, and which of their rows."""
        left = limit or len(self.names) + self.following
        for part in itertools.chain([self], self.rest()):
            rows = part.order()[:left]
            yield part, rows
            left -= len(rows)
            if not left:
                return

    def order(self) -> NDArray[np.int64]:
        """Rows by operations, most first; equal ones by name."""
        return order_of(self.counts["OPERATIONS"], self.names)


def order_of(operations: U64, names: Sequence[str]) -> NDArray[np.int64]:
    """Positions by operations, most first; equal ones by name."""
    return np.lexsort((np.array(names, object), -operations.astype(np.int64)))


@dataclass(frozen=True, slots=True)
class FunctionOperations:
    """What SPE measured of a profile's functions.

    Attributes:
        function: int64[rows], function id as in ``FrameStacks``.
        report: the rows; of the records of functions that no sample has only the total is in it.
    """

    function: NDArray[np.int64]
    report: SpeReport


def mean_latency(report: SpeReport, latency: str) -> F64:
    """float64[rows]: cycles, of those operations that have this latency; NaN without any."""
    cycles, count = (report.counts[f"{LATENCIES[latency]}_{what}"].astype(float) for what in ("CYCLES", "COUNT"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(cycles / count)


NO_TID = 1 << 32
"""Where no thread is known: above every thread's number."""
_STAGE = np.uint64(33)  # bits below are a thread's, or NO_TID
_HALF, _LOWER = np.uint64(32), np.uint64(2**32 - 1)


class Stages:
    """When addresses of a thread's process begin to mean something else: at exec, or where mappings are replaced.

    The stretches between are the thread's stages, numbered from 0. Records that are added up over time are told apart
    by them, so that the code of a shell that became a program is not looked for in the program.

    Args:
        tid: uint64[n], threads, NO_TID among them where a record without a thread has a process nevertheless.
        time_ns: uint64[n], when for each a stage begins after another; every pair once, in any order.
    """

    def __init__(self, tid: U64, time_ns: U64) -> None:
        self._time_ns = distinct(time_ns)
        self._tid = distinct(tid)
        self._turn = np.sort(self._keys(np.searchsorted(self._tid, tid), time_ns))
        threads = np.arange(len(self._tid) + 1, dtype=np.uint64)
        self._first = np.searchsorted(self._turn, threads << _HALF)

    def __bool__(self) -> bool:
        return len(self._tid) > 0

    def turns(self) -> tuple[U64, U64, U64]:
        """uint64[n], uint64[n + 1], uint64[m]: threads, ascending; where the turns of each begin, and end; when they
        are."""
        return self._tid, self._first.astype(np.uint64), self._time_ns[(self._turn & _LOWER).astype(np.int64) - 1]

    def stamp(self, tid: U64, time_ns: U64) -> U64:
        """uint64[n]: one number for each thread and its stage at a time."""
        at = np.searchsorted(self._tid, tid)
        rows = np.flatnonzero(np.append(self._tid, np.uint64(2**64 - 1))[at] == tid)
        at = at[rows]
        stage = np.searchsorted(self._turn, self._keys(at, time_ns[rows]), "right") - self._first[at]
        stamped = tid.copy()
        stamped[rows] |= stage.astype(np.uint64) << _STAGE
        return stamped

    def split(self, stamped: U64) -> tuple[U64, U64]:
        """What was stamped: the thread, and a time within its stage; one late enough where it has no stages."""
        tid, stage = stamped & np.uint64(2**33 - 1), (stamped >> _STAGE).astype(np.int64)
        time_ns = np.full(len(tid), 2**63 - 1, np.uint64)
        at = np.searchsorted(self._tid, tid)
        rows = np.flatnonzero(np.append(self._tid, np.uint64(2**64 - 1))[at] == tid)
        first = self._first[at[rows]]
        turn = self._turn[first + np.maximum(stage[rows] - 1, 0)]
        begins = self._time_ns[((turn & _LOWER) - np.uint64(1)).astype(np.int64)]
        time_ns[rows] = np.where(stage[rows] > 0, begins, np.maximum(begins, 1) - np.uint64(1))
        return tid, time_ns

    def _keys(self, threads: I64, time_ns: U64) -> U64:
        rank = np.searchsorted(self._time_ns, time_ns, "right").astype(np.uint64)
        return threads.astype(np.uint64) << _HALF | rank


ONE_STAGE = Stages(np.empty(0, np.uint64), np.empty(0, np.uint64))
"""Of a recording in which addresses always mean the same."""
