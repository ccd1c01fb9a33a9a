"""Metrics of functions, source lines and the whole program from overflow samples, with 95 % intervals.

A piece of code has the share of an event's count that its samples' weights have of all weights of that event. A metric
is evaluated on the counts of one counter group, whose events were sampled in the same windows of time; how long the
group had the counters then cancels out. docs/accuracy.md tells what the intervals hold and what breaks them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tdprof.catalog.entries import CPU_CYCLES, Catalog, Metric
from tdprof.metrics.diagnosis import diagnose
from tdprof.metrics.formula import evaluate_with_gradient
from tdprof.metrics.observations import CodeSamples, Entries, EventSums, sample_entries, sum_by_row
from tdprof.model.arrays import F64, I64, U64
from tdprof.model.events import EventInfo, TopdownInfo
from tdprof.model.findings import CallPaths, Findings, MetricTable
from tdprof.model.profile import Profile, StackTable
from tdprof.profile.calibrate import calibrated, scaled_total
from tdprof.profile.frames import frame_stacks, merge_stacks
from tdprof.profile.intervals import Intervals
from tdprof.profile.rows import CodeRows, code_rows
from tdprof.profile.statistics import MIN_SAMPLES, UNSEEN_SAMPLES, Z_95, satterthwaite, student_95, variance_between

# An event with less of a value's variance than this may be scarce: its own skew does not matter to the sum.
_MINOR_VARIANCE = 0.1

# Percentages known to so many points tell something even where they are no larger than their error.
_INFORMATIVE_POINTS = 5.0

_ROUNDING = 1e-9

# Events kept from metric to metric: more than a group has.
_MOST_HELD = 10

# Below this a group missed so little of the run that the windows it did not see cannot matter.
_SEEN_WHOLE = 0.99


@dataclass(frozen=True, slots=True)
class _Count:
    """How an event's count is made for one metric.

    Attributes:
        rows: the profile's events whose samples stand for it: one, or where a metric's events are spread over groups
            one for each group that has it.
        total: what the counters say; None if they could not be read, then weights count as they are.
        samples, weight, squares: sums over all the samples of these events, as in `Entries`.
    """

    rows: Sequence[int]
    total: float | None
    samples: float
    weight: float
    squares: float

    @property
    def scale(self) -> float:
        """Events that one unit of weight stands for."""
        if self.total is None:
            return 1.0
        return self.total / self.weight if self.weight else 0.0


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a metric is measured.

    Attributes:
        counts: of each of its events.
        seen: the share of the run that the group's counters saw.
    """

    metric: Metric
    counts: Mapping[str, _Count]
    seen: float

    @property
    def events(self) -> list[int]:
        """Rows of the profile's events that it takes, without repetition."""
        return sorted({event for count in self.counts.values() for event in count.rows})


@dataclass(frozen=True, slots=True)
class _Term:
    """An event's count in each of n pieces of code, for one metric.

    Attributes:
        value, variance: float64[n]; the variance is that of sampling.
        unseen: float64[n], where no sample was seen: how many events there may have been for all that; else zero.
        samples: float64[n].
    """

    value: F64
    variance: F64
    unseen: F64
    samples: F64


def attribute_metrics(profile: Profile, catalog: Catalog) -> Findings:
    """Metrics and diagnoses of a Topdown profile.

    Args:
        profile: as recorded, not calibrated: its events repeat from group to group.
        catalog: of the recorded core; metrics of other catalogs that the recording names are left out.

    Raises:
        ValueError: the profile is not of a Topdown recording.
    """
    if profile.topdown is None:
        raise ValueError("not a Topdown profile")
    entries = sample_entries(profile)
    plans = list(_plans(profile, profile.topdown, catalog, entries))
    cycles = _cycles_per_stack(profile)
    functions, lines = code_rows(profile), code_rows(profile, by_line=True)
    all_stacks = np.arange(len(functions.leaf))

    order = _by_self_cycles(functions, cycles)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    own = _table(plans, CodeSamples(entries, rank[functions.leaf], all_stacks, len(functions)))
    inclusive = _table(plans, CodeSamples(entries, rank[functions.row], functions.stack, len(functions)))

    kept = _lines_worth_a_row(lines, entries, cycles)
    program = _table(plans, CodeSamples(entries, np.zeros_like(all_stacks), all_stacks, 1), is_exact=True)
    return Findings(
        catalog=catalog,
        program=program,
        program_diagnosis=diagnose(catalog, program)[0],
        function=functions.function[order],
        functions=own,
        inclusive=inclusive,
        diagnoses=diagnose(catalog, own),
        line_function=lines.function[kept],
        line=lines.line[kept],
        lines=_table_of_some(plans, entries, lines.leaf, kept, len(lines)),
        call_paths=_call_paths(profile, plans, entries, cycles),
    )


def level_1_over_time(profile: Profile, catalog: Catalog, bins: Intervals) -> MetricTable:
    """The catalog's first metrics of the whole program, a row for each stretch of time; doubt is of sampling alone."""
    n = len(bins.end)
    stacks = StackTable(np.zeros(n + 1, np.uint32), np.empty(0, np.int32))
    by_bin = replace(profile, stacks=stacks, samples=replace(profile.samples, stack=bins.number.astype(np.int32)))
    entries, row = sample_entries(by_bin), np.arange(n)
    assert profile.topdown
    plans = _plans(profile, profile.topdown, catalog, entries)
    roots = [replace(plan, seen=1.0) for plan in plans if plan.metric.name in catalog.roots]
    return _table(roots, CodeSamples(entries, row, row, n))


def _call_paths(profile: Profile, plans: Sequence[_Plan], entries: Entries, cycles: F64) -> CallPaths:
    """Stacks of the same functions, whatever their lines, that have enough samples for any metric at all."""
    stacks = frame_stacks(profile)
    path, representative = merge_stacks(stacks)
    n = len(representative)
    samples = sum_by_row(path[entries.stack], entries.samples, n)
    own = sum_by_row(path, cycles, n)
    order = np.argsort(-own, kind="stable")
    kept = order[samples[order] >= MIN_SAMPLES]
    chosen = representative[kept]
    total = float(cycles.sum())
    return CallPaths(
        start=np.concatenate(([0], np.cumsum(np.diff(stacks.start)[chosen]))),
        function=np.concatenate(
            [stacks.function[:0], *(stacks.function[stacks.start[i] : stacks.start[i + 1]] for i in chosen.tolist())]
        ),
        share=own[kept] / total if total else np.full(len(kept), np.nan),
        metrics=_table_of_some(plans, entries, path, kept, n),
    )


def _plans(profile: Profile, topdown: TopdownInfo, catalog: Catalog, entries: Entries) -> Iterator[_Plan]:
    """One for each metric that the groups which ran can tell, in the catalog's order."""
    asked = {*topdown.split_metrics, *(metric for group in topdown.groups for metric in group.metrics)}
    for metric in catalog.metrics.values():
        if metric.name not in asked:
            continue
        counted = _in_one_group(metric, topdown, profile.events) or _in_many_groups(metric, topdown, profile.events)
        if counted:
            counts = {name: _count(rows, total, entries) for name, (rows, total) in counted.items()}
            rows = [profile.events[row] for rows, _ in counted.values() for row in rows]
            seen = 1.0 if topdown.is_pass_per_group else min(map(_seen, rows), default=1.0)
            yield _Plan(metric, counts, seen)


_Counted = dict[str, tuple[list[int], float | None]]  # by event: rows of the profile's events, their exact total


def _in_one_group(metric: Metric, topdown: TopdownInfo, events: Sequence[EventInfo]) -> _Counted:
    """The metric's events as one group counted them, its own if that ran; empty if none has all of them."""
    for group in sorted(topdown.groups, key=lambda group: metric.name not in group.metrics):
        row_of = dict(zip(group.names, group.events, strict=True))
        if not all(name in row_of and events[row_of[name]].running_ns != 0 for name in metric.events):
            continue
        chosen = {name: events[row_of[name]] for name in metric.events}
        # Members that had counters for unlike times are brought to the same time.
        longest = max((event.running_ns or 0 for event in chosen.values()), default=0)
        return {
            name: (
                [row_of[name]],
                event.total * longest / event.running_ns
                if event.total is not None and event.running_ns
                else event.total,
            )
            for name, event in chosen.items()
        }
    return {}


def _in_many_groups(metric: Metric, topdown: TopdownInfo, events: Sequence[EventInfo]) -> _Counted:
    """Each event's count scaled from all groups that ran and have it; empty if one is in none."""
    counted = {}
    for name in metric.events:
        rows = [
            row
            for group in topdown.groups
            for row, each in zip(group.events, group.names, strict=True)
            if each == name and events[row].running_ns != 0
        ]
        if not rows:
            return {}
        counted[name] = (rows, scaled_total([events[row] for row in rows], is_each_whole=topdown.is_pass_per_group))
    return counted


def _count(rows: Sequence[int], total: float | None, entries: Entries) -> _Count:
    samples, weight, squares = (
        float(sum(column[entries.of_event(row)].sum() for row in rows))
        for column in (entries.samples, entries.weight, entries.squares)
    )
    return _Count(rows, total, samples, weight, squares)


def _seen(event: EventInfo) -> float:
    return (event.running_ns or 0) / event.enabled_ns if event.enabled_ns else 1.0


def _cycles_per_stack(profile: Profile) -> F64:
    """float64[stacks]: cycles of all groups pooled, or without such an event the first one's weight."""
    once = calibrated(profile)
    names = [event.name for event in once.events]
    chosen = once.samples.event == (names.index(CPU_CYCLES) if CPU_CYCLES in names else 0)
    return sum_by_row(
        once.samples.stack[chosen], once.samples.weight[chosen].astype(np.float64), len(profile.stacks.start) - 1
    )


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


def _table(plans: Sequence[_Plan], code: CodeSamples, *, is_exact: bool = False) -> MetricTable:
    """Metrics of pieces of code.

    Args:
        is_exact: the one row is all that was counted, so that its counts are the counters' own.
    """
    shape = (code.n, len(plans))
    value, half_width = np.full(shape, np.nan), np.full(shape, np.nan)
    samples, is_significant = np.zeros(shape, np.uint64), np.zeros(shape, np.bool_)
    held: dict[int, EventSums] = {}  # by event, of the last metrics only
    # Metrics of one group follow each other, since they share events.
    for column in sorted(range(len(plans)), key=lambda column: plans[column].events):
        plan = plans[column]
        held = {event: held[event] if event in held else code.sums(event) for event in plan.events} | {
            event: held[event] for event in list(held)[-_MOST_HELD:]
        }
        terms = {
            name: _term(count, [held[event] for event in count.rows], is_exact=is_exact)
            for name, count in plan.counts.items()
        }
        estimate = _estimate(plan, terms, held, is_exact=is_exact)
        value[:, column], half_width[:, column], samples[:, column] = estimate
        is_significant[:, column] = _is_significant(plan.metric, *estimate)
    return MetricTable(
        metrics=[plan.metric.name for plan in plans],
        units=[plan.metric.units for plan in plans],
        sources=["pmu"] * len(plans),
        value=value,
        half_width=half_width,
        samples=samples,
        is_significant=is_significant,
    )


def _term(count: _Count, sums: Sequence[EventSums], *, is_exact: bool) -> _Term:
    weight = np.sum([each.weight.sum(axis=1) for each in sums], axis=0)
    squares, samples = (np.sum([getattr(each, name) for each in sums], axis=0) for name in ("squares", "samples"))
    nothing = np.zeros_like(weight)
    if count.total is None and not count.weight:
        return _Term(nothing + np.nan, nothing, nothing, samples)
    if is_exact:
        return _Term(weight if count.total is None else nothing + count.total, nothing, nothing, samples)
    if not count.weight:  # counted too seldom for a single sample
        assert count.total is not None
        return _Term(nothing, nothing, nothing + count.total, samples)
    share, mean = weight / count.weight, count.weight / count.samples
    if count.total is None:
        variance = squares
    else:
        # The total is known: what is not in this code is elsewhere. A sample elsewhere may at least just have been
        # missed, so that a share of everything is not certain either.
        variance = (1 - share) ** 2 * squares + share**2 * (np.maximum(count.squares - squares, 0) + mean**2)
    unseen = UNSEEN_SAMPLES * mean * count.scale
    if count.total is not None:
        unseen = min(unseen, count.total)
    return _Term(weight * count.scale, variance * count.scale**2, np.where(samples == 0, unseen, 0.0), samples)


def _estimate(
    plan: _Plan, terms: Mapping[str, _Term], sums: Mapping[int, EventSums], *, is_exact: bool
) -> tuple[F64, F64, U64]:
    """Value, half of the 95 % interval, and samples that they rest on, of each piece of code."""
    value, gradient = evaluate_with_gradient(plan.metric.expression, {name: each.value for name, each in terms.items()})
    doubt = {name: gradient[name] ** 2 * (each.variance + (each.unseen / Z_95) ** 2) for name, each in terms.items()}
    variance = np.sum(list(doubt.values()), axis=0)
    scarcest = np.full(len(value), np.inf)
    for name, each in terms.items():
        matters = doubt[name] >= _MINOR_VARIANCE * variance
        scarcest = np.where(matters, np.minimum(scarcest, each.samples), scarcest)
    samples = np.where(np.isfinite(scarcest), scarcest, 0).astype(np.uint64)
    quantile: F64 | float = Z_95
    if plan.seen < _SEEN_WHOLE:
        variance, quantile = _with_multiplexing(plan, gradient, variance, samples, sums, is_exact=is_exact)
    half_width = np.asarray(quantile * np.sqrt(variance))
    # The sum of an exact metric's parts is zero but for rounding.
    return value, np.where(half_width < _ROUNDING * np.abs(value), 0.0, half_width), samples


def _with_multiplexing(
    plan: _Plan,
    gradient: Mapping[str, F64],
    sampling: F64,
    samples: U64,
    sums: Mapping[int, EventSums],
    *,
    is_exact: bool,
) -> tuple[F64, F64]:
    """Variance with that of the windows in which other groups had the counters, and the quantile for the interval.

    What an interval adds to the metric is, to first order, the sum of what it adds to the counts, times the gradient.
    Over all intervals that sums to zero for a ratio; how far its parts scatter beyond sampling is what the choice of
    windows does. Windows that were seen are free of it, hence the factor of unseen time (finite population correction).
    """
    n = len(sampling)
    chosen = np.flatnonzero(np.isfinite(sampling) & (is_exact or samples >= MIN_SAMPLES))
    parts = np.zeros((len(chosen), sums[plan.events[0]].weight.shape[1]))
    for name, count in plan.counts.items():
        for event in count.rows:
            parts += (gradient[name][chosen] * count.scale)[:, None] * sums[event].weight[chosen]
    between, freedom = np.full(n, np.nan), np.full(n, np.nan)
    between[chosen], freedom[chosen] = variance_between(parts)
    unseen_time = 1.0 - plan.seen
    if is_exact:
        return unseen_time * between, student_95(freedom)
    # Counted only where it clearly stands out: scatter that is no more than sampling's must not widen the interval.
    stands_out = between > sampling * (1 + 2 * np.sqrt(2 / freedom))
    excess = np.where(stands_out, unseen_time * (between - sampling), 0.0)
    variance = sampling + excess
    total_freedom = np.where(stands_out, satterthwaite(variance, unseen_time * between, freedom), np.inf)
    return variance, student_95(total_freedom)


def _is_significant(metric: Metric, value: F64, half_width: F64, samples: U64) -> NDArray[np.bool_]:
    enough = np.abs(value)
    if metric.units.startswith("percent"):
        enough = np.maximum(enough, _INFORMATIVE_POINTS)
    return np.asarray((samples >= MIN_SAMPLES) & (half_width <= enough))


def _table_of_some(plans: Sequence[_Plan], entries: Entries, row_of_stack: I64, kept: I64, n: int) -> MetricTable:
    """Metrics of some of n pieces of code, in the order of ``kept``; each stack is of one, ``row_of_stack``."""
    rank = np.full(n, len(kept), np.int64)  # the others share the row behind these
    rank[kept] = np.arange(len(kept))
    code = CodeSamples(entries, rank[row_of_stack], np.arange(len(row_of_stack)), len(kept) + 1)
    table = _table(plans, code)
    return replace(
        table,
        value=table.value[: len(kept)],
        half_width=table.half_width[: len(kept)],
        samples=table.samples[: len(kept)],
        is_significant=table.is_significant[: len(kept)],
    )
