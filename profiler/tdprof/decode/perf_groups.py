"""Samples that differ in nothing a capture keeps, added up: a capture's size follows what ran, not how often."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tdprof.decode.perf_layout import NOT_RECORDED, SAMPLE_COLUMNS, U32, U64, Samples, Table
from tdprof.decode.perf_records import SampleColumns
from tdprof.native import load_native

INTERVAL_NS = 1_000_000_000
WHOLE_RECORDING_NS = 2**63  # an interval that no recording leaves
_CAPACITY = 1 << 17

GROUP = np.dtype(
    [
        ("time_ns", "u8"),  # end of the interval the samples fell into
        ("count", "u8"),
        ("weight", "u8"),  # sum of the periods
        ("event", "u4"),
        ("pid", "u4"),
        ("tid", "u4"),
        ("user_chain", "i4"),
        ("kernel_chain", "i4"),
        ("pad", "u4"),
    ]
)
_KEYS = ["time_ns", "event", "pid", "tid", "user_chain", "kernel_chain"]


@dataclass(frozen=True, slots=True)
class Changes:
    """When a process's mappings or its threads' names changed: intervals end there, so that time tells which held.

    Attributes:
        pid, time_ns: equally long, sorted by pid, then time.
    """

    pid: U32
    time_ns: U64


def sorted_changes(pid: U32, time_ns: U64) -> Changes:
    """Changes in any order; those at time 0 were before the recording and end no interval."""
    kept = time_ns > 0
    pid, time_ns = pid[kept], time_ns[kept]
    order = np.lexsort((time_ns, pid))
    return Changes(np.ascontiguousarray(pid[order]), np.ascontiguousarray(time_ns[order]))


class _Groups(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("slot_mask", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("interval_ns", ctypes.c_uint64),
        ("event_number", ctypes.c_void_p),
        ("events", ctypes.c_uint64),
        ("change_pid", ctypes.c_void_p),
        ("change_ns", ctypes.c_void_p),
        ("changes", ctypes.c_uint64),
    ]


class SampleGroups:
    """Adds samples up; full tables come out while adding, the last one from ``flush``.

    Args:
        event_numbers: the capture's number of each event of the file, ``NOT_RECORDED`` for those it leaves out.
        changes: where intervals end early.
        interval_ns: how long intervals are.
    """

    def __init__(self, event_numbers: Sequence[int], changes: Changes, interval_ns: int = INTERVAL_NS) -> None:
        self._interval_ns = interval_ns
        self._events = np.array(event_numbers, np.uint32)
        self._changes = changes
        self._library = load_native()
        self._pending: list[Table] = []
        self._rows = np.empty(_CAPACITY, GROUP)
        self._slots = np.zeros(2 * _CAPACITY, np.uint64)
        self._groups = _Groups(
            rows=self._rows.ctypes.data,
            slots=self._slots.ctypes.data,
            slot_mask=len(self._slots) - 1,
            capacity=len(self._rows),
            seed=int.from_bytes(os.urandom(8), "little"),
            interval_ns=interval_ns,
            event_number=self._events.ctypes.data,
            events=len(self._events),
            change_pid=changes.pid.ctypes.data,
            change_ns=changes.time_ns.ctypes.data,
            changes=len(changes.pid),
        )

    def add(self, samples: Samples) -> Iterator[Table]:
        """Add samples; yields rows of ``GROUP`` whenever the table is full."""
        if self._library is None:
            yield from self._add_python(samples)
            return
        columns = SampleColumns(rows=len(samples))
        held = {name: np.ascontiguousarray(getattr(samples, name)) for name in SAMPLE_COLUMNS}
        for name, column in held.items():
            setattr(columns, name, column.ctypes.data)
        group = self._library.tdprof_perf_group
        group.argtypes = [ctypes.POINTER(_Groups), ctypes.POINTER(SampleColumns), ctypes.c_uint64]
        group.restype = ctypes.c_uint64
        done = 0
        while (done := group(ctypes.byref(self._groups), ctypes.byref(columns), done)) < len(samples):
            yield from self.flush()

    def flush(self) -> Iterator[Table]:
        """The rows added up since the last full table, if any."""
        rows = [self._rows[: self._groups.count].copy(), *self._pending]
        self._groups.count = 0
        self._slots[:] = 0
        self._pending = []
        yield from (table for table in rows if len(table))

    def _add_python(self, samples: Samples) -> Iterator[Table]:
        """The same with NumPy alone; every batch is a table of its own."""
        known = samples.event < len(self._events)
        event = np.where(known, self._events[np.where(known, samples.event, 0)], NOT_RECORDED)
        kept = event != NOT_RECORDED
        keys = np.empty(int(kept.sum()), [(name, GROUP[name]) for name in _KEYS])
        keys["event"] = event[kept]
        for name in ("pid", "tid", "user_chain", "kernel_chain"):
            keys[name] = getattr(samples, name)[kept]
        time_ns = samples.time_ns[kept]
        end = time_ns - time_ns % np.uint64(self._interval_ns) + np.uint64(self._interval_ns - 1)
        end[end < time_ns] = 2**64 - 1  # the last interval is cut short by the type
        for pid in np.unique(keys["pid"]):
            times = self._changes.time_ns[self._changes.pid == pid]
            mine = np.flatnonzero(keys["pid"] == pid)
            at = np.searchsorted(times, time_ns[mine], side="right")
            has_next = at < len(times)
            rows = mine[has_next]
            end[rows] = np.minimum(end[rows], times[at[has_next]] - np.uint64(1))
        keys["time_ns"] = end
        distinct, which = np.unique(keys, return_inverse=True)
        table = np.zeros(len(distinct), GROUP)
        for name in _KEYS:
            table[name] = distinct[name]
        np.add.at(table["count"], which, np.uint64(1))
        np.add.at(table["weight"], which, samples.period[kept])
        yield table
