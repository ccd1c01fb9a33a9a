"""Which thread ran on a CPU, from the kernel's context-switch records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.capture.schema import SWITCHES
from tdprof.decode.perf.columns import NOT_RECORDED, SideBand, Table
from tdprof.decode.perf.layout import MISC_LOST_SAMPLES_BPF, MISC_SWITCH_OUT
from tdprof.linux.perf_abi import RecordType
from tdprof.model.arrays import I64, U32, U64
from tdprof.model.spe import NO_TID
from tdprof.values import dataclass

_LOSSES = (RecordType.LOST, RecordType.LOST_SAMPLES)
_SWITCHES = (RecordType.SWITCH, RecordType.SWITCH_CPU_WIDE)
_TYPES = (*_SWITCHES, *_LOSSES, RecordType.EXIT)
_MOST_ADDED = 1 << 23
_FIELDS = ("time_ns", "type", "cpu", "tid", "ptid", "misc")
_ROW = np.dtype([(name, "u8" if name == "time_ns" else "u4") for name in _FIELDS])


@dataclass(frozen=True, slots=True, eq=False)
class Switches:
    """One CPU's context switches.

    Attributes:
        time_ns: uint64[n], ascending.
        tid: uint64[n + 1], who ran before the first, and from each on; NO_TID where that is not known.
    """

    time_ns: U64
    tid: U64

    def thread_at(self, time_ns: U64) -> U64:
        """uint64[n]: the thread that ran at each time, or NO_TID. A time at a switch is the new thread's."""
        found: U64 = self.tid[np.searchsorted(self.time_ns, time_ns, side="right")]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class SwitchesByCpu(Mapping[int, Switches]):
    """Those of each CPU that has any, made when it is asked for: a file may name millions of CPUs.

    Attributes:
        cpu: uint32[k], ascending.
        start: int64[k + 1], switches of CPU i are rows ``start[i]`` to ``start[i + 1]``.
        before: uint64[k], who ran before the first.
        time_ns: uint64[n].
        tid: uint64[n], who ran from each on.
    """

    cpu: U32
    start: I64
    before: U64
    time_ns: U64
    tid: U64

    @classmethod
    def of_rows(cls, cpu: U32, time_ns: U64, tid: U64, is_before: NDArray[np.bool_]) -> SwitchesByCpu:
        """Of rows in the order of CPU and time; ``is_before``: who ran before the others, of a CPU its first."""
        is_first = np.ones(len(cpu), bool)
        is_first[1:] = cpu[1:] != cpu[:-1]
        first, kept = np.flatnonzero(is_first), ~is_before
        start = np.concatenate([[0], np.cumsum(kept)])[np.append(first, len(cpu))]
        before = np.where(is_before[first], tid[first], np.uint64(NO_TID))
        return cls(cpu[first], start, before, time_ns[kept], tid[kept])

    def __getitem__(self, cpu: int) -> Switches:
        before, time_ns, tid = self.rows_of(cpu)
        return Switches(time_ns, np.concatenate([np.array([before], np.uint64), tid]))

    def rows_of(self, cpu: int) -> tuple[int, U64, U64]:
        """Who ran before the CPU's first switch; uint64[n], uint64[n]: when and to whom it switched, without a copy.

        Raises:
            KeyError: it has none.
        """
        at = int(np.searchsorted(self.cpu, cpu))
        if at == len(self.cpu) or self.cpu[at] != cpu:
            raise KeyError(cpu)
        rows = slice(self.start[at], self.start[at + 1])
        return int(self.before[at]), self.time_ns[rows], self.tid[rows]

    def __iter__(self) -> Iterator[int]:
        return iter(self.cpu.tolist())

    def __len__(self) -> int:
        return len(self.cpu)


def no_switches() -> SwitchesByCpu:
    """Of a recording without any."""
    none = np.zeros(0, np.uint64)
    return SwitchesByCpu(np.zeros(0, np.uint32), np.zeros(1, np.int64), none, none, none)


def switch_rows(rows: Table) -> Table:
    """What `switches_of` needs of a batch of side-band rows; switches can outnumber all else."""
    kept = np.flatnonzero(np.isin(rows["type"], _TYPES))
    result = np.empty(len(kept), _ROW)
    for name in _FIELDS:  # a row has many more
        result[name] = rows[name][kept]
    return result


def is_loss(rows: Table) -> NDArray[np.bool_]:
    """bool[n]: whether each tells that records were lost."""
    is_lost: NDArray[np.bool_] = np.isin(rows["type"], _LOSSES) & (rows["misc"] & MISC_LOST_SAMPLES_BPF == 0)
    return is_lost


def is_switch(rows: Table) -> NDArray[np.bool_]:
    """bool[n]: whether each tells a context switch."""
    return np.isin(rows["type"], _SWITCHES)


def without_switches(batch: SideBand) -> SideBand:
    """The batch without context switches."""
    return SideBand(batch.rows[~is_switch(batch.rows)], batch.names)


def switches_of(batches: Sequence[Table], windows: Sequence[Sequence[int]] | None = None) -> SwitchesByCpu:
    """The switches of each CPU that has any, or may have had, since records of it were lost.

    A record of a switch names both threads if a CPU was recorded, the recorded thread alone if that was: then nobody is
    known to run after it went, but for one who goes or ends next without having come, since its events were begun while
    it ran. Between two switches with a loss of records between them, nobody is known.

    Args:
        batches: of `switch_rows`; those of a CPU in time order.
        windows: [from, to] of the times in which switches were told, in order; outside nobody is known. None: always.
    """
    rows = np.concatenate([np.empty(0, _ROW), *batches])
    if not is_switch(rows).any():
        return no_switches()
    rows = rows[rows["cpu"] != NOT_RECORDED]
    if windows is not None:  # within which each switch is told, of both threads
        rows = rows[rows["type"] != RecordType.EXIT]
    # Stable: of one switch the record of who goes stands before that of who comes, at the same time or earlier.
    rows = rows[np.lexsort((rows["time_ns"], rows["cpu"]))]
    is_lost = is_loss(rows)
    is_end = rows["type"] == RecordType.EXIT  # which the thread itself tells, where it runs
    is_out = is_end | ((rows["misc"] & MISC_SWITCH_OUT) != 0)
    is_wide = rows["type"] == RecordType.SWITCH_CPU_WIDE
    mine = rows["tid"].astype(np.uint64)
    other = np.where(is_wide, rows["ptid"].astype(np.uint64), np.uint64(NO_TID))
    before, after = np.where(is_out, mine, other), np.where(is_out & ~is_end, other, mine)
    for tid in (before, after):
        tid[is_lost | (tid == NOT_RECORDED)] = NO_TID
    # The records just before a loss do not tell who ran until it: other switches may be what was lost.
    is_followed = rows["cpu"][:-1] == rows["cpu"][1:]
    after[:-1][is_followed & is_lost[1:]] = NO_TID
    if windows is None:  # else two in a row may be of different ones
        is_untold = is_end[:-1] | (after[:-1] == NO_TID)
        ran = is_followed & is_out[1:] & ~is_lost[:-1] & is_untold & (before[1:] != NO_TID)
        after[:-1][ran] = before[1:][ran]
    cpu, time = rows["cpu"].astype(np.uint32), rows["time_ns"].astype(np.uint64)
    if windows is not None:
        cpu, time, before, after = _within(windows, cpu, time, before, after)
    found = SwitchesByCpu.of_rows(cpu, time, after, np.zeros(len(cpu), bool))
    found.before[:] = before[found.start[:-1]]
    return found


def _within(
    windows: Sequence[Sequence[int]], cpu: U32, time: U64, before: U64, after: U64
) -> tuple[U32, U64, U64, U64]:
    """The switches with two more for each CPU and window: to who runs first in it, and to nobody known at its end.

    Nothing is left of more of them than a recording has.
    """
    cpus = np.unique(cpu)
    whole = [window for window in windows if len(window) == 2 and min(window) >= 0]
    bounds = np.array(whole, np.uint64).reshape(-1, 2)
    if len(bounds) * len(cpus) > _MOST_ADDED:
        return cpu[:0], time[:0], before[:0], after[:0]
    count = len(bounds) * len(cpus)
    of_cpu, of_window = np.repeat(cpus, len(bounds)), np.tile(bounds, (len(cpus), 1))
    nobody = np.full(count, NO_TID, np.uint64)
    kind = np.repeat([1, 0, 2], [len(cpu), count, count])  # of one time a window's begin is first, its end last
    cpu, time = np.concatenate([cpu, of_cpu, of_cpu]), np.concatenate([time, of_window[:, 0], of_window[:, 1]])
    before, after = np.concatenate([before, nobody, nobody]), np.concatenate([after, nobody, nobody])
    order = np.lexsort((kind, time, cpu))
    cpu, time, before, after, kind = cpu[order], time[order], before[order], after[order], kind[order]
    begins = np.flatnonzero((kind[:-1] == 0) & (kind[1:] == 1))  # what follows is a switch in it
    after[begins] = before[begins + 1]
    return cpu, time, before, after


def switches_table(switches: SwitchesByCpu) -> pa.Table:
    """Rows of a capture's ``switches`` table; of each CPU the first is of time 0."""
    first = switches.start[:-1]
    cpu = np.repeat(switches.cpu, np.diff(switches.start))
    times, cpus = np.insert(switches.time_ns, first, 0), np.insert(cpu, first, switches.cpu)
    tids = np.insert(switches.tid, first, switches.before)
    return pa.table([times, cpus, pa.array(tids, mask=tids == NO_TID).cast(pa.uint32())], schema=SWITCHES)


def switches_of_table(table: pa.Table) -> SwitchesByCpu:
    """What `switches_table` was made of."""
    time, cpu = table["time_ns"].to_numpy(), table["cpu"].to_numpy()
    tid = table["tid"].cast(pa.uint64()).fill_null(NO_TID).to_numpy()
    order = np.lexsort((time, cpu))
    time, cpu, tid = time[order], cpu[order], tid[order]
    # Before the first time the table tells nothing, except in rows of time 0.
    is_first = np.ones(len(cpu), bool)
    is_first[1:] = cpu[1:] != cpu[:-1]
    return SwitchesByCpu.of_rows(cpu, time, tid, is_first & (time == 0))
