"""Which thread ran on a CPU, from the kernel's context-switch records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.capture.schema import SWITCHES
from tdprof.decode.perf.columns import NOT_RECORDED, SideBand, Table
from tdprof.decode.perf.layout import MISC_SWITCH_OUT
from tdprof.linux.perf_abi import RecordType
from tdprof.model.arrays import U64
from tdprof.model.spe import NO_TID

_LOSSES = (RecordType.LOST, RecordType.LOST_SAMPLES)
_SWITCHES = (RecordType.SWITCH, RecordType.SWITCH_CPU_WIDE)
_TYPES = (*_SWITCHES, *_LOSSES)
_FIELDS = ("time_ns", "type", "cpu", "tid", "ptid", "misc")
_Row = TypeVar("_Row", bound=np.generic)
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


def switch_rows(rows: Table) -> Table:
    """What `switches_of` needs of a batch of side-band rows; switches can outnumber all else."""
    kept = rows[np.isin(rows["type"], _TYPES)]
    result = np.empty(len(kept), _ROW)
    for name in _FIELDS:
        result[name] = kept[name]
    return result


def without_switches(batch: SideBand) -> SideBand:
    """The batch without context switches."""
    return SideBand(batch.rows[~np.isin(batch.rows["type"], _SWITCHES)], batch.names)


def switches_of(batches: Sequence[Table]) -> Mapping[int, Switches]:
    """The switches of each CPU that has any.

    A record of a switch names both threads if a CPU was recorded, the recorded thread alone if that was (then nobody is
    known to run after it went). Between two switches with a loss of records between them, nobody is known.

    Args:
        batches: of `switch_rows`; those of a CPU in time order.
    """
    rows = np.concatenate([np.empty(0, _ROW), *batches])
    rows = rows[rows["cpu"] != NOT_RECORDED]
    # Stable: of one switch the record of who goes stands before that of who comes, at the same time or earlier.
    rows = rows[np.lexsort((rows["time_ns"], rows["cpu"]))]
    by_cpu = {int(mine["cpu"][0]): mine for mine in _parts(rows, rows["cpu"])}
    return {cpu: _switches_of_cpu(mine) for cpu, mine in by_cpu.items() if np.isin(mine["type"], _SWITCHES).any()}


def _parts(rows: NDArray[_Row], cpu: NDArray[np.uint32]) -> list[NDArray[_Row]]:
    """Rows that are sorted by their CPU, one part for each."""
    return np.split(rows, np.flatnonzero(np.diff(cpu)) + 1) if len(rows) else []


def switches_table(switches: Mapping[int, Switches]) -> pa.Table:
    """Rows of a capture's ``switches`` table."""
    parts = [SWITCHES.empty_table()]
    for cpu, of_cpu in switches.items():
        times = np.concatenate([np.zeros(1, np.uint64), of_cpu.time_ns])
        tids = pa.array(of_cpu.tid, mask=of_cpu.tid == NO_TID).cast(pa.uint32())
        parts.append(pa.table([times, np.full(len(times), cpu, np.uint32), tids], schema=SWITCHES))
    return pa.concat_tables(parts)


def switches_of_table(table: pa.Table) -> Mapping[int, Switches]:
    """What `switches_table` was made of, by CPU."""
    time, cpu = table["time_ns"].to_numpy(), table["cpu"].to_numpy()
    tid = table["tid"].cast(pa.uint64()).fill_null(NO_TID).to_numpy()
    found = {}
    order = np.lexsort((time, cpu))
    for rows in _parts(order, cpu[order]):
        # Before the first time the table tells nothing, except in rows of time 0.
        starts = int(time[rows[0]] == 0)
        before = tid[rows[:starts]] if starts else np.array([NO_TID], np.uint64)
        found[int(cpu[rows[0]])] = Switches(time[rows[starts:]], np.concatenate([before, tid[rows[starts:]]]))
    return found


def _switches_of_cpu(rows: Table) -> Switches:
    is_lost = np.isin(rows["type"], _LOSSES)
    is_out = (rows["misc"] & MISC_SWITCH_OUT) != 0
    is_wide = rows["type"] == RecordType.SWITCH_CPU_WIDE
    mine = rows["tid"].astype(np.uint64)
    other = np.where(is_wide, rows["ptid"].astype(np.uint64), np.uint64(NO_TID))
    before, after = np.where(is_out, mine, other), np.where(is_out, other, mine)
    before[is_lost] = after[is_lost] = NO_TID
    tid = np.concatenate([before[:1], after])
    # The records just before a loss do not tell who ran until it: other switches may be what was lost.
    tid[:-1][is_lost] = NO_TID
    tid[tid == NOT_RECORDED] = NO_TID
    return Switches(rows["time_ns"].astype(np.uint64), tid)
