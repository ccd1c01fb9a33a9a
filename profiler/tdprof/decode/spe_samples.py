"""SPE records as samples: added up by thread, instruction, latencies and data source, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from arm_spe import DecodeCounts
from tdprof.decode.perf_layout import NOT_RECORDED
from tdprof.decode.spe_sources import Level, Source, encoding_of, sources
from tdprof.decode.spe_spans import AuxSpan, SpeInput
from tdprof.decode.spe_table import decode_tables

I64 = NDArray[np.int64]
LATENCIES = ("total_latency", "issue_latency", "translation_latency")
NO_LATENCY = -1
_KEYS = ("tid", "pc", *LATENCIES, "data_src", "snoop_status")
# The words that perf_data_converter uses for perf's memory levels; those it has no word for are of the same make.
_LEVEL_WORDS = {
    Level.L1: "L1",
    Level.L2: "L2",
    Level.LLC: "L3",
    Level.PEER: "Peer Cache",
    Level.DRAM: "Local DRAM",
    Level.REMOTE: "Remote Chip",
    Level.DEVICE: "IO Memory",
    Level.UNKNOWN: "Unknown Level",
}
_SNOOP_HIT = "Hit"


@dataclass(frozen=True, slots=True)
class Detail:
    """What is kept of latencies: the highest bits of each, and which.

    Attributes:
        bits: significant ones, the rest become zero; 0: all.
        latencies: the others are dropped.
    """

    bits: int
    latencies: tuple[str, ...]

    @property
    def text(self) -> str:
        """What a reader should know of it; empty if nothing is lost."""
        if not self.latencies:
            return "latencies are left out"
        rounded = f"latencies are rounded down to {self.bits} significant bits" if self.bits else ""
        dropped = ", ".join(latency for latency in LATENCIES if latency not in self.latencies)
        return "; ".join(filter(None, [rounded, f"{dropped} left out" if dropped else ""]))


# Finest first: a long recording has more distinct records than any viewer opens.
DETAILS = (
    Detail(0, LATENCIES),
    Detail(3, LATENCIES),
    Detail(2, LATENCIES[:1]),
    Detail(1, LATENCIES[:1]),
    Detail(0, ()),
)


@dataclass(frozen=True, slots=True)
class AddedUp:
    """Distinct samples.

    Attributes:
        table: ``tid`` (``NOT_RECORDED`` where nothing tells), ``pc``, latencies in cycles (``NO_LATENCY``: none),
            ``data_src`` and ``snoop_status`` of loads, ``records``, ``latency_cycles``: exact sum of total latencies.
        detail: what was kept of the latencies.
    """

    table: pa.Table
    detail: Detail


def add_up_samples(
    source: SpeInput, *, workers: int, most_rows: int, progress: Callable[[str], None] = lambda _: None
) -> AddedUp:
    """Add all records up, in as much detail as fits.

    Args:
        source: the data.
        workers: threads that decode.
        most_rows: rows of the result, unless there are more combinations of thread, instruction and data source.
        progress: told how far it is.
    """
    level, parts, rows, records = 0, [_keyed_schema().empty_table()], 0, 0
    too_many = 4 * most_rows
    for span, batch in decode_tables(source, DecodeCounts(), workers=workers):
        parts.append(_grouped([_keyed(span, batch)], DETAILS[level]))
        rows += len(parts[-1])
        records += len(batch)
        if rows > too_many:
            progress(f"adding up SPE records: {records:,}")
            table, level = _fit(parts, level, 2 * most_rows)
            parts, rows, too_many = [table], len(table), max(too_many, 2 * len(table))
    table, level = _fit(parts, level, most_rows)
    return AddedUp(table, DETAILS[level])


def _fit(parts: list[pa.Table], level: int, most_rows: int) -> tuple[pa.Table, int]:
    """Add up, in less detail until it fits or there is none less."""
    table = _grouped(parts, DETAILS[level])
    while len(table) > most_rows and level + 1 < len(DETAILS):
        level += 1
        table = _grouped([table], DETAILS[level])
    return table, level


def _keyed_schema() -> pa.Schema:
    types = {"tid": pa.uint64(), "pc": pa.uint64(), "data_src": pa.string(), "snoop_status": pa.string()}
    keys = [pa.field(name, types.get(name, pa.int64())) for name in _KEYS]
    return pa.schema([*keys, pa.field("records", pa.int64()), pa.field("latency_cycles", pa.int64())])


def _keyed(span: AuxSpan, batch: pa.RecordBatch) -> pa.Table:
    known = sources(encoding_of(span.midr))
    which = batch["source"].indices
    tid = pa.scalar(NOT_RECORDED if span.tid is None else span.tid, pa.uint64())
    columns = {
        "tid": batch["context"].cast(pa.uint64()).fill_null(tid),
        "pc": batch["pc"],
        "data_src": _words(known, lambda source: _LEVEL_WORDS[source.level]).take(which),
        "snoop_status": _words(known, lambda source: _SNOOP_HIT if source.is_snooped else None).take(which),
        "records": pa.array(np.ones(len(batch), np.int64)),
        "latency_cycles": batch["total_latency"].cast(pa.int64()).fill_null(0),
    }
    for name in LATENCIES:
        columns[name] = batch[name].cast(pa.int64()).fill_null(NO_LATENCY)
    return pa.table([columns[name] for name in _keyed_schema().names], schema=_keyed_schema())


def _words(known: list[Source], word: Callable[[Source], str | None]) -> pa.Array:
    return pa.array([word(source) for source in known], pa.string())


def _grouped(parts: list[pa.Table], detail: Detail) -> pa.Table:
    table = pa.concat_tables(parts)
    for name in LATENCIES:
        cycles = table[name].to_numpy()
        kept = _round_down(cycles, detail.bits) if name in detail.latencies else np.full(len(cycles), NO_LATENCY)
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(kept, pa.int64()))
    summed = table.group_by(list(_KEYS)).aggregate([("records", "sum"), ("latency_cycles", "sum")])
    return summed.rename_columns([name.removesuffix("_sum") for name in summed.column_names]).select(table.column_names)


def _round_down(cycles: I64, bits: int) -> I64:
    """The highest bits of each count, the others zero; NO_LATENCY stays."""
    if not bits:
        return cycles
    _, exponent = np.frexp(np.maximum(cycles, 0).astype(np.float64))
    shift = np.maximum(exponent - bits, 0)
    return np.where(cycles < 0, cycles, cycles >> shift << shift)


def pids_of(tids: NDArray[np.uint64], mappings: pa.Table, processes: pa.Table) -> NDArray[np.uint32]:
    """uint32[n]: the process of each thread.

    A thread that side-band does not name is taken for a process's first; a record without a thread belongs to the only
    process there is, if there is one.
    """
    pid_of = dict(zip(processes["tid"].to_pylist(), processes["pid"].to_pylist(), strict=True))
    mapped = set(mappings["pid"].to_pylist())
    pid_of[NOT_RECORDED] = mapped.pop() if len(mapped) == 1 else NOT_RECORDED
    distinct, which = np.unique(tids, return_inverse=True)
    pids: NDArray[np.uint32] = np.array([pid_of.get(tid, tid) for tid in distinct.tolist()], np.uint32)
    return pids[which.reshape(-1)]
