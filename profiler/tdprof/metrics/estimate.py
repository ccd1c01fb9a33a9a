"""Values of metrics from sums of samples, with their 95 % intervals: docs/accuracy.md tells what these hold.

The page's script has the same arithmetic for a stretch of time: report/page/of_time.js.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.catalog.entries import Metric
from tdprof.metrics.formula import evaluate_with_gradient
from tdprof.metrics.observations import CodeSamples, EventSums
from tdprof.model.arrays import F64, U64
from tdprof.model.findings import MetricTable
from tdprof.model.metric_plans import EventCount, MetricPlan
from tdprof.profile.statistics import (
    INFORMATIVE_POINTS,
    MIN_SAMPLES,
    MINOR_VARIANCE,
    NEARLY_ALL,
    OF_LESS_SCATTER,
    ROUNDING,
    SCATTER_FREEDOM,
    SEEN_WHOLE,
    UNSEEN_SAMPLES,
    Z_95,
    satterthwaite,
    student_95,
    variance_between,
)
from tdprof.values import dataclass

# Events kept from metric to metric: more than a group has.
_MOST_HELD = 10


@dataclass(frozen=True, slots=True)
class _Term:
    """An event's count in each of n pieces of code, for one metric.

    Attributes:
        value, variance: float64[n]; the variance is that of sampling.
        unseen: float64[n], where no sample was seen: how many events there may have been for all that; else zero.
        samples: float64[n].
        each: what a sample stands for.
    """

    value: F64
    variance: F64
    unseen: F64
    samples: F64
    each: float = 0.0


def metric_table(plans: Sequence[MetricPlan], code: CodeSamples, *, is_exact: bool = False) -> MetricTable:
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


def _term(count: EventCount, sums: Sequence[EventSums], *, is_exact: bool) -> _Term:
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
        apart = (1 - share) ** 2 * squares + share**2 * (np.maximum(count.squares - squares, 0) + count.edges * mean**2)
        # Of a few samples that stand for many times what others do, those of this code may just have been missed.
        variance = np.maximum(apart, share * (1 - share) * count.squares)
    unseen = UNSEEN_SAMPLES * mean * count.scale
    if count.total is not None:
        unseen = min(unseen, count.total)
    unseen_here = np.where(samples == 0, unseen, 0.0)
    return _Term(weight * count.scale, variance * count.scale**2, unseen_here, samples, mean * count.scale)


def _estimate(
    plan: MetricPlan, terms: Mapping[str, _Term], sums: Mapping[int, EventSums], *, is_exact: bool
) -> tuple[F64, F64, U64]:
    """Value, half of the 95 % interval, and samples that they rest on, of each piece of code."""
    value, gradient = evaluate_with_gradient(plan.metric.expression, {name: each.value for name, each in terms.items()})
    doubt = {name: gradient[name] ** 2 * (each.variance + (each.unseen / Z_95) ** 2) for name, each in terms.items()}
    variance = np.sum(list(doubt.values()), axis=0)
    scarcest = np.full(len(value), np.inf)
    for name, each in terms.items():
        matters = doubt[name] >= MINOR_VARIANCE * variance
        scarcest = np.where(matters, np.minimum(scarcest, each.samples), scarcest)
    samples = np.where(np.isfinite(scarcest), scarcest, 0).astype(np.uint64)
    scatter = _scatter(plan, gradient, np.isfinite(variance) & (is_exact or samples >= MIN_SAMPLES), sums)
    if not is_exact:
        variance = _of_even_samples(variance, scatter, terms, gradient)
    half_width = np.asarray(Z_95 * np.sqrt(variance))
    if plan.seen < SEEN_WHOLE:
        half_width = _with_multiplexing(1.0 - plan.seen, variance, scatter, is_exact=is_exact)
    # The sum of an exact metric's parts is zero but for rounding.
    return value, np.where(half_width < ROUNDING * np.abs(value), 0.0, half_width), samples


@dataclass(frozen=True, slots=True)
class _Scatter:
    """How what an interval of recording adds to a metric scatters, in each of n pieces of code.

    What an interval adds to the metric is, to first order, the sum of what it adds to the counts, times the gradient.
    Over all intervals that sums to zero for a ratio.

    Attributes:
        between, freedom: float64[n], variance of the metric by that scatter, and its degrees of freedom; NaN where it
            is not looked at.
        independent: float64[n], variance by sampling if the totals were not known; zero where it is not looked at.
    """

    between: F64
    freedom: F64
    independent: F64


def _scatter(
    plan: MetricPlan, gradient: Mapping[str, F64], is_chosen: NDArray[np.bool_], sums: Mapping[int, EventSums]
) -> _Scatter:
    n, chosen = len(is_chosen), np.flatnonzero(is_chosen)
    parts = np.zeros((len(chosen), sums[plan.events[0]].weight.shape[1]))
    of_chosen = np.zeros(len(chosen))
    for name, count in plan.counts.items():
        factor = gradient[name][chosen] * count.scale
        for event in count.rows:
            parts += factor[:, None] * sums[event].weight[chosen]
            of_chosen += factor**2 * sums[event].squares[chosen]
    between, freedom, independent = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n)
    between[chosen], freedom[chosen] = variance_between(parts)
    independent[chosen] = of_chosen
    return _Scatter(between, freedom, independent)


def _of_even_samples(sampling: F64, scatter: _Scatter, terms: Mapping[str, _Term], gradient: Mapping[str, F64]) -> F64:
    """The variance of sampling, of code that was sampled evenly and not by chance.

    Which visit a fixed period ends in is chance where visits are short against it: samples are then independent. Code
    that stays has one after each period, and only its ends are in doubt. Visits of exponential length v, to pieces of
    code that are drawn anew each time, and a period P leave coth(P / 2v) - 2v / P of the variance of independent
    samples (systematic samples where correlation falls exponentially, after Cochran 1946). Nobody knows v, but what is
    left is in the scatter between intervals, whatever it comes from. That counts where it is less, and there are enough
    intervals to tell; no count is known better than to a sample.
    """
    least = np.sum([(gradient[name] * each.each) ** 2 for name, each in terms.items()], axis=0)
    told = (OF_LESS_SCATTER * student_95(scatter.freedom) / Z_95) ** 2 * scatter.between
    return np.where(scatter.freedom >= SCATTER_FREEDOM, np.minimum(sampling, np.maximum(told, least)), sampling)


def _with_multiplexing(unseen_time: float, sampling: F64, scatter: _Scatter, *, is_exact: bool) -> F64:
    """Half of the 95 % interval, with the variance of the windows in which other groups had the counters.

    How far what intervals add scatters beyond sampling is what the choice of windows does. Windows that were seen are
    free of it, hence the factor of unseen time (finite population correction).

    Of a row with nearly all samples sampling leaves next to no doubt, so that the choice of windows is all there is:
    its scatter then counts whether or not it stands out, which with few intervals is chance.
    """
    between, freedom = scatter.between, scatter.freedom
    if is_exact:
        return student_95(freedom) * np.sqrt(unseen_time * between)
    # Counted only where it clearly stands out: scatter that is no more than sampling's must not widen the interval.
    stands_out = between > sampling * (1 + 2 * np.sqrt(2 / freedom))
    excess = np.where(stands_out, unseen_time * (between - sampling), 0.0)
    variance = sampling + excess
    total_freedom = np.where(stands_out, satterthwaite(variance, unseen_time * between, freedom), np.inf)
    square = student_95(total_freedom) ** 2 * variance
    apart = student_95(freedom) ** 2 * (sampling + unseen_time * between)
    saved = np.maximum(scatter.independent - sampling, 0)
    known = np.divide(saved, scatter.independent, out=np.zeros_like(saved), where=saved > 0) ** NEARLY_ALL
    return np.sqrt(np.where(np.isfinite(apart), (1 - known) * square + known * apart, square))


def _is_significant(metric: Metric, value: F64, half_width: F64, samples: U64) -> NDArray[np.bool_]:
    enough = np.abs(value)
    if metric.units.startswith("percent"):
        enough = np.maximum(enough, INFORMATIVE_POINTS)
    return np.asarray((samples >= MIN_SAMPLES) & (half_width <= enough))
