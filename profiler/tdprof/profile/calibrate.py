"""Exact totals and samples brought together: what one sample of each event stands for, and each event once."""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from tdprof.model.events import EventInfo
from tdprof.model.profile import Profile, SampleTable


def calibrated(profile: Profile, whole: Profile | None = None) -> Profile:
    """A Topdown profile with each event once, its weights scaled to what was counted; any other profile unchanged.

    Events of no group come first, as they are. An event that several groups sampled is pooled: its samples of all
    groups stand together for the event's total, scaled from the time in which a counter ran to the time in which it
    could have.

    Args:
        profile: as recorded, or some of its samples, of which no event has a total.
        whole: what these are of; a weight stands for what it does there, where it is known what was counted.
    """
    whole = whole or profile
    if profile.topdown is None:
        return profile
    grouped = {row for group in profile.topdown.groups for row in group.events}
    alone = [row for row in range(len(profile.events)) if row not in grouped]
    names: dict[str, int] = {}
    number = np.zeros(len(profile.events), dtype=np.uint32)
    number[alone] = np.arange(len(alone))
    rows: list[list[int]] = []
    for group in profile.topdown.groups:
        for row, name in zip(group.events, group.names, strict=True):
            if name not in names:
                names[name] = len(names)
                rows.append([])
            number[row] = len(alone) + names[name]
            rows[names[name]].append(row)
    weights = whole.total_weight().astype(np.float64)
    scale = np.zeros(len(profile.events))
    scale[alone] = 1
    events = [profile.events[row] for row in alone]
    for name, index in names.items():
        members = [whole.events[row] for row in rows[index]]
        total = scaled_total(members, is_each_whole=profile.topdown.is_pass_per_group)
        sampled = float(weights[rows[index]].sum())
        if total is not None and sampled:
            scale[rows[index]] = total / sampled
        is_counted = profile is whole and total is not None
        events.append(
            replace(profile.events[rows[index][0]], name=name, total=round(total or 0) if is_counted else None)
        )
    columns = {each.name: getattr(profile.samples, each.name) for each in fields(profile.samples)}
    columns["weight"] = np.rint(profile.samples.weight * scale[profile.samples.event]).astype(np.uint64)
    columns["event"] = number[profile.samples.event]
    return replace(profile, events=events, samples=SampleTable(**columns))


def scaled_total(events: Sequence[EventInfo], *, is_each_whole: bool) -> float | None:
    """What an event counted, scaled to the whole time; None if no group that has it ever ran.

    Args:
        events: the event as each group counted it.
        is_each_whole: each had the whole of a run of its own; else they shared one run's time.
    """
    ran = [(event.total, event.enabled_ns, event.running_ns) for event in events if event.running_ns]
    value = sum(total or 0 for total, _, _ in ran)
    running = sum(running or 0 for _, _, running in ran)
    if not running:
        return None
    enabled = (
        sum(enabled or 0 for _, enabled, _ in ran) if is_each_whole else max(enabled or 0 for _, enabled, _ in ran)
    )
    scaled = value * enabled / running
    return scaled / len(ran) if is_each_whole else scaled
