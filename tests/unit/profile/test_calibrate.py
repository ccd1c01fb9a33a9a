"""Events that were sampled all the time beside counter groups that had their turns."""

from dataclasses import fields, replace

import numpy as np

from builders.topdown import topdown_profile
from tdprof.model.events import EventInfo, Unit
from tdprof.model.profile import Profile, SampleTable
from tdprof.pipeline.load import find_findings
from tdprof.profile.calibrate import calibrated

GROUPS = topdown_profile(samples=400)


def with_event_beside(profile: Profile) -> Profile:
    """The profile with one more event, of which every sample of the first event has a copy of weight 7."""
    own = EventInfo("cycles", Unit.COUNT, 0, 99, 700, 4, 4)
    first = np.flatnonzero(profile.samples.event == 0)
    columns = {}
    for each in fields(SampleTable):
        column = getattr(profile.samples, each.name)
        columns[each.name] = np.concatenate([column, column[first]])
    columns["event"][-len(first) :] = len(profile.events)
    columns["weight"][-len(first) :] = 7
    return replace(profile, events=[*profile.events, own], samples=SampleTable(**columns))


def test_an_event_of_no_group_comes_first_and_keeps_its_weights() -> None:
    before, found = calibrated(GROUPS), calibrated(with_event_beside(GROUPS))
    assert [event.name for event in found.events] == ["cycles", *(event.name for event in before.events)]
    assert found.events[0].total == 700
    of_groups = found.samples.event > 0
    assert (found.samples.weight[~of_groups] == 7).all()
    assert (found.samples.event[of_groups] == before.samples.event + 1).all()
    assert (found.samples.weight[of_groups] == before.samples.weight).all()


def test_metrics_are_the_same_whatever_was_sampled_beside_them() -> None:
    alone, beside = find_findings(GROUPS), find_findings(with_event_beside(GROUPS))
    assert alone is not None
    assert beside is not None
    assert dict(alone.program.row(0)) == dict(beside.program.row(0))
    for row in range(3):
        assert beside.functions.row(row) == alone.functions.row(row)
