"""Entries of branch stacks that differ in nothing a capture keeps, added up (``native/perf_branches.c``)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tdprof.capture.schema import BRANCHES
from tdprof.capture.tables import TableWriter
from tdprof.decode.perf.attr import Attr
from tdprof.decode.perf.columns import NOT_RECORDED, Samples, Table
from tdprof.decode.perf.groups import WHOLE_RECORDING_NS, ProcessChanges, SampleIntervals, SumTable, native_samples
from tdprof.decode.perf.layout import BRANCH_CALL_STACK
from tdprof.linux.perf_abi import SampleType
from tdprof.model.addresses import KERNEL_ADDRESS
from tdprof.model.arrays import U64, distinct
from tdprof.native.perf_records import PerfBranchSums

# Bits of struct perf_branch_entry in linux/perf_event.h, as a little-endian machine has them.
_MISPREDICTED, _PREDICTED = np.uint64(1), np.uint64(2)
_CYCLES_SHIFT, _CYCLES_MAX = np.uint64(4), np.uint64(0xFFFF)
_KIND = np.uint64((1 << 33) - 1 & ~(0xFFFF << 4 | 3))
_IN_TRANSACTION, _ABORTED = np.uint64(1 << 2), np.uint64(1 << 3)

# PERF_BR_*; and where that is PERF_BR_EXTEND_ABI, PERF_BR_NEW_*, whose last five arm64 has given a meaning.
_TYPES = (
    *(None, "conditional", "unconditional", "indirect", "call", "indirect call", "return", "system call"),
    *("system return", "conditional call", "conditional return", "exception return", "interrupt"),
    *("system error", "outside transaction"),
)
_EXTENDED = len(_TYPES)
_NEW_TYPES = (
    *("alignment fault", "data fault", "instruction fault", "fast interrupt"),
    *("debug halt", "debug exit", "debug instruction", "debug data"),
)
_SPECULATION = (None, "wrong path", "not speculative", "correct path")  # PERF_BR_SPEC_*
_PRIVILEGE = (None, "user", "kernel", "hypervisor")  # PERF_BR_PRIV_*

SUM = np.dtype(
    [
        ("time_ns", "u8"),  # end of the interval the samples fell into
        ("from", "u8"),
        ("to", "u8"),
        ("kind", "u8"),  # flags but for the prediction and the cycles
        ("count", "u8"),
        ("stacks", "u8"),
        ("mispredicted", "u8"),
        ("predicted", "u8"),
        ("cycles", "u8"),
        ("with_cycles", "u8"),
        ("cycles_at_limit", "u8"),
        ("last_sample", "u8"),
        ("event", "u4"),
        ("pid", "u4"),
    ]
)
_KEYS = ["time_ns", "event", "pid", "from", "to", "kind"]
# An entry has 24 bytes. Compressed ones may be more, but most are of branches that were there before.
_SPARE_ROWS, _BYTES_A_ROW = 1 << 18, 12
_COUNTS = ("count", "stacks", "mispredicted", "predicted", "cycles", "with_cycles", "cycles_at_limit")


class BranchSums(SumTable):
    """Adds entries of branch stacks up; full tables come out while adding, the last one from ``flush``."""

    _table: PerfBranchSums

    def __init__(self, intervals: SampleIntervals) -> None:
        super().__init__(intervals, SUM, PerfBranchSums)

    @property
    def unknown_events(self) -> int:
        """Entries of samples of no known event, which are left out."""
        return int(self._table.unknown_events)

    def add(self, samples: Samples, branches: Table) -> Iterator[Table]:
        """Add a batch's entries (rows of ``BRANCH``); yields rows of ``SUM`` whenever the table is full."""
        if self._library is None:
            self._add_in_numpy(samples, branches)
            yield from self.flush()
            return
        columns, _held = native_samples(samples)
        branches = np.ascontiguousarray(branches)
        add = self._library.tdprof_perf_sum_branches
        done, sums = 0, ctypes.byref(self._table)
        while (done := add(sums, ctypes.byref(columns), branches.ctypes.data, len(branches), done)) < len(branches):
            yield from self.flush()

    def _add_in_numpy(self, samples: Samples, branches: Table) -> None:
        """The same with NumPy alone; every batch is a table of its own."""
        sample = branches["sample"].astype(np.int64)
        is_unknown = samples.event[sample] >= len(self._intervals.event_numbers)
        self._table.unknown_events += int(is_unknown.sum())
        event = self._intervals.events_of(samples)[sample]
        kept = event != NOT_RECORDED
        sample, branches = sample[kept], branches[kept]
        flags = branches["flags"]
        keys = np.empty(len(sample), [(name, SUM[name]) for name in _KEYS])
        keys["event"], keys["pid"], keys["kind"] = event[kept], samples.pid[sample], flags & _KIND
        keys["from"], keys["to"] = branches["from"], branches["to"]
        keys["time_ns"] = self._intervals.ends(keys["pid"], samples.time_ns[sample])
        distinct, which = np.unique(keys, return_inverse=True)
        table = np.zeros(len(distinct), SUM)
        for name in _KEYS:
            table[name] = distinct[name]
        cycles = flags >> _CYCLES_SHIFT & _CYCLES_MAX
        prediction = flags & (_MISPREDICTED | _PREDICTED)
        values = {
            "count": np.ones(len(sample), bool),
            "mispredicted": prediction == _MISPREDICTED,
            "predicted": prediction == _PREDICTED,
            "cycles": cycles,
            "with_cycles": cycles > 0,
            "cycles_at_limit": cycles == _CYCLES_MAX,
        }
        for name, value in values.items():
            np.add.at(table[name], which, value.astype(np.uint64))
        stacks = np.unique(np.stack([which, sample]), axis=1)[0]
        np.add.at(table["stacks"], stacks, np.uint64(1))
        self._pending.append(table)


def branch_table(rows: Table, end_ns: int) -> pa.Table:
    """Rows of ``SUM`` as rows of the capture's table.

    Args:
        rows: what was added up.
        end_ns: time of the last sample so far, where the last interval ends.
    """
    kind = rows["kind"]
    new_type, type_ = kind >> np.uint64(26) & np.uint64(15), kind >> np.uint64(20) & np.uint64(15)
    columns = {name: pa.array(np.ascontiguousarray(rows[name])) for name in ("event", "pid", *_COUNTS)}
    columns |= {
        "time_ns": pa.array(np.minimum(rows["time_ns"], np.uint64(end_ns))),
        "from_address": _address(rows["from"]),
        "to_address": _address(rows["to"]),
        "type": _words(np.where(type_ == _EXTENDED, np.uint64(_EXTENDED) + new_type, type_), (*_TYPES, *_NEW_TYPES)),
        "in_transaction": pa.array(kind & _IN_TRANSACTION != 0),
        "aborted": pa.array(kind & _ABORTED != 0),
        "speculation": _words(kind >> np.uint64(24) & np.uint64(3), _SPECULATION),
        "privilege": _words(kind >> np.uint64(30) & np.uint64(7), _PRIVILEGE),
    }
    return pa.table([columns[name] for name in BRANCHES.names], names=BRANCHES.names).cast(BRANCHES)


def _address(values: U64) -> pa.Array:
    """Null for 0, which stands for an address that was not recorded."""
    return pa.array(np.ascontiguousarray(values), mask=values == 0)


def _words(codes: U64, words: tuple[str | None, ...]) -> pa.Array:
    """The word of each code; null for a code without one."""
    known = np.array([number < len(words) and words[number] is not None for number in range(16 + len(words))])
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), mask=~known[codes.astype(np.int64)]), [word or "" for word in words]
    )


class BranchTable:
    """Adds the branch stacks of a recording up and writes the capture's table; without branch stacks it does nothing.

    Args:
        attrs: the file's events.
        numbers: the capture's number of each, ``NOT_RECORDED`` for those that are left out.
        changes: when processes' mappings changed.
        writer: where the rows go.
        size_bytes: of the recording, which bounds how many rows there may be.

    Attributes:
        notes: what a reader of the numbers should know, a sentence each.
    """

    def __init__(
        self,
        attrs: Sequence[Attr],
        numbers: Sequence[int],
        changes: ProcessChanges,
        writer: TableWriter,
        size_bytes: int,
    ) -> None:
        recorded = [bool(attr.sample_type & SampleType.BRANCH_STACK) for attr in attrs]
        # perf record --call-graph lbr has the hardware drop a call when it returns.
        wanted = [
            has and not attr.branch_sample_type & BRANCH_CALL_STACK for has, attr in zip(recorded, attrs, strict=True)
        ]
        self._has_any = any(wanted)
        self.notes = [
            f"branch stacks of {attr.name} hold its call stacks (--call-graph lbr), no branches: left out"
            for has, is_wanted, attr in zip(recorded, wanted, attrs, strict=True)
            if has and not is_wanted
        ]
        kept = [number if is_wanted else NOT_RECORDED for number, is_wanted in zip(numbers, wanted, strict=True)]
        self._intervals = SampleIntervals(kept, changes, WHOLE_RECORDING_NS)
        self._sums: BranchSums | None = None  # its memory is taken when the first entries come
        self._writer = writer
        self._end_ns = 0
        self._kernel = np.empty(0, np.uint64)
        self._may_write = _SPARE_ROWS + size_bytes // _BYTES_A_ROW
        self._left_out = 0

    def add(self, samples: Samples, branches: Table) -> None:
        """Add a batch's entries, which number its samples."""
        if not len(branches):
            return
        self._sums = self._sums or BranchSums(self._intervals)
        self._end_ns = max(self._end_ns, int(samples.time_ns.max()))
        for rows in self._sums.add(samples, branches):
            self._write(rows)

    def finish(self) -> U64:
        """Write what is left; returns the distinct kernel addresses of all entries."""
        for rows in self._sums.flush() if self._sums else ():
            self._write(rows)
        if self._left_out:
            self.notes.append(f"{self._left_out:,} branch stack entries are left out: no file of this size has as many")
        if self._has_any and self._sums is None:
            self._writer.write("branches", BRANCHES.empty_table())
            self.notes.append("branch stacks were asked for, and none holds a branch")
        return self._kernel

    @property
    def unknown_events(self) -> int:
        """Entries of samples of an event that the file does not describe, which are left out."""
        return self._sums.unknown_events if self._sums else 0

    def _write(self, rows: Table) -> None:
        self._left_out += int(rows["count"][self._may_write :].sum())
        rows = rows[: self._may_write]
        self._may_write -= len(rows)
        addresses = np.concatenate([rows["from"], rows["to"]])
        self._kernel = distinct(np.concatenate([self._kernel, addresses[addresses >= KERNEL_ADDRESS]]))
        self._writer.write("branches", branch_table(rows, self._end_ns))
