"""Inclusive values of functions that are one to a fleet add up to that of the stacks that any of them is in."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from builders.profiles import profiles
from tdprof.fleet.totals import totals_once
from tdprof.model.profile import Profile
from tdprof.profile.frames import frame_stacks
from tdprof.profile.hotspots import find_hotspots


@given(profiles(), st.lists(st.integers(0, 3), min_size=64, max_size=64))
def test_totals_of_functions_that_are_one(profile: Profile, drawn: list[int]) -> None:
    hotspots = find_hotspots(profile)
    kind = {function: drawn[row % len(drawn)] for row, function in enumerate(hotspots.function.tolist())}
    members = [[row for row, each in enumerate(hotspots.function.tolist()) if kind[each] == n] for n in range(4)]
    weight, samples = totals_once(profile, hotspots, [rows for rows in members if len(rows) > 1])
    stacks = frame_stacks(profile)
    expected: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
    of = profile.samples
    for event, stack, count, each in zip(of.event, of.stack, of.count, of.weight, strict=True):
        kinds = {kind[frame] for frame in stacks.function[stacks.start[stack] : stacks.start[stack + 1]].tolist()}
        for number in kinds:
            expected[0][number, int(event)] += int(each)
            expected[1][number, int(event)] += int(count)
    for event in range(len(profile.events)):
        for number, rows in enumerate(members):
            assert int(weight[rows, event].sum()) == expected[0][number, event]
            assert int(samples[rows, event].sum()) == expected[1][number, event]
    assert (weight >= hotspots.self_weight).all()
    assert (samples >= hotspots.self_samples).all()
