"""Side-band records into a capture's mapping and process tables."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tdprof.capture.schema import MAPPINGS, PROCESSES, SPE_SPANS
from tdprof.decode.perf.columns import SIDE_BAND, SideBand, Table
from tdprof.decode.perf.layout import MISC_COMM_EXEC
from tdprof.decode.spe.switches import is_loss
from tdprof.decode.spooled_files import SpoolDamage, spooled_lines
from tdprof.linux.perf_abi import RecordType
from tdprof.values import dataclass

_OF_PROCESSES = (RecordType.MMAP, RecordType.MMAP2, RecordType.COMM, RecordType.FORK, RecordType.EXIT)
# What a line raises that is not what it should be.
NONSENSE = (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError)


@dataclass(slots=True)
class SideBandTables:
    """The tables, and what the kernel said it lost.

    Attributes:
        mappings, processes: as ``capture.schema`` has them, in time order.
        lost_records: records that full ring buffers had no room for.
        throttled: times an event was stopped for interrupting too often.
        of_other_rights: the name of each program that the kernel took the events off as it began.
    """

    mappings: pa.Table
    processes: pa.Table
    lost_records: int = 0
    throttled: int = 0
    of_other_rights: list[str] = field(default_factory=list)


def side_band_tables(batches: Sequence[SideBand]) -> SideBandTables:
    """Sort and convert side-band records; batches may come from several CPUs, each in its own time order."""
    mappings, processes = [MAPPINGS.empty_table()], [PROCESSES.empty_table()]
    lost = 0
    throttled = 0
    for batch in (batch for batch in batches if len(batch.rows)):  # most have none, and an Arrow table costs its time
        mappings.append(_mapping_rows(batch))
        processes.append(_process_rows(batch))
        types = batch.rows["type"]
        throttled += int((types == RecordType.THROTTLE).sum())
        lost += lost_records(batch)
    other_rights = [] if lost else _of_other_rights(batches)
    return SideBandTables(_in_time_order(mappings), _in_time_order(processes), lost, throttled, other_rights)


def lost_records(batch: SideBand) -> int:
    """How many records the kernel says that it had no room for."""
    return int(batch.rows["value"][is_loss(batch.rows)].sum())


def _of_other_rights(batches: Sequence[SideBand]) -> list[str]:
    """Names of programs that ran without events.

    Where a program gains privileges the kernel ends a task's events (begin_new_exec in fs/exec.c), which it records as
    the task's end: before the program's first mapping, which each other one has.
    """
    types, misc, pid, tid, time_ns = (
        np.concatenate([np.empty(0, SIDE_BAND[name]), *(batch.rows[name] for batch in batches)])
        for name in ("type", "misc", "pid", "tid", "time_ns")
    )
    chosen = np.flatnonzero(np.isin(types, _OF_PROCESSES))
    order = chosen[np.lexsort((time_ns[chosen], pid[chosen]))]
    now, following = order[:-1], order[1:]
    is_exec = (types[now] == RecordType.COMM) & (misc[now] & MISC_COMM_EXEC != 0)
    ended = now[is_exec & (types[following] == RecordType.EXIT) & (tid[following] == tid[now])]
    ends = np.cumsum([len(batch.rows) for batch in batches])
    batch_of = np.searchsorted(ends, ended, "right").tolist()
    names = []
    for at, number in zip(ended.tolist(), batch_of, strict=True):
        row = at - int(ends[number]) + len(batches[number].rows)
        names += _names(batches[number], batches[number].rows[row : row + 1])
    return names


def of_processes(batches: Sequence[SideBand], roots: Collection[int]) -> list[SideBand]:
    """The records of some processes and of all that they started, and those that belong to none.

    Args:
        batches: from the rings of all CPUs, whatever ran there.
        roots: processes that were there from the beginning.
    """
    rows = np.concatenate([np.empty(0, SIDE_BAND), *(batch.rows for batch in batches)])
    forks = rows[(rows["type"] == RecordType.FORK) & (rows["pid"] != rows["ppid"])]
    forks = forks[np.argsort(forks["time_ns"], kind="stable")]
    known = set(roots)
    for pid, parent in zip(forks["pid"].tolist(), forks["ppid"].tolist(), strict=True):
        if parent in known:
            known.add(pid)
    wanted = np.array([pid for pid in known if not pid >> 32], np.uint32)  # a stranger's capture may name any root
    return [
        replace(
            batch, rows=batch.rows[np.isin(batch.rows["pid"], wanted) | ~np.isin(batch.rows["type"], _OF_PROCESSES)]
        )
        for batch in batches
    ]


def _in_time_order(tables: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables).unify_dictionaries()
    order = np.argsort(table["time_ns"].to_numpy(), kind="stable")
    return table.take(pa.array(order))


def _names(batch: SideBand, rows: Table) -> list[str]:
    """Each row's name; the kernel pads with zeros, and a file name may hold any byte."""
    places = zip(rows["name_offset"].tolist(), rows["name_bytes"].tolist(), strict=True)
    return [batch.names[at : at + size].split(b"\0", 1)[0].decode(errors="replace") for at, size in places]


def _text(values: Iterable[str | None]) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode()


def _mapping_rows(batch: SideBand) -> pa.Table:
    rows = batch.rows[np.isin(batch.rows["type"], (RecordType.MMAP, RecordType.MMAP2))]
    build_ids = [
        bytes(row["build_id"][: row["build_id_bytes"]]).hex() if row["build_id_bytes"] else None for row in rows
    ]
    return pa.table(
        {
            "time_ns": rows["time_ns"],
            "pid": rows["pid"],
            "address": rows["addr"],
            "length": rows["len"],
            "file_offset": rows["pgoff"],
            "path": _text(_names(batch, rows)),
            "build_id": _text(build_ids),
        }
    ).cast(MAPPINGS)


def _process_rows(batch: SideBand) -> pa.Table:
    types = batch.rows["type"]
    rows = batch.rows[np.isin(types, (RecordType.COMM, RecordType.FORK, RecordType.EXIT))]
    is_name = rows["type"] == RecordType.COMM
    is_exec = is_name & (rows["misc"] & MISC_COMM_EXEC != 0)
    is_fork = rows["type"] == RecordType.FORK
    kinds = np.select([is_exec, is_name, is_fork], ["exec", "name", "fork"], "exit")
    names = _names(batch, rows)
    return pa.table(
        {
            "time_ns": rows["time_ns"],
            "kind": _text(kinds.tolist()),
            "pid": rows["pid"],
            "tid": rows["tid"],
            "parent_pid": pa.array(rows["ppid"], mask=~is_fork),
            "parent_tid": pa.array(rows["ptid"], mask=~is_fork),
            "name": _text(name if named else None for name, named in zip(names, is_name, strict=True)),
        }
    ).cast(PROCESSES)


def spe_spans(batch: SideBand, buffer: int) -> pa.Table:
    """The AUX records of one SPE event's ring as rows of ``spe_spans``."""
    rows = batch.rows[batch.rows["type"] == RecordType.AUX]
    return pa.table(
        {
            "time_ns": rows["time_ns"],
            "cpu": rows["cpu"],
            "buffer": np.full(len(rows), buffer, np.uint32),
            "pid": rows["pid"],
            "tid": rows["tid"],
            "offset": rows["addr"],
            "size": rows["len"],
            "flags": rows["flags"],
        }
    ).cast(SPE_SPANS)


def initial_tables(path: Path, damage: SpoolDamage) -> tuple[pa.Table, pa.Table]:
    """Mappings and processes of ``spool/initial.jsonl``, all at time 0; lines that make no sense are damage."""
    mappings: dict[str, list[object]] = {name: [] for name in MAPPINGS.names}
    processes: dict[str, list[object]] = {name: [] for name in PROCESSES.names}
    for line in spooled_lines(path, damage):
        try:
            process = json.loads(line)
            pid = whole_number(process["pid"], 32)
            threads = [(whole_number(tid, 32), plain_text(name)) for tid, name in process["threads"].items()]
            maps = [
                (
                    whole_number(start),
                    whole_number(length),
                    whole_number(offset),
                    plain_text(name),
                    plain_text(build_id),
                )
                for start, length, offset, name, build_id in process["maps"]
            ]
        except NONSENSE:
            damage.bytes += len(line)
            continue
        for tid, name in threads:
            _append(processes, (0, "name", pid, tid, None, None, name))
        for start, length, offset, name, build_id in maps:
            _append(mappings, (0, pid, start, length, offset, name, build_id or None))
    return _table(mappings, MAPPINGS), _table(processes, PROCESSES)


def whole_number(value: object, bits: int = 64) -> int:
    """Raises ValueError for what no column of so many bits holds."""
    number = int(value)  # type: ignore[call-overload]  # whatever is none raises
    if number >> bits:
        raise ValueError
    return int(number)


def plain_text(value: object) -> str:
    """What JSON has as text, which may hold halves of characters, as text that can be written."""
    return str(value).encode(errors="replace").decode()


def _append(columns: dict[str, list[object]], row: Sequence[object]) -> None:
    for column, value in zip(columns.values(), row, strict=True):
        column.append(value)


def _table(columns: dict[str, list[object]], schema: pa.Schema) -> pa.Table:
    arrays = [
        _text(columns[item.name]) if pa.types.is_dictionary(item.type) else pa.array(columns[item.name], item.type)  # type: ignore[arg-type]  # text columns hold text
        for item in schema
    ]
    return pa.table(arrays, names=schema.names).cast(schema)
