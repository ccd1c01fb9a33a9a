"""How each metric of a Topdown recording is measured: by which events of which groups, and what weights stand for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tdprof.catalog.entries import Catalog, Metric
from tdprof.metrics.observations import Entries
from tdprof.model.events import EventInfo, TopdownInfo
from tdprof.model.metric_plans import EventCount, MetricPlan
from tdprof.model.profile import Profile
from tdprof.profile.calibrate import scaled_total
from tdprof.profile.statistics import UNSEEN_SAMPLES


def find_plans(profile: Profile, catalog: Catalog, entries: Entries) -> Iterator[MetricPlan]:
    """One for each metric that the groups which ran can tell, in the catalog's order.

    Args:
        profile: of a whole Topdown recording, not calibrated.
        entries: all its samples.

    Raises:
        ValueError: the profile is not of a Topdown recording.
    """
    if (topdown := profile.topdown) is None:
        raise ValueError("not a Topdown profile")
    asked = {*topdown.split_metrics, *(metric for group in topdown.groups for metric in group.metrics)}
    for metric in catalog.metrics.values():
        if metric.name not in asked:
            continue
        counted = _in_one_group(metric, topdown, profile.events) or _in_many_groups(metric, topdown, profile.events)
        if counted:
            counts = {name: _count(rows, total, entries) for name, (rows, total) in counted.items()}
            rows = [profile.events[row] for rows, _ in counted.values() for row in rows]
            seen = 1.0 if topdown.is_pass_per_group else min(map(_seen, rows), default=1.0)
            yield MetricPlan(metric, counts, seen)


def plans_of_part(plans: Sequence[MetricPlan], part: Entries, threads: int) -> list[MetricPlan]:
    """How metrics are measured of a stretch of the recording's time.

    Each counter of a thread gives a sample in so many events, so that its samples of a time tell its count to the
    period that is under way at either end: of many counters that adds up to a quarter of a sample's square each, at
    most.

    Args:
        plans: of the whole recording.
        part: the samples of the time.
        threads: of the recording.
    """
    found = []
    for plan in plans:
        counts = {}
        for name, whole in plan.counts.items():
            count = _count(whole.rows, None, part)
            total = whole.total
            if total is not None and whole.weight:
                unseen = UNSEEN_SAMPLES * whole.weight / whole.samples * whole.scale
                total = count.weight * whole.scale if count.samples else min(total, unseen)
            edges = min(max(1.0, threads * len(whole.rows) / 4), max(1.0, count.samples))
            counts[name] = replace(count, total=total, edges=edges)
        found.append(replace(plan, counts=counts))
    return found


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


def _count(rows: Sequence[int], total: float | None, entries: Entries) -> EventCount:
    samples, weight, squares = (
        float(sum(column[entries.of_event(row)].sum() for row in rows))
        for column in (entries.samples, entries.weight, entries.squares)
    )
    return EventCount(rows, total, samples, weight, squares)


def _seen(event: EventInfo) -> float:
    return (event.running_ns or 0) / event.enabled_ns if event.enabled_ns else 1.0
