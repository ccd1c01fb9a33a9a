"""SPE records as samples: added up by thread, instruction, latencies and data source, in bounded memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from arm_spe import Kind, RecordBatch
from tdprof.decode.spe.data_sources import LEVEL_ORDER, Encoding, Level, encoding_of, source_codes, sources
from tdprof.decode.spe.row_sums import stamped_threads, thread_of
from tdprof.decode.spe.spans import AuxSpan, SpeInput
from tdprof.model.arrays import I64
from tdprof.values import dataclass

LATENCIES = {"total_latency": Kind.TOT, "issue_latency": Kind.ISSUE, "translation_latency": Kind.XLAT}
NO_LATENCY = -1
_GROUPED_ROWS, _MOST_WAITING = 1 << 15, 1024  # rows and batches that are added up together
_Columns = dict[str, NDArray[Any]]
_KEYS = ("tid", "pc", *LATENCIES, "source")
_SCHEMA = pa.schema(
    [
        pa.field("tid", pa.uint64()),
        pa.field("pc", pa.uint64()),
        *(pa.field(name, pa.int64()) for name in (*LATENCIES, "source", "records", "latency_cycles")),
    ]
)
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
# Of each code of `_sources`: none, then each level without and with another cache that gave the line.
_DATA_SRC = (None, *(_LEVEL_WORDS[level] for level in LEVEL_ORDER for _ in range(2)))
_SNOOP = (None, *([None, "Hit"] * len(LEVEL_ORDER)))


@dataclass(frozen=True, slots=True)
class LatencyDetail:
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
_ALL, _TOTAL = tuple(LATENCIES), ("total_latency",)
DETAILS = (
    LatencyDetail(0, _ALL),
    LatencyDetail(3, _ALL),
    LatencyDetail(2, _TOTAL),
    LatencyDetail(1, _TOTAL),
    LatencyDetail(0, ()),
)


@dataclass(frozen=True, slots=True)
class AddedUp:
    """Distinct samples.

    Attributes:
        table: ``tid`` (``NO_TID`` where nothing tells) with its stage, as stamped by the input's stages, ``pc``,
            latencies in cycles (``NO_LATENCY``: none), ``data_src`` and ``snoop_status`` of loads, ``records``,
            ``latency_cycles``: exact sum of total latencies.
        detail: what was kept of the latencies.
    """

    table: pa.Table
    detail: LatencyDetail


class SampleSums:
    """Adds records up as they are decoded, in as much detail as fits.

    Args:
        source: the data that they are of.
        most_rows: rows of the result, unless there are more combinations of thread, instruction and data source.
        progress: told how far it is.
    """

    def __init__(self, source: SpeInput, most_rows: int, progress: Callable[[str], None] = lambda _: None) -> None:
        self._source = source
        self._most_rows = most_rows
        self._progress = progress
        self._level, self._parts, self._rows, self._records = 0, [_SCHEMA.empty_table()], 0, 0
        self._waiting, self._waiting_rows = list[_Columns](), 0
        self._too_many = 4 * most_rows

    def add(self, batch: RecordBatch, span: AuxSpan) -> None:
        """Add a batch of one of the source's spans."""
        self._waiting.append(_keyed(batch, span, self._source))
        self._waiting_rows += len(batch)
        # Grouping costs by the call more than by the row, and spans may be short.
        if self._waiting_rows >= _GROUPED_ROWS or len(self._waiting) >= _MOST_WAITING:
            self._group()

    def _group(self) -> None:
        """Add up what waits."""
        joined = {name: np.concatenate([each[name] for each in self._waiting]) for name in _SCHEMA.names}
        self._parts.append(_grouped([pa.table(joined).cast(_SCHEMA)], DETAILS[self._level]))
        self._rows += len(self._parts[-1])
        self._records += self._waiting_rows
        self._waiting, self._waiting_rows = [], 0
        if self._rows > self._too_many:
            self._progress(f"adding up SPE records: {self._records:,}")
            table, self._level = _fit(self._parts, self._level, 2 * self._most_rows)
            self._parts, self._rows = [table], len(table)
            self._too_many = max(self._too_many, 2 * len(table))

    def finish(self) -> AddedUp:
        """The sums of what has been checked to be in the source's files still."""
        if self._waiting:
            self._group()
        table, level = _fit(self._parts, self._level, self._most_rows)
        which = table["source"].combine_chunks()
        for name, words in (("data_src", _DATA_SRC), ("snoop_status", _SNOOP)):
            table = table.append_column(name, pa.array(words, pa.string()).take(which))
        return AddedUp(table, DETAILS[level])


def _fit(parts: list[pa.Table], level: int, most_rows: int) -> tuple[pa.Table, int]:
    """Add up, in less detail until it fits or there is none less."""
    table = _grouped(parts, DETAILS[level])
    while len(table) > most_rows and level + 1 < len(DETAILS):
        level += 1
        table = _grouped([table], DETAILS[level])
    return table, level


def _keyed(batch: RecordBatch, span: AuxSpan, source: SpeInput) -> _Columns:
    """What is kept of a batch, copied: the decoder writes the next one into the same memory."""
    stamped = stamped_threads(batch, span, source)
    columns = {
        "tid": thread_of(batch, span, source) if stamped is None else stamped,
        "pc": batch["pc"].view(np.uint64),
        "source": _sources(batch, span),
        "records": np.ones(len(batch), np.int64),
        "latency_cycles": np.where(batch.has(Kind.TOT), batch["total_latency"], 0),
    }
    for name, kind in LATENCIES.items():
        columns[name] = np.where(batch.has(kind), batch[name].astype(np.int64), NO_LATENCY)
    return {name: column.copy() for name, column in columns.items()}


def _sources(batch: RecordBatch, span: AuxSpan) -> NDArray[np.int64]:
    """int64[n]: of loads, position in ``_DATA_SRC`` and ``_SNOOP``; 0 for what is no load."""
    encoding = encoding_of(span.midr)
    codes, is_load = source_codes(batch, encoding)
    found: NDArray[np.int64] = np.where(is_load, _source_numbers(encoding)[codes], 0)
    return found


@functools.cache
def _source_numbers(encoding: Encoding | None) -> I64:
    return np.array([1 + 2 * LEVEL_ORDER.index(each.level) + each.is_snooped for each in sources(encoding)], np.int64)


def _grouped(parts: list[pa.Table], detail: LatencyDetail) -> pa.Table:
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
