"""SPE data into the rows of a report: by function, line, instruction, data source, cache line or page."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from arm_spe.tallied import Tallied
from arm_spe.tally import Key, Lane
from tdprof.capture.manifest import SpeInfo
from tdprof.decode.spe.data_sources import LEVEL_ORDER
from tdprof.decode.spe.line_uses import CacheLines
from tdprof.decode.spe.row_sums import (
    LINE_BYTES,
    Counted,
    GroupBy,
    check_compiled,
    count_records,
)
from tdprof.decode.spe.spans import SpeInput
from tdprof.metrics.spe import RATIOS, Ratio, SamplingCounts, mean_interval, record_weight, share_interval
from tdprof.model.arrays import I64, U64
from tdprof.model.choices import DEFAULT_SYMBOLS, By, SymbolOptions
from tdprof.model.lazy_rows import LazyRows
from tdprof.model.spe import LineSharing, MemoryUser, RatioColumn, RecordWeight, SpeReport, order_of
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_lines import NOT_COUNTED, SpeLines, add_up_lines, latency_quantiles, pass_notes, room_notes
from tdprof.pipeline.spe_memory import BlockRows, MemoryOwners
from tdprof.pipeline.spe_rows import (
    MAX_ROWS,
    OTHERS_NAME,
    AddressRows,
    CodeDetail,
    Placement,
    Rows,
    SourceRows,
    SymbolizedRows,
)
from tdprof.pipeline.spe_sharing import find_sharing
from tdprof.text import printable


def analyse(
    data: SpeInput,
    by: By,
    capture: OpenCapture | None,
    *,
    workers: int,
    recorded: SpeInfo | None = None,
    max_rows: int = MAX_ROWS,
    limit: int = 0,
) -> SpeReport:
    """Add records up by the rows of a report.

    Args:
        data: the records; by cache line read twice, since memory does not hold them.
        by: what a row is.
        capture: of the same recording, which names code; None: addresses stay addresses.
        workers: threads.
        recorded: how a capture's SPE data was taken, by which records are weighted.
        max_rows: rows before the rest share one.
        limit: rows of the most operations that are wanted, where rows may be very many; 0: all.

    Raises:
        TdprofError: see `check_compiled`.
    """
    check_compiled()
    if by in (By.ADDRESS, By.PAGE):
        report = _by_block(data, by, capture, workers, max_rows, limit)
    elif by is By.SOURCE:
        report = _by_rows(data, GroupBy(Key.SOURCE), SourceRows(), workers, max_rows, limit)
    elif capture is None:
        report = _by_rows(data, GroupBy(Key.CODE), AddressRows(), workers, max_rows, limit)
    elif by is By.INSTRUCTION:
        rows = SymbolizedRows(capture, CodeDetail.INSTRUCTION)
        data = replace(data, stages=capture.stages)
        report = _by_rows(data, GroupBy(Key.CODE), rows, workers, max_rows, limit)
        report = replace(report, notes=[*capture.unreadable, *report.notes])
    else:
        lines = add_up_lines(capture, data, workers=workers, max_rows=max_rows)
        report = by_line(lines) if by is By.LINE else by_function(lines)
    if capture and by in (By.ADDRESS, By.PAGE, By.SOURCE):
        report = replace(report, notes=[*capture.altered, *report.notes])
    if capture:
        report = replace(report, notes=[*map(printable, capture.manifest.notes), *report.notes])
    return replace(report, weight=weight_of(recorded, report.total_operations)) if recorded else report


_USUAL_PAGE_BYTES = 4096
# A row takes a kilobyte and a half while what was counted is made of it.
_ROWS_AT_ONCE = 1 << 14


class _Named(Rows, Protocol):
    def names(self, rows: I64) -> list[str]:
        """Of some of the rows."""


class _NamedRows(_Named, Protocol):
    def notes(self) -> list[str]:
        """What a reader should know of them, a sentence each."""


def _by_rows(data: SpeInput, by: GroupBy, rows: _NamedRows, workers: int, max_rows: int, limit: int) -> SpeReport:
    placement = Placement(rows, max_rows, is_shared=workers > 1)
    counted = count_records(data, by, placement.place, workers=workers)
    operations = counted.operations
    notes = [*pass_notes(counted, data), *rows.notes(), *room_notes(operations)]
    shown, names = _most(operations, rows, limit)
    return _report_of(counted, shown, names, notes, operations)


def _by_block(
    data: SpeInput, by: By, capture: OpenCapture | None, workers: int, max_rows: int, limit: int
) -> SpeReport:
    owners = MemoryOwners(None)
    if capture is not None:
        owners = MemoryOwners(capture.owners.last_pids, lambda pids: capture.spaces.process_names(pids))
    block_bytes = LINE_BYTES if by is By.ADDRESS else data.page_bytes or _USUAL_PAGE_BYTES
    rows = BlockRows(block_bytes, owners)
    placement = Placement(rows, max_rows, is_shared=workers > 1)
    counted = count_records(data, GroupBy(Key.ADDRESS, block_bytes), placement.place, workers=workers)
    operations = counted.operations
    notes = [*pass_notes(counted, data), *rows.notes(operations[1:]), *room_notes(operations)]
    if by is By.PAGE:
        whose = "the recorded machine's" if data.page_bytes else "the input does not tell the machine's"
        notes.append(f"pages are of {block_bytes} bytes ({whose})")
    shown, names = _most(operations, rows, limit)
    each = rows.threads()
    threads = np.insert(each[:max_rows], 0, each[max_rows:].max(initial=0))[shown]
    sharing: Sequence[LineSharing | None] | None = None
    if by is By.ADDRESS:
        # Where some pairs of line and thread had no room, any line may have more threads than were counted.
        may_be_shared = (threads > 1) | operations[:1].any()
        candidates = np.flatnonzero(may_be_shared & (shown > 0))
        at = shown[candidates] - 1
        lines = CacheLines(rows.blocks[at], rows.is_physical[at], rows.are_of_processes(at))
        looked_at = data if capture is None else replace(data, stages=capture.stages)
        sharing_of = find_sharing(looked_at, lines, owners, capture)
        line_of_row = np.full(len(shown), -1)
        line_of_row[candidates] = np.arange(len(candidates))
        sharing = LazyRows(line_of_row, lambda line: None if line < 0 else sharing_of(line))
    users: Sequence[Sequence[MemoryUser]] | None = None
    if rows.is_physical.any():
        users = LazyRows(shown - 1, rows.processes())

    def beside(report: SpeReport, part: slice) -> SpeReport:
        return replace(report, threads=threads[part], sharing=sharing and sharing[part], users=users and users[part])

    return _report_of(counted, shown, names, notes, operations, beside)


def _most(operations: U64, rows: _Named, limit: int) -> tuple[I64, list[str]]:
    """The rows of the most operations, equal ones by name, and their names; row n + 1 is row n of ``rows``."""
    shown = np.flatnonzero(operations)
    if limit and len(shown) > limit:
        least = np.partition(operations[shown], len(shown) - limit)[len(shown) - limit]
        shown = shown[operations[shown] >= least]
    names = rows.names(shown[shown > 0] - 1)
    names[:0] = [OTHERS_NAME] * int((shown == 0).sum())
    order = order_of(operations[shown], names)[: limit or None]
    return shown[order], [names[row] for row in order.tolist()]


def _report_of(
    counted: Counted,
    shown: I64,
    names: Sequence[str],
    notes: Sequence[str],
    operations: U64,
    beside: Callable[[SpeReport, slice], SpeReport] = lambda report, _: report,
) -> SpeReport:
    """The rows that are shown, in that order; ``beside`` adds to a report of some what the counts do not tell."""
    is_met = counted.has_any()[Lane.LOADS_BY_LEVEL :]
    levels = [level.value for number, level in enumerate(LEVEL_ORDER) if is_met[number]]

    def part(first: int) -> SpeReport:
        rows = slice(first, first + _ROWS_AT_ONCE)
        report = _of_rows(counted.of_rows(shown[rows]), names[rows], notes, counted.counts.records)
        return beside(replace(report, levels_met=levels), rows)

    starts = range(_ROWS_AT_ONCE, len(shown), _ROWS_AT_ONCE)
    return replace(
        part(0),
        left_out=int(np.count_nonzero(operations)) - len(shown),
        following=max(0, len(shown) - _ROWS_AT_ONCE),
        rest=lambda: map(part, starts),
    )


def by_line(lines: SpeLines) -> SpeReport:
    """Rows by source line of each function."""
    functions = lines.functions
    names = [
        f"{functions[number].name} {functions[number].source_file or '??'}:{line or '?'}"
        for number, line in zip(lines.function[1:].tolist(), lines.line[1:].tolist(), strict=True)
    ]
    return make_report(lines, np.arange(len(lines.function)), names)


def by_function(lines: SpeLines) -> SpeReport:
    """Rows by function: the sums of their lines."""
    functions, whole = lines.whole_functions()
    row = np.append(whole, -1)[lines.function] + 1  # the first is of what had no room
    return make_report(lines, row, [function.name for function in functions])


def make_report(lines: SpeLines, group: I64, names: Sequence[str]) -> SpeReport:
    """A report of groups of lines.

    Args:
        lines: what was added up.
        group: int64[n], the group of each of its rows, 0: of what had no room for a row; or `NOT_COUNTED`.
        names: of the groups after the first.
    """
    names = [OTHERS_NAME, *names]
    counted, is_counted = lines.counted, group != NOT_COUNTED
    shown = np.flatnonzero(np.bincount(group[is_counted], counted.operations[is_counted], len(names)))
    row = np.full(len(names) + 1, NOT_COUNTED)  # the last is that of `NOT_COUNTED`
    row[shown] = np.arange(len(shown))
    tallied = counted.grouped(row[group], len(shown))
    return _of_rows(tallied, [names[number] for number in shown.tolist()], lines.notes, counted.counts.records)


def _of_rows(tallied: Tallied, names: Sequence[str], notes: Sequence[str], records: int) -> SpeReport:
    counts = lane_counts(tallied)
    levels = {level.value: tallied.lanes[:, Lane.LOADS_BY_LEVEL + number] for number, level in enumerate(LEVEL_ORDER)}
    return SpeReport(
        names=names,
        counts=counts,
        levels=levels,
        latencies=latency_quantiles(tallied),
        ratios={ratio.name: _ratio_column(ratio, counts) for ratio in RATIOS},
        threads=None,
        sharing=None,
        notes=[*map(printable, notes)],
        total_operations=records,
        levels_met=[level for level, loads in levels.items() if loads.any()],
    )


def lane_counts(tallied: Tallied) -> dict[str, U64]:
    """uint64[rows] by name, as in `SpeReport.counts`."""
    counts = {what.name: tallied.lanes[:, what] for what in _LANE_COUNTS}
    for kind, latency in enumerate(("TOTAL", "ISSUE", "TRANSLATION")):
        counts[f"{latency}_CYCLES"] = tallied.cycles[:, kind]
        counts[f"{latency}_COUNT"] = tallied.lanes[:, Lane.TOTAL_COUNT + kind]
    return counts


_LANE_COUNTS = tuple(lane for lane in Lane if lane < Lane.LOADS_BY_LEVEL)


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
    # The driver raises what is below the hardware's least (arm_spe_event_sanitise_period).
    interval = mean_interval(
        max(recorded.period, event.caps.get("min_interval", 0)),
        has_jitter=re.search(r"\bjitter(=(0x)?1\b|(?!=))", event.event) is not None,
        has_even_jitter=event.caps.get("ernd", 0) == 1,
    )
    weight = record_weight(sampled, interval)
    if weight.is_measured and sampled.feed:
        return RecordWeight(weight.value, sampled.feed**-0.5, "SAMPLE_POP / SAMPLE_FEED, and what was lost behind them")
    return RecordWeight(weight.value, None, "the mean interval; too low where samples collided")


def _ratio_column(ratio: Ratio, counts: dict[str, U64]) -> RatioColumn:
    share = share_interval(counts[ratio.part], counts[ratio.whole])
    return RatioColumn(share.value * ratio.scale, share.low * ratio.scale, share.high * ratio.scale)


@contextlib.contextmanager
def open_code_of(path: str, symbols: SymbolOptions = DEFAULT_SYMBOLS) -> Iterator[OpenCapture]:
    """What a capture of this perf.data would know of its code: a temporary one without SPE data."""
    from tdprof.pipeline.import_perf import import_code  # slow to load, and captures do without

    with tempfile.TemporaryDirectory(prefix="tdprof-") as folder:
        tables = Path(folder, "capture")
        kernel_lookup = import_code(path, tables)
        with OpenCapture(tables, symbols, kernel_lookup=kernel_lookup) as capture:
            yield capture
