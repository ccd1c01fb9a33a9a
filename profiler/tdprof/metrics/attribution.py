"""Metrics of functions, source lines and the whole program from overflow samples, with 95 % intervals.

A piece of code has the share of an event's count that its samples' weights have of all weights of that event. A metric
is evaluated on the counts of one counter group, whose events were sampled in the same windows of time; how long the
group had the counters then cancels out. docs/accuracy.md tells what the intervals hold and what breaks them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tdprof.catalog.entries import CPU_CYCLES, Catalog
from tdprof.metrics.diagnosis import diagnose
from tdprof.metrics.estimate import metric_table
from tdprof.metrics.observations import CodeSamples, Entries, sample_entries, sum_by_row
from tdprof.metrics.plans import find_plans, plans_of_part
from tdprof.model.arrays import F64, I64, distinct
from tdprof.model.findings import CallPaths, Findings, MetricTable
from tdprof.model.metric_plans import MetricPlan, RecordedSamples
from tdprof.model.profile import Profile, StackTable
from tdprof.profile.calibrate import calibrated
from tdprof.profile.frames import frame_stacks, merge_stacks
from tdprof.profile.intervals import Intervals
from tdprof.profile.rows import CodeRows, code_rows
from tdprof.profile.statistics import MIN_SAMPLES

# Pieces of code of a kind that have metrics, and the metrics of all of them together.
_MOST_ROWS, _MOST_CELLS = 1 << 13, 1 << 19


def attribute_metrics(whole: Profile, catalog: Catalog, part: Profile | None = None) -> Findings:
    """Metrics and diagnoses of a Topdown profile.

    What the counters said is known of the whole alone. In a part a sample stands for what it does in the whole, and the
    part's count is what its samples stand for.

    Args:
        whole: as recorded, not calibrated: its events repeat from group to group.
        catalog: of the recorded core; metrics of other catalogs that the recording names are left out.
        part: some of its samples, all of a stretch of its time, if the metrics are to be of these alone.

    Raises:
        ValueError: the profile is not of a Topdown recording.
    """
    profile = part or whole
    entries = sample_entries(profile)
    of_whole = list(find_plans(whole, catalog, entries if part is None else sample_entries(whole)))
    threads = len(distinct(whole.samples.tid))
    plans = of_whole if part is None else plans_of_part(of_whole, entries, threads)
    cycles = _cycles_per_stack(profile, whole)
    functions, lines = code_rows(profile), code_rows(profile, by_line=True)
    all_stacks = np.arange(len(functions.leaf))

    most = _most_rows(plans)
    kept = _with_most_cycles(functions, cycles, most)
    own = _table_of_some(plans, entries, (functions.leaf, all_stacks), kept, len(functions))
    inclusive = _table_of_some(plans, entries, (functions.row, functions.stack), kept, len(functions))

    kept_lines = _lines_worth_a_row(lines, entries, cycles)[:most]
    everything = CodeSamples(entries, np.zeros_like(all_stacks), all_stacks, 1)
    program = metric_table(plans, everything, is_exact=part is None)
    return Findings(
        catalog=catalog,
        program=program,
        program_diagnosis=diagnose(catalog, program)[0],
        function=functions.function[kept],
        left_out=len(functions) - len(kept),
        functions=own,
        inclusive=inclusive,
        diagnoses=diagnose(catalog, own),
        line_function=lines.function[kept_lines],
        line=lines.line[kept_lines],
        lines=_table_of_some(plans, entries, (lines.leaf, all_stacks), kept_lines, len(lines)),
        call_paths=_call_paths(profile, plans, entries, cycles),
        recorded=RecordedSamples(profile.samples.event, profile.samples.weight, of_whole, threads),
    )


def metrics_over_time(whole: Profile, catalog: Catalog, bins: Intervals, part: Profile | None = None) -> MetricTable:
    """Metrics of the whole program, a row for each stretch of time; their doubt is that of sampling alone.

    Args:
        whole, catalog, part: as `attribute_metrics` takes them.
        bins: of the part's time, or the whole's.
    """
    n = len(bins.end)
    stacks = StackTable(np.zeros(n + 1, np.uint32), np.empty(0, np.int32))
    samples = (part or whole).samples
    by_bin = replace(whole, stacks=stacks, samples=replace(samples, stack=bins.number.astype(np.int32)))
    entries, row = sample_entries(by_bin), np.arange(n)
    plans = find_plans(whole, catalog, entries if part is None else sample_entries(whole))
    return metric_table([replace(plan, seen=1.0) for plan in plans], CodeSamples(entries, row, row, n))


def _call_paths(profile: Profile, plans: Sequence[MetricPlan], entries: Entries, cycles: F64) -> CallPaths:
    """Stacks of the same functions, whatever their lines, that have enough samples for any metric at all."""
    stacks = frame_stacks(profile)
    path, representative = merge_stacks(stacks)
    n = len(representative)
    samples = sum_by_row(path[entries.stack], entries.samples, n)
    own = sum_by_row(path, cycles, n)
    order = np.argsort(-own, kind="stable")
    kept = order[samples[order] >= MIN_SAMPLES][: _most_rows(plans)]
    chosen = representative[kept]
    total = float(cycles.sum())
    return CallPaths(
        start=np.concatenate(([0], np.cumsum(np.diff(stacks.start)[chosen]))),
        function=np.concatenate(
            [stacks.function[:0], *(stacks.function[stacks.start[i] : stacks.start[i + 1]] for i in chosen.tolist())]
        ),
        share=own[kept] / total if total else np.full(len(kept), np.nan),
        metrics=_table_of_some(plans, entries, (path, np.arange(len(path))), kept, n),
    )


def _cycles_per_stack(profile: Profile, whole: Profile) -> F64:
    """float64[stacks]: cycles of all groups pooled, or without such an event the first one's weight."""
    once = calibrated(profile, whole)
    names = [event.name for event in once.events]
    chosen = once.samples.event == (names.index(CPU_CYCLES) if CPU_CYCLES in names else 0)
    return sum_by_row(
        once.samples.stack[chosen], once.samples.weight[chosen].astype(np.float64), len(profile.stacks.start) - 1
    )


def _most_rows(plans: Sequence[MetricPlan]) -> int:
    """How many pieces of code have metrics: a table may have as many functions as it has bytes, each in few samples."""
    return max(1, min(_MOST_ROWS, _MOST_CELLS // max(1, len(plans))))


def _with_most_cycles(rows: CodeRows, cycles: F64, most: int) -> I64:
    """The rows with the largest inclusive shares; of these the highest self share first."""
    inclusive = sum_by_row(rows.row, cycles[rows.stack], len(rows))
    is_kept = np.zeros(len(rows), bool)
    is_kept[np.argsort(-inclusive, kind="stable")[:most]] = True
    order = _by_self_cycles(rows, cycles)
    return order[is_kept[order]]


def _by_self_cycles(rows: CodeRows, cycles: F64) -> I64:
    """Rows, highest self, then inclusive share first."""
    own = sum_by_row(rows.leaf, cycles, len(rows))
    inclusive = sum_by_row(rows.row, cycles[rows.stack], len(rows))
    return np.lexsort((rows.line, rows.function, -inclusive, -own)).astype(np.int64)


def _lines_worth_a_row(lines: CodeRows, entries: Entries, cycles: F64) -> I64:
    """Known lines with enough samples for any metric at all, highest self share first."""
    samples = sum_by_row(lines.leaf[entries.stack], entries.samples, len(lines))
    order = _by_self_cycles(lines, cycles)
    return order[(samples[order] >= MIN_SAMPLES) & (lines.line[order] > 0)]


def _table_of_some(
    plans: Sequence[MetricPlan], entries: Entries, row_and_stack: tuple[I64, I64], kept: I64, n: int
) -> MetricTable:
    """Metrics of some of n pieces of code, in the order of ``kept``; see `CodeSamples` for rows and stacks."""
    row, stack = row_and_stack
    rank = np.full(n, len(kept), np.int64)  # the others share the row behind these
    rank[kept] = np.arange(len(kept))
    code = CodeSamples(entries, rank[row], stack, len(kept) + 1)
    table = metric_table(plans, code)
    return replace(
        table,
        value=table.value[: len(kept)],
        half_width=table.half_width[: len(kept)],
        samples=table.samples[: len(kept)],
        is_significant=table.is_significant[: len(kept)],
    )
