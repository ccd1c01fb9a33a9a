"""What `tdprof stat` does between its options and its printing: plan the counter groups, count, evaluate."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tdprof.catalog.choose import CatalogChoice
from tdprof.catalog.entries import Metric
from tdprof.metrics.formula import evaluate
from tdprof.metrics.schedule import CounterGroup
from tdprof.model.events import Unit
from tdprof.model.measurement import Measured, Measurement
from tdprof.pipeline.plan import plan_groups, why_not_countable
from tdprof.recorder.counted_run import CountedRun, CountedSpan, Subject, count_run
from tdprof.recorder.events import Event
from tdprof.recorder.perf_event import Count
from tdprof.recorder.pmu import CorePmu, Counters, EventTrial
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be counted.

    Attributes:
        plain: events counted each by itself, such as software events.
        metrics: the metrics asked for, countable here or not.
        groups: the counter groups for those that are, each with the events to open.
        notes: one line each, about what is missing or split.
    """

    plain: tuple[Event, ...]
    metrics: tuple[Metric, ...]
    groups: tuple[tuple[CounterGroup, tuple[Event, ...]], ...]
    notes: tuple[str, ...]


def plan_counting(
    choice: CatalogChoice | None,
    metrics: Sequence[Metric],
    plain: Sequence[Event],
    pmu: CorePmu | None,
    counters: Counters | None,
    trial: EventTrial | None = None,
) -> Plan:
    """Decide which events to count together.

    Args:
        pmu, counters: what this machine offers; None where it offers no core PMU, or no free counter.
        trial: as for `plan_groups`.
    """
    if choice is None or not metrics:
        return Plan(tuple(plain), tuple(metrics), (), choice.notes if choice else ())
    if pmu is None or counters is None:
        note = f"{why_not_countable(pmu)}: hardware events are not counted, so their metrics have no value"
        return Plan(tuple(plain), tuple(metrics), (), (*choice.notes, note))
    planned = plan_groups(choice, metrics, pmu, counters, trial=trial)
    return Plan(tuple(plain), tuple(metrics), planned.groups, planned.notes)


def measure(
    plan: Plan,
    subject: Subject,
    *,
    repetitions: int = 1,
    one_pass_per_group: bool = False,
    interval_s: float | None = None,
    on_interval: Callable[[Measurement], None] = lambda _: None,
    on_run: Callable[[int, int], None] = lambda _number, _total: None,
) -> tuple[Measurement, CountedRun]:
    """Count as planned and evaluate.

    Args:
        one_pass_per_group: run the command once for each counter group instead of letting the groups take turns.
        on_run: called before each run with its number, from 1, and how many there will be.

    Returns:
        The (mean) measurement, and the last run, for what befell it; its exit status is the first that is not zero.
    """
    opened = [(event,) for event in plan.plain] + [events for _, events in plan.groups]
    passes = [range(len(opened))]
    if one_pass_per_group and len(plan.groups) > 1:
        first = len(plan.plain)
        passes = [range(first + 1), *(range(index, index + 1) for index in range(first + 1, len(opened)))]
    measurements, exit_status = [], None
    for repetition in range(repetitions):
        runs: list[CountedRun] = []
        for indices in passes:
            on_run(repetition * len(passes) + len(runs) + 1, repetitions * len(passes))
            run = count_run(
                subject,
                [opened[index] for index in indices],
                interval_s=interval_s,
                on_interval=lambda snapshot: on_interval(_evaluate(plan, snapshot, {})),
            )
            runs.append(run)
            exit_status = exit_status or run.exit_status
            if run.was_interrupted:
                break
        measurements.append(_evaluate(plan, _join(runs, passes, len(opened)), _refusals(runs)))
        if run.was_interrupted:
            break
    return _mean(measurements), replace(run, exit_status=exit_status)


def _join(runs: Sequence[CountedRun], passes: Sequence[range], groups: int) -> CountedSpan:
    """One snapshot from the passes of one repetition; the times are those of the mean pass."""
    counts: list[dict[str, Count]] = [{} for _ in range(groups)]
    for run, indices in zip(runs, passes, strict=False):
        for index, group in zip(indices, run.total.counts, strict=True):
            counts[index] = group
    seconds = statistics.fmean(run.total.seconds for run in runs)
    return CountedSpan(seconds, seconds, tuple(counts))


def _refusals(runs: Iterable[CountedRun]) -> dict[str, str]:
    return {name: reason for run in runs for name, reason in run.refused.items()}


def _evaluate(plan: Plan, snapshot: CountedSpan, refused: Mapping[str, str]) -> Measurement:
    """Metrics from the counts of the group that each is scheduled in, events from all groups that hold them."""
    first = len(plan.plain)
    events: dict[str, Measured] = {}
    for event, counts in zip(plan.plain, snapshot.counts, strict=False):
        if event.name not in counts:
            reason = refused.get(event.name, "not counted")
            events[event.name] = Measured(math.nan, running_percent=0.0, reason=reason)
            continue
        seen = _pooled([counts[event.name]])
        is_time = event.unit is Unit.NANOSECONDS
        events[event.name] = replace(seen, value=seen.value / 1e6, units="ms") if is_time else seen
    group_counts = snapshot.counts[first:]
    everywhere: dict[str, list[Count]] = {}
    for counts in group_counts:
        for name, count in counts.items():
            everywhere.setdefault(name, []).append(count)
    hardware = {name: _pooled(counts) for name, counts in everywhere.items()}
    home = {name: index for index, (group, _) in enumerate(plan.groups) for name in group.metrics}
    metrics = {}
    for metric in plan.metrics:
        own = group_counts[home[metric.name]] if metric.name in home else None
        counts_here = {name: _pooled([count]) for name, count in own.items()} if own is not None else hardware
        metrics[metric.name] = _metric_value(metric, counts_here, refused)
    return Measurement(snapshot.end_s, snapshot.seconds, events | hardware, metrics)


def _pooled(counts: Sequence[Count]) -> Measured:
    """One count from what several groups, each counting part of the time, saw of the same event."""
    enabled = statistics.fmean(count.enabled_ns for count in counts)
    running = sum(count.running_ns for count in counts)
    value = sum(count.value for count in counts)
    if not running:
        # Never scheduled: either the task did not run, and nothing happened, or the counters were never free.
        return Measured(0.0) if not enabled else Measured(math.nan, running_percent=0.0, reason="no counter free")
    return Measured(value * enabled / running, running_percent=min(100.0, 100.0 * running / enabled))


def _metric_value(metric: Metric, counts: Mapping[str, Measured], refused: Mapping[str, str]) -> Measured:
    known = {name: counts[name].value for name in metric.events if name in counts and counts[name].is_known}
    if missing := [name for name in metric.events if name not in known]:
        reasons = {refused[name] for name in missing if name in refused}
        reason = f"not counted: {', '.join(missing)}" + (f" ({', '.join(sorted(reasons))})" if reasons else "")
        return Measured(math.nan, metric.units, 0.0, reason=reason)
    value = float(evaluate(metric.expression, known))
    if math.isnan(value):
        return Measured(math.nan, metric.units, 0.0, reason="a denominator is zero")
    return Measured(value, metric.units, min((counts[name].running_percent for name in known), default=100.0))


def evaluate_counts(metrics: Sequence[Metric], counts: Mapping[str, float]) -> Measurement:
    """Metrics of counts from elsewhere, which are taken to belong together."""
    events = {name: Measured(value) for name, value in counts.items()}
    return Measurement(0.0, 0.0, events, {metric.name: _metric_value(metric, events, {}) for metric in metrics})


def _mean(measurements: Sequence[Measurement]) -> Measurement:
    """Mean and sample standard deviation over repetitions."""
    if len(measurements) == 1:
        return measurements[0]
    seconds = statistics.fmean(measurement.seconds for measurement in measurements)
    return Measurement(
        seconds,
        seconds,
        _mean_by_name([measurement.events for measurement in measurements]),
        _mean_by_name([measurement.metrics for measurement in measurements]),
    )


def _mean_by_name(runs: Sequence[Mapping[str, Measured]]) -> dict[str, Measured]:
    """Over the runs in which each has a value."""
    means = {}
    for name, last in runs[-1].items():
        known = [run[name].value for run in runs if name in run and run[name].is_known]
        if known:
            deviation = statistics.stdev(known) if len(known) > 1 else None
            means[name] = replace(last, value=statistics.fmean(known), standard_deviation=deviation, reason="")
        else:
            means[name] = last
    return means
