"""Samples of a Topdown recording by event, bin of time and function: of these the page makes metrics of any time."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tdprof.catalog.expression import Expression, Name, Number
from tdprof.model.arrays import I64, group_rows
from tdprof.model.metric_plans import EventCount, MetricPlan, RecordedSamples
from tdprof.model.profile import Profile
from tdprof.profile.intervals import Intervals
from tdprof.profile.rows import CodeRows, code_rows
from tdprof.profile.statistics import (
    INFORMATIVE_POINTS,
    MAX_INTERVALS,
    MIN_SAMPLES,
    MINOR_VARIANCE,
    NEARLY_ALL,
    OF_LESS_SCATTER,
    ROUNDING,
    SCATTER_FREEDOM,
    SEEN_WHOLE,
    STUDENT_95,
    UNSEEN_SAMPLES,
)
from tdprof.report.page.packing import Columns, Header
from tdprof.values import dataclass

# How many functions have metrics of a time: the first of these numbers for which there is room.
FUNCTIONS = (200, 100, 50, 20, 10, 0)
_MOST_ENTRIES = 1_000_000  # what follows the strip would wait for more
_MOST_CELLS = 30_000_000  # of one event, at once
_MOST_PAIRS = 20_000_000  # of samples and functions, of one event


@dataclass(frozen=True, slots=True)
class TimedSums:
    """Samples of one stack and one weight in one bin of an event.

    Attributes:
        means: float64: recorded weights of one sample.
        cell, mean, stack: int64[n]: event times bins plus bin; index in ``means``; stack id.
        count, lines: int64[n]: samples, and rows of the profile that they are.
    """

    means: NDArray[np.float64]
    cell: I64
    mean: I64
    stack: I64
    count: I64
    lines: I64


@dataclass(frozen=True, slots=True)
class SampledFunctions:
    """The functions of a profile that may have metrics of a stretch of time, those with most samples first.

    Attributes:
        code: its functions.
        order: int64[n], rows of these.
    """

    code: CodeRows
    order: I64


def functions_with_samples(profile: Profile) -> SampledFunctions:
    """Those with enough samples for any metric at all, with what they call."""
    code = code_rows(profile)
    of_stack = np.bincount(profile.samples.stack, profile.samples.count, len(profile.stacks.start) - 1)
    own = np.bincount(code.leaf, of_stack, len(code))
    inclusive = np.bincount(code.row, of_stack[code.stack], len(code))
    order = np.lexsort((-inclusive, -own))
    return SampledFunctions(code, order[inclusive[order] >= MIN_SAMPLES].astype(np.int64))


def tally_columns(
    sums: TimedSums, recorded: RecordedSamples, bins: Intervals, functions: SampledFunctions, most: int
) -> tuple[Header, Columns] | None:
    """What the page makes metrics of a stretch of time of; the header lacks the functions. None if it is too much.

    A row of the tallies is the program, a function's own instructions, or a function with all it calls, in this order.
    ``tallyStart`` is where the entries of each bin of each event begin; ``tallyStep`` the row less that of the entry
    before in the bin; ``tallyMean`` the index in ``tallyMeans`` of the recorded weight of one of its samples;
    ``tallyCount`` how many these are, and ``tallySpare`` how many more than rows of the profile.

    Args:
        sums: samples by bin.
        recorded: what metrics are made of.
        bins: of the profile's time.
        functions: of which the first have rows.
        most: how many.
    """
    n, code, chosen = len(bins.end), functions.code, functions.order[:most]
    rows = 1 + 2 * len(chosen)
    rank = np.full(len(code), -1, np.int64)
    rank[chosen] = np.arange(len(chosen))
    of_leaf, holders = rank[code.leaf], _Holders(code, rank)
    events = 1 + max((event for plan in recorded.plans for event in plan.events), default=-1)
    entries: list[tuple[I64, I64, I64, I64, I64]] = []
    for begin, end in pairwise(np.searchsorted(sums.cell, np.arange(events + 1) * n).tolist()):
        stack, known = sums.stack[begin:end], np.flatnonzero(of_leaf[sums.stack[begin:end]] >= 0)
        if len(stack) + len(known) + holders.count(stack) > _MOST_PAIRS:
            return None
        held, row_held = holders.of(stack)
        source = begin + np.concatenate([np.arange(end - begin), known, held])
        row = np.concatenate([np.zeros(end - begin, np.int64), 1 + of_leaf[stack[known]], 1 + len(chosen) + row_held])
        entries.append(_entries(sums, source, row, rows))
        if sum(len(each[0]) for each in entries) > _MOST_ENTRIES:
            return None
    cell, row, mean, count, lines = (np.concatenate(each) for each in zip(*entries, strict=True))
    start = np.searchsorted(cell, np.arange(events * n + 1))
    step = np.diff(row, prepend=0)
    at = start[:-1][np.diff(start) > 0]
    step[at] = row[at]
    return _header(recorded, bins), {
        "tallyStart": start,
        "tallyStep": step,
        "tallyMean": mean,
        "tallyCount": count,
        "tallySpare": np.maximum(count - lines, 0),  # a damaged capture has rows of no sample
        "tallyMeans": sums.means,
    }


def _entries(sums: TimedSums, source: I64, row: I64, rows: int) -> tuple[I64, I64, I64, I64, I64]:
    """Cell, row, mean, samples and lines of what an event has, each cell, row and mean once, in this order.

    Args:
        source: of each pair of a sum and a row.
        row: its row.
        rows: how many rows there are.
    """
    means, mean = np.unique(sums.mean[source], return_inverse=True)
    first = int(sums.cell[source].min()) if len(source) else 0
    key = ((sums.cell[source] - first) * rows + row) * max(len(means), 1) + mean.reshape(-1)
    if len(key) and int(key.max()) < min(_MOST_CELLS, 64 * len(key)):  # much faster than to sort
        is_there = np.bincount(key) > 0
        found, which = np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[key]
    else:
        found, which = np.unique(key, return_inverse=True)
    count, lines = (
        np.bincount(which.reshape(-1), column[source], len(found)).astype(np.int64)
        for column in (sums.count, sums.lines)
    )
    left = found // max(len(means), 1)
    mean_of = means[found % max(len(means), 1)] if len(means) else found
    return first + left // rows, left % rows, mean_of, count, lines


def timed_sums(profile: Profile, recorded: RecordedSamples, bins: Intervals) -> TimedSums:
    """The samples of a calibrated profile, as they were recorded, added up by bin of time."""
    samples = profile.samples
    means, mean = np.unique(recorded.weight / np.maximum(samples.count, 1), return_inverse=True)
    cell = recorded.event.astype(np.int64) * len(bins.end) + bins.number
    mean = mean.reshape(-1).astype(np.int64)
    order, start = group_rows(cell, mean, samples.stack)
    first = order[start]
    count = np.add.reduceat(samples.count[order].astype(np.int64), start) if len(start) else start
    lines = np.diff(start, append=len(order))
    return TimedSums(means, cell[first], mean[first], samples.stack[first].astype(np.int64), count, lines)


class _Holders:
    """Which chosen functions each stack holds."""

    def __init__(self, code: CodeRows, rank: I64) -> None:
        kept = rank[code.row] >= 0
        self._row = rank[code.row[kept]]
        self._start = np.searchsorted(code.stack[kept], np.arange(len(code.leaf) + 1))

    def count(self, stack: I64) -> int:
        """How many pairs `of` gives."""
        return int(np.diff(self._start)[stack].sum())

    def of(self, stack: I64) -> tuple[I64, I64]:
        """Positions of these stacks, once for each function that they hold, and its rank."""
        held = np.diff(self._start)[stack]
        ends = np.cumsum(held)
        source = np.repeat(np.arange(len(stack)), held)
        return source, self._row[np.arange(len(source)) + np.repeat(self._start[stack] - (ends - held), held)]


def _header(recorded: RecordedSamples, bins: Intervals) -> Header:
    return {
        # Nanoseconds: by these intervals are put together as metrics.observations does.
        "end": bins.end.tolist(),
        "threads": recorded.threads,
        "metrics": {plan.metric.name: _metric(plan) for plan in recorded.plans},
        "constants": {
            "student": STUDENT_95,
            "unseenSamples": UNSEEN_SAMPLES,
            "minSamples": MIN_SAMPLES,
            "minorVariance": MINOR_VARIANCE,
            "nearlyAll": NEARLY_ALL,
            "ofLessScatter": OF_LESS_SCATTER,
            "scatterFreedom": SCATTER_FREEDOM,
            "informativePoints": INFORMATIVE_POINTS,
            "rounding": ROUNDING,
            "seenWhole": SEEN_WHOLE,
            "intervals": MAX_INTERVALS,
        },
    }


def _metric(plan: MetricPlan) -> Header:
    return {
        "formula": _formula(plan.metric.expression),
        "seen": plan.seen,
        "events": {name: _event(count) for name, count in plan.counts.items()},
    }


def _event(count: EventCount) -> Header:
    """Of which events' samples a count is made, and what one of them stands for; null where it was not counted."""
    return {
        "rows": [*count.rows],
        "scale": None if count.total is None else count.scale,
        "unseen": count.total,
        "mean": count.weight / count.samples if count.samples else None,
    }


def _formula(expression: Expression) -> object:
    """A number, an event's name, or [operator, left, right]."""
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Name):
        return expression.name
    return [expression.operator.value, _formula(expression.left), _formula(expression.right)]
