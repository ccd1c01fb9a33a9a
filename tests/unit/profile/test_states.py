"""Samples by their CPU, and those of time off one by the state that the thread was in."""

from dataclasses import replace

import numpy as np

from builders.profiles import CLOCK, ProfileBuilder
from tdprof.model.choices import GroupKind
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.off_cpu import ThreadState
from tdprof.profile.groups import group_samples
from tdprof.report.groups.json import rows_json

EVENTS = (CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, 10_000_000))


def test_samples_are_told_apart_by_their_cpu() -> None:
    builder = ProfileBuilder(EVENTS)
    for name, weight in (("work", 5), ("work", 3), ("other", 4)):
        builder.add("main", name, weight=weight)
    builder.add("main", "wait", event=1, weight=9, state=ThreadState.INTERRUPTIBLE)
    profile = builder.build()
    profile = replace(profile, samples=replace(profile.samples, cpu=np.array([10, 2, 2, -1], np.int32)))
    groups = group_samples(profile, GroupKind.CPU)
    assert list(groups.name) == ["2", "10", ""]
    assert groups.weight.tolist() == [[7, 0], [5, 0], [0, 9]]
    assert [row["cpu"] for row in rows_json(profile, groups, 0)] == [2, 10, None]


def test_time_off_a_cpu_is_told_apart_by_its_state() -> None:
    builder = ProfileBuilder(EVENTS).add("main", "work", weight=5)
    for name, weight, state in (
        ("futex", 30, ThreadState.INTERRUPTIBLE),
        ("read", 20, ThreadState.INTERRUPTIBLE),
        ("fsync", 40, ThreadState.UNINTERRUPTIBLE),
        ("work", 10, ThreadState.RUNNABLE),
    ):
        builder.add("main", name, event=1, weight=weight, state=state)
    profile = builder.build()
    groups = group_samples(profile, GroupKind.STATE, 1)
    names = ["asleep", "asleep beyond signals", "waiting for a CPU", "on a CPU"]
    assert list(groups.name) == names
    assert groups.weight.tolist() == [[0, 50], [0, 40], [0, 10], [5, 0]]
    assert groups.share.tolist() == [0.5, 0.4, 0.1, 0]
    assert [profile.functions.name[each] for each in groups.hottest[:3]] == ["futex", "fsync", "work"]
