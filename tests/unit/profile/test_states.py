"""Samples of time off a CPU by the state that the thread was in."""

from builders.profiles import CLOCK, ProfileBuilder
from tdprof.model.choices import GroupKind
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.off_cpu import ThreadState
from tdprof.profile.groups import group_samples

EVENTS = (CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, 10_000_000))


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
