"""SPE data into the rows of a report: by function, line, instruction, data source, cache line or page."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arm_spe.tally import LATENCIES, Key, Lane, Tallied
from tdprof.capture.manifest import SpeInfo
from tdprof.decode.spe.counting import (
    LINE_BYTES,
    NOTHING,
    PAGE_BYTES,
    Counted,
    GroupBy,
    WordUse,
    count_records,
    count_words,
)
from tdprof.decode.spe.data_sources import LEVEL_ORDER
from tdprof.decode.spe.spans import SpeInput
from tdprof.metrics.spe import (
    RATIOS,
    Ratio,
    SamplingCounts,
    grouped_quantiles,
    mean_interval,
    record_weight,
    share_interval,
)
from tdprof.model.arrays import U64
from tdprof.model.spe import QUANTILES, CodeKey, RatioColumn, RecordWeight, SpeReport
from tdprof.pipeline.import_perf import import_perf_data
from tdprof.pipeline.spe_rows import MAX_ROWS, AddressRows, BlockRows, CodeDetail, Placement, SourceRows, SymbolizedRows
from tdprof.pipeline.symbols import DEFAULT_SYMBOLS, SymbolOptions, open_symbolizer
from tdprof.symbolize import demangle
from tdprof.text import plural, printable


class By(StrEnum):
    """What a row of the report is."""

    FUNCTION = "function"
    LINE = "line"
    INSTRUCTION = "instruction"
    SOURCE = "source"
    ADDRESS = "address"  # cache line
    PAGE = "page"


def analyse(
    source: SpeInput,
    by: By,
    tables: Path | None,
    *,
    workers: int,
    recorded: SpeInfo | None = None,
    symbols: SymbolOptions = DEFAULT_SYMBOLS,
) -> SpeReport:
    """Add an input's records up.

    Args:
        source: the data; by cache line read twice, since memory does not hold the records.
        by: what a row is.
        tables: a capture's tables of the same recording, which name code; None: addresses stay addresses.
        workers: threads.
        recorded: how a capture's SPE data was taken, by which records are weighted.
        symbols: where names come from.
    """
    with contextlib.ExitStack() as stack:
        rows = _rows(by, tables, symbols, stack)
        placement = Placement(rows)
        counted = count_records(source, _GROUPS.get(by, GroupBy(Key.CODE)), placement.place, workers=workers)
        # The row of what had no room, unless nothing is in it.
        first = int(not counted.tallied.lanes[:1, Lane.OPERATIONS].any())
        names = placement.names()[first:]
    notes = _notes(counted, source)
    if isinstance(rows, SymbolizedRows):
        notes = [*rows.unreadable, *notes]
        if rows.unknown_processes:
            notes.append(f"{plural(rows.unknown_processes, 'address', 'es')} of no known process")
    if not first:
        notes.append(f"there was room for {len(names) - 1} rows, and what came after them is in the row (others)")
    lanes, cycles = counted.tallied.lanes[first:], counted.tallied.cycles[first:]
    by_name = {what.name: lanes[:, what] for what in _LANE_COUNTS}
    for kind, latency in enumerate(("TOTAL", "ISSUE", "TRANSLATION")):
        by_name |= {f"{latency}_CYCLES": cycles[:, kind], f"{latency}_COUNT": lanes[:, Lane.TOTAL_COUNT + kind]}
    total_operations = counted.counts.records
    sharing: list[str] | None = None
    code: list[CodeKey] | None = None
    if isinstance(rows, SymbolizedRows) and by is not By.INSTRUCTION:
        places = [("(others)", "", "", 0)] * (1 - first) + rows.places()[:MAX_ROWS]
        code = [CodeKey(*place) for place in places]
    threads: U64 | None = None
    if isinstance(rows, BlockRows):
        threads = placement.groups_by_row(len(names) + first)[first:]
        if by is By.ADDRESS:
            lines = rows.blocks[:MAX_ROWS]
            # Where some pairs of line and thread had no room, any line may have more threads than were counted.
            candidates = np.flatnonzero(threads > 1) if first else np.arange(len(lines))
            sharing = [""] * len(names)
            shared = _sharing(count_words(source, lines[candidates]), lines[candidates])
            for row, how in zip(candidates.tolist(), shared, strict=True):
                sharing[1 - first + row] = how
    return SpeReport(
        names=names,
        counts=by_name,
        levels={level.value: lanes[:, Lane.LOADS_BY_LEVEL + number] for number, level in enumerate(LEVEL_ORDER)},
        latencies={name: found[first:] for name, found in _quantiles(counted.tallied).items()},
        ratios={ratio.name: _ratio_column(ratio, by_name) for ratio in RATIOS},
        threads=threads,
        sharing=sharing,
        notes=[*map(printable, notes)],
        total_operations=total_operations,
        weight=weight_of(recorded, total_operations) if recorded else None,
        code=code,
    )


_GROUPS = {
    By.SOURCE: GroupBy(Key.SOURCE),
    By.ADDRESS: GroupBy(Key.ADDRESS, LINE_BYTES),
    By.PAGE: GroupBy(Key.ADDRESS, PAGE_BYTES),
}
_DETAILS = {By.FUNCTION: CodeDetail.FUNCTION, By.LINE: CodeDetail.LINE, By.INSTRUCTION: CodeDetail.INSTRUCTION}
_LANE_COUNTS = tuple(lane for lane in Lane if lane < Lane.LOADS_BY_LEVEL)


def _rows(
    by: By, tables: Path | None, symbols: SymbolOptions, stack: contextlib.ExitStack
) -> SourceRows | BlockRows | AddressRows | SymbolizedRows:
    if by is By.SOURCE:
        return SourceRows()
    if by in (By.ADDRESS, By.PAGE):
        return BlockRows(_GROUPS[by].block_bytes)
    if tables is None:
        return AddressRows()
    symbolizer = stack.enter_context(open_symbolizer(tables, symbols))
    rows = SymbolizedRows(tables, _DETAILS[by], symbolizer.locate, demangle)
    rows.unreadable += symbolizer.unreadable
    return rows


def weight_of(recorded: SpeInfo, records: int) -> RecordWeight | None:
    """What one of ``records`` decoded records stands for; None if neither counts nor a period tell."""
    counts = {name: values for name, values in recorded.sampling.items() if len(values) == 3 and values[2] > 0}
    # One group was scheduled as a whole, so that times matter only beside the records, which were not multiplexed.
    scaled = {name: round(value * enabled / running) for name, (value, enabled, running) in counts.items()}
    sampled = SamplingCounts(
        records,
        population=scaled.get("SAMPLE_POP"),
        feed=scaled.get("SAMPLE_FEED"),
        collision=scaled.get("SAMPLE_COLLISION"),
        filtrate=scaled.get("SAMPLE_FILTRATE"),
    )
    if not recorded.period or not recorded.events:
        return None
    event = recorded.events[0]
    interval = mean_interval(
        recorded.period, has_jitter="jitter=0x1" in event.event, has_even_jitter=event.caps.get("ernd", 0) == 1
    )
    weight = record_weight(sampled, interval)
    if weight.is_measured and sampled.feed:
        return RecordWeight(weight.value, sampled.feed**-0.5, "SAMPLE_POP / SAMPLE_FEED, and what was lost behind them")
    return RecordWeight(weight.value, None, "the mean interval; too low where samples collided")


def _ratio_column(ratio: Ratio, counts: dict[str, U64]) -> RatioColumn:
    share = share_interval(counts[ratio.part], counts[ratio.whole])
    return RatioColumn(share.value * ratio.scale, share.low * ratio.scale, share.high * ratio.scale)


def _sharing(words: WordUse, lines: U64) -> list[str]:
    """What each of some cache lines' sampled accesses say of sharing.

    "false": several threads touch it, one of them stores, and no word of it is touched by two threads; "true": a word
    is touched by several threads and stored to; "": neither.
    """
    line = words.word // np.uint64(LINE_BYTES // 8)
    result = [""] * len(lines)
    stored = np.unique(line[words.is_store])
    at = np.minimum(np.searchsorted(stored, line), max(len(stored) - 1, 0))
    candidate = np.flatnonzero(stored[at] == line) if len(stored) else np.zeros(0, np.int64)
    pairs = np.unique(np.stack([line[candidate], words.tid[candidate]]), axis=1)
    shared_lines, threads = np.unique(pairs[0], return_counts=True)
    word_pairs = np.unique(np.stack([words.word[candidate], words.tid[candidate]]), axis=1)
    shared_words, word_threads = np.unique(word_pairs[0], return_counts=True)
    stored_words = np.unique(words.word[words.is_store])
    truly = shared_words[(word_threads > 1) & np.isin(shared_words, stored_words)]
    truly_shared = set((truly // np.uint64(LINE_BYTES // 8)).tolist())
    row_of = {line: row for row, line in enumerate(lines.tolist())}
    for number in shared_lines[threads > 1].tolist():
        if number in row_of:
            result[row_of[number]] = "true" if number in truly_shared else "false"
    return result


def _quantiles(tallied: Tallied) -> dict[str, NDArray[np.float64]]:
    """float64[rows, len(QUANTILES)] by latency."""
    row_and_kind = (tallied.latency_key >> np.uint64(16)).astype(np.int64)
    found = np.full((len(tallied.lanes) * len(LATENCIES), len(QUANTILES)), np.nan)
    groups, start = np.unique(row_and_kind, return_index=True)
    found[groups] = grouped_quantiles(start, tallied.latency_key & np.uint64(0xFFFF), tallied.latency_count, QUANTILES)
    by_kind = found.reshape(len(tallied.lanes), len(LATENCIES), len(QUANTILES))
    return {name: by_kind[:, kind] for kind, name in enumerate(LATENCIES)}


def _notes(counted: Counted, source: SpeInput) -> list[str]:
    counts, losses = counted.counts, source.losses
    known = {
        "bytes are damaged and left out": counts.damaged_bytes,
        "records were cut off by the end of their span and are left out": counts.open_records,
        "times the kernel reports lost samples (AUX TRUNCATED)": losses.truncated,
        "spans had samples that collided: operations behind slow ones are sampled less": losses.collided,
        "spans of AUX bytes are cut off by the end of their file, or it is missing": losses.cut_buffers,
        "records name no thread": counted.threads_from[NOTHING],
    }
    notes = [f"{count} {text}" for text, count in known.items() if count]
    told = {name: count for name, count in counted.threads_from.items() if count and name != NOTHING}
    if told:
        notes.append("threads are known from " + ", ".join(f"{name} ({count})" for name, count in told.items()))
    return notes


@contextlib.contextmanager
def tables_of_perf_data(path: str) -> Iterator[Path]:
    """The tables that a capture of this perf.data would have, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tdprof-") as folder:
        tables = Path(folder, "capture")
        import_perf_data(path, tables, has_spe=False)
        yield tables
