"""Samples that differ in nothing a capture keeps, added up: a capture's size follows what ran, not how often."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tdprof.decode.perf.chains import grown
from tdprof.decode.perf.columns import NOT_RECORDED, SAMPLE_COLUMNS, Samples, Table
from tdprof.model.arrays import U32, U64
from tdprof.native.library import load_native
from tdprof.native.perf_records import PerfGroups, PerfIntervals, PerfSamples
from tdprof.values import dataclass

INTERVAL_NS = 1_000_000_000
EXACT_NS = 1  # no interval: each sample has its own time
WHOLE_RECORDING_NS = 2**63  # an interval that no recording leaves
_CAPACITY = 1 << 17
# Samples of many threads come in turns: a table that has not room for one turn adds nothing up. Of 75 MB.
_MOST_SAMPLE_ROWS = 1 << 20

GROUP = np.dtype(
    [
        ("time_ns", "u8"),  # end of the interval the samples fell into
        ("count", "u8"),
        ("weight", "u8"),  # sum of the periods
        ("cgroup", "u8"),
        ("event", "u4"),
        ("pid", "u4"),
        ("tid", "u4"),
        ("user_chain", "i4"),
        ("kernel_chain", "i4"),
        ("pad", "u4"),
    ]
)
_KEYS = ["time_ns", "event", "pid", "tid", "user_chain", "kernel_chain", "cgroup"]


@dataclass(frozen=True, slots=True)
class ProcessChanges:
    """When a process's mappings or its threads' names changed: intervals end there, so that time tells which held.

    Attributes:
        pid, time_ns: equally long, sorted by pid, then time.
    """

    pid: U32
    time_ns: U64


def sorted_changes(pid: U32, time_ns: U64) -> ProcessChanges:
    """Changes in any order; those at time 0 were before the recording and end no interval."""
    kept = time_ns > 0
    pid, time_ns = pid[kept], time_ns[kept]
    order = np.lexsort((time_ns, pid))
    return ProcessChanges(np.ascontiguousarray(pid[order]), np.ascontiguousarray(time_ns[order]))


class SampleIntervals:
    """Which samples may be added up: those of one event and of one stretch of their process's time.

    Args:
        event_numbers: the capture's number of each event of the file, ``NOT_RECORDED`` for those that are left out.
        changes: where intervals end early.
        interval_ns: how long intervals are.
    """

    def __init__(self, event_numbers: Sequence[int], changes: ProcessChanges, interval_ns: int = INTERVAL_NS) -> None:
        self.event_numbers = np.array(event_numbers, np.uint32)
        self._changes = changes
        self._interval_ns = interval_ns

    def native(self) -> PerfIntervals:
        """The same for compiled code, as long as this object lives."""
        return PerfIntervals(
            event_number=self.event_numbers.ctypes.data,
            events=len(self.event_numbers),
            interval_ns=self._interval_ns,
            change_pid=self._changes.pid.ctypes.data,
            change_ns=self._changes.time_ns.ctypes.data,
            changes=len(self._changes.pid),
        )

    def events_of(self, samples: Samples) -> U32:
        """The capture's number of each sample's event."""
        known = samples.event < len(self.event_numbers)
        return np.where(known, self.event_numbers[np.where(known, samples.event, 0)], np.uint32(NOT_RECORDED))

    def ends(self, pids: U32, time_ns: U64) -> U64:
        """When the interval of each moment of a process ends."""
        interval = np.uint64(self._interval_ns)
        end = time_ns - time_ns % interval + (interval - np.uint64(1))
        end[end < time_ns] = 2**64 - 1  # the last interval is cut short by the type
        for pid in np.unique(pids):
            times = self._changes.time_ns[self._changes.pid == pid]
            mine = np.flatnonzero(pids == pid)
            at = np.searchsorted(times, time_ns[mine], side="right")
            has_next = at < len(times)
            rows = mine[has_next]
            end[rows] = np.minimum(end[rows], times[at[has_next]] - np.uint64(1))
        return end


def native_samples(samples: Samples) -> tuple[PerfSamples, list[npt.NDArray[np.generic]]]:
    """The columns for compiled code, and what must be kept as long as they are used."""
    columns = PerfSamples(rows=len(samples))
    held = [np.ascontiguousarray(getattr(samples, name)) for name in SAMPLE_COLUMNS]
    for name, column in zip(SAMPLE_COLUMNS, held, strict=True):
        setattr(columns, name, column.ctypes.data)
    return columns, held


class SumTable:
    """Rows that are alike, added up into a table; its user gets it whenever it is full.

    Args:
        intervals: which samples may be added up.
        row: what the table holds.
        native: the table for compiled code.
    """

    def __init__(self, intervals: SampleIntervals, row: np.dtype[np.void], native: type[PerfGroups]) -> None:
        self._intervals = intervals
        self._library = load_native()
        self._pending: list[Table] = []
        self._rows = np.empty(_CAPACITY, row)
        self._slots = np.zeros(2 * _CAPACITY, np.uint64)
        self._table = native(seed=int.from_bytes(os.urandom(8), "little"), intervals=intervals.native())
        self._point()

    def _point(self) -> None:
        table = self._table
        table.rows, table.capacity = self._rows.ctypes.data, len(self._rows)
        table.slots, table.slot_mask = self._slots.ctypes.data, len(self._slots) - 1

    def flush(self) -> Iterator[Table]:
        """The rows added up since the last full table, if any."""
        count, pending = self._table.count, self._pending
        self._table.count = 0
        self._slots[:] = 0
        self._pending = []
        for first in range(0, count, _CAPACITY):
            yield self._rows[first : min(first + _CAPACITY, count)].copy()
        yield from (table for table in pending if len(table))


class SampleGroups(SumTable):
    """Adds samples up in a table that grows; full ones come out while adding, the last one from ``flush``."""

    def __init__(self, intervals: SampleIntervals) -> None:
        super().__init__(intervals, GROUP, PerfGroups)

    def add(self, samples: Samples) -> Iterator[Table]:
        """Add samples; yields rows of ``GROUP`` whenever the table is full."""
        if self._library is None:
            yield from self._add_python(samples)
            return
        columns, _held = native_samples(samples)
        group = self._library.tdprof_perf_group
        done = 0
        while (done := group(ctypes.byref(self._table), ctypes.byref(columns), done)) < len(samples):
            if len(self._rows) < _MOST_SAMPLE_ROWS:
                self._grow()
            else:
                yield from self.flush()

    def _grow(self) -> None:
        assert self._library is not None
        old = self._slots
        self._rows, self._slots = grown(self._rows), np.zeros(2 * len(old), np.uint64)
        self._point()
        self._library.tdprof_perf_rehash_groups(ctypes.byref(self._table), old.ctypes.data, len(old))

    def _add_python(self, samples: Samples) -> Iterator[Table]:
        """The same with NumPy alone; every batch is a table of its own."""
        event = self._intervals.events_of(samples)
        kept = event != NOT_RECORDED
        keys = np.empty(int(kept.sum()), [(name, GROUP[name]) for name in _KEYS])
        keys["event"] = event[kept]
        for name in ("pid", "tid", "user_chain", "kernel_chain", "cgroup"):
            keys[name] = getattr(samples, name)[kept]
        keys["time_ns"] = self._intervals.ends(keys["pid"], samples.time_ns[kept])
        distinct, which = np.unique(keys, return_inverse=True)
        table = np.zeros(len(distinct), GROUP)
        for name in _KEYS:
            table[name] = distinct[name]
        np.add.at(table["count"], which, np.uint64(1))
        np.add.at(table["weight"], which, samples.period[kept])
        yield table
