"""What holds for the report of every profile: nothing gained, nothing lost."""

import json
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders.profiles import profiles
from tdprof.model.profile import Profile
from tdprof.profile.hotspots import find_hotspots, unknown_samples
from tdprof.report.profile.json import render_json

Identity = tuple[str, str, str]


def identity(profile: Profile, function: int) -> Identity | None:
    """What a reader of a report can tell a function by; None where there is no call stack."""
    if function < 0:
        return None
    mapped_file = int(profile.functions.mapped_file[function])
    module = profile.mapped_files[mapped_file].path if mapped_file >= 0 else ""
    return profile.functions.name[function], profile.functions.file[function], module


@given(profiles(), st.booleans())
def test_sums_are_conserved(profile: Profile, by_line: bool) -> None:
    hotspots = find_hotspots(profile, by_line=by_line)
    weight, samples = profile.total_weight(), profile.total_samples()
    assert (hotspots.self_weight.sum(axis=0) == weight).all()
    assert (hotspots.self_samples.sum(axis=0) == samples).all()
    assert (hotspots.inclusive_weight >= hotspots.self_weight).all()
    assert (hotspots.inclusive_samples >= hotspots.self_samples).all()
    assert (hotspots.inclusive_weight <= weight).all()


@given(profiles())
def test_inclusive_agrees_with_a_walk_over_every_stack(profile: Profile) -> None:
    expected: Counter[Identity | None] = Counter()
    locations, stacks, samples = profile.locations, profile.stacks, profile.samples
    for event, stack, weight in zip(samples.event, samples.stack, samples.weight, strict=True):
        if event:
            continue
        functions = {
            identity(profile, function)
            for location in stacks.location[stacks.start[stack] : stacks.start[stack + 1]]
            for function in locations.frame_function[
                locations.frame_start[location] : locations.frame_start[location + 1]
            ]
        }
        for function in functions or {None}:
            expected[function] += int(weight)
    hotspots = find_hotspots(profile)
    seen = {
        identity(profile, function): weight
        for function, weight in zip(hotspots.function, hotspots.inclusive_weight[:, 0].tolist(), strict=True)
    }
    assert len(seen) == len(hotspots)
    assert +Counter(seen) == +expected


@given(profiles())
def test_lines_add_up_to_their_function(profile: Profile) -> None:
    functions, lines = find_hotspots(profile), find_hotspots(profile, by_line=True)
    for row, function in enumerate(functions.function):
        assert (lines.self_weight[lines.function == function].sum(axis=0) == functions.self_weight[row]).all()
    assert (np.diff(functions.self_weight[:, 0].astype(object)) <= 0).all()


@given(profiles(), st.booleans())
def test_the_json_report_is_valid_and_complete(profile: Profile, by_line: bool) -> None:
    hotspots = find_hotspots(profile, by_line=by_line)
    report = json.loads("".join(render_json(profile, hotspots, unknown_samples(profile))).encode())
    assert sum(each["samples"] for each in report["functions"]) == int(profile.samples.count.sum())
    for i, event in enumerate(report["events"]):
        assert sum(each["self"][event["name"]] for each in report["functions"]) == int(profile.total_weight()[i])
