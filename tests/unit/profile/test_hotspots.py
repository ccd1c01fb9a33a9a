"""Self and inclusive sums, by hand."""

import numpy as np
import pytest

from builders.profiles import Call, Frame, ProfileBuilder, example
from tdprof.errors import TdprofError
from tdprof.model.addresses import Unknown
from tdprof.model.events import EventInfo, Unit
from tdprof.model.profile import Profile
from tdprof.profile.frames import NO_STACK, function_names
from tdprof.profile.hotspots import Hotspots, find_hotspots, share_half_width, unknown_samples


def by_name(profile: Profile, hotspots: Hotspots) -> dict[str, tuple[int, int, int]]:
    names = function_names(profile)
    return {
        names[function]: (int(hotspots.self_weight[i, 0]), int(hotspots.inclusive_weight[i, 0]), int(hotspots.line[i]))
        for i, function in enumerate(hotspots.function)
    }


def test_self_is_the_leaf_and_recursion_counts_once() -> None:
    profile = ProfileBuilder().add("main", "f", "g", "f", weight=5).add("main", "g", weight=2).build()
    assert by_name(profile, find_hotspots(profile)) == {"f": (5, 5, 0), "g": (2, 7, 0), "main": (0, 7, 0)}


def test_inlined_frames_are_functions_with_lines() -> None:
    inlined = Call((Frame("inner", 3), Frame("outer", 8)))
    profile = ProfileBuilder().add("main", inlined, weight=5).add("main", Frame("outer", 9), weight=7).build()
    assert by_name(profile, find_hotspots(profile)) == {"outer": (7, 12, 9), "inner": (5, 5, 3), "main": (0, 12, 0)}


def test_lines_of_one_function_are_rows_of_their_own() -> None:
    profile = ProfileBuilder().add(Frame("f", 1), weight=5).add(Frame("f", 2), Frame("f", 1), weight=3).build()
    lines = find_hotspots(profile, by_line=True)
    assert lines.line.tolist() == [1, 2]
    assert lines.self_weight[:, 0].tolist() == [8, 0]
    assert lines.inclusive_weight[:, 0].tolist() == [8, 3]


def test_a_function_with_lines_of_several_files_is_one_row_and_each_line_has_its_file() -> None:
    body = Frame("loop", 2, "body.inc", own_file="loop.c")
    profile = (
        ProfileBuilder()
        .add(body, weight=6)
        .add(Frame("loop", 2, "loop.c"), weight=2)
        .add(Frame("loop", 9, "loop.c"), Frame("leaf"), weight=1)
        .add(Frame("loop", 2, "body.inc", own_file="other.c"), weight=5)
        .build()
    )
    names, files = function_names(profile), profile.functions.file

    def rows(hotspots: Hotspots) -> list[tuple[str, str, int, int, int]]:
        sums = zip(hotspots.self_weight[:, 0].tolist(), hotspots.inclusive_weight[:, 0].tolist(), strict=True)
        places = zip(hotspots.function.tolist(), hotspots.line.tolist(), strict=True)
        return [(names[f], files[f], line, *sum_) for (f, line), sum_ in zip(places, sums, strict=True)]

    # The line beside a function is the hottest of the file that it stands in.
    whole = [("loop", "loop.c", 2, 8, 9), ("loop", "other.c", 0, 5, 5), ("leaf", "", 0, 1, 1)]
    assert rows(find_hotspots(profile)) == whole
    assert rows(find_hotspots(profile, by_line=True)) == [
        ("loop", "body.inc", 2, 6, 6),
        ("loop", "body.inc", 2, 5, 5),
        ("loop", "loop.c", 2, 2, 2),
        ("leaf", "", 0, 1, 1),
        ("loop", "loop.c", 9, 0, 1),
    ]


def test_samples_without_a_stack_keep_their_weight() -> None:
    profile = ProfileBuilder().add(weight=4, count=2).build()
    hotspots = find_hotspots(profile)
    assert by_name(profile, hotspots) == {NO_STACK: (4, 4, 0)}
    assert hotspots.self_samples.tolist() == [[2]]
    (unknown,) = unknown_samples(profile)
    assert (unknown.reason, unknown.samples, unknown.weight.tolist()) == (None, 2, [4])


def test_rows_are_sorted_by_the_chosen_event() -> None:
    events = (EventInfo("a", Unit.COUNT), EventInfo("b", Unit.COUNT))
    profile = ProfileBuilder(events).add("f", weight=9).add("g", weight=1).add("g", weight=5, event=1).build()
    names = function_names(profile)
    assert [names[f] for f in find_hotspots(profile).function] == ["f", "g"]
    assert [names[f] for f in find_hotspots(profile, sort_event=1).function] == ["g", "f"]


def test_weights_beyond_a_double_stay_exact() -> None:
    profile = ProfileBuilder().add("f", weight=2**62 + 1).add("f", weight=2**62 + 2, tid=7).build()
    assert find_hotspots(profile).self_weight.tolist() == [[2**63 + 3]]


def test_unknown_leaves_are_counted_by_reason() -> None:
    assert [(each.reason, each.samples) for each in unknown_samples(example())] == [(Unknown.STRIPPED, 150), (None, 50)]


def test_an_empty_profile_has_no_hotspots() -> None:
    profile = ProfileBuilder().build()
    assert len(find_hotspots(profile)) == 0
    assert len(find_hotspots(ProfileBuilder(()).build(), by_line=True)) == 0
    assert unknown_samples(profile) == []


def test_half_width_is_wilsons() -> None:
    profile = ProfileBuilder().add("f", count=75, weight=75).add("g", count=25, weight=25).build()
    # Wilson's 95 % interval for 75 of 100 is 0.6570 to 0.8246.
    assert share_half_width(np.array([0.75]), profile, 0)[0] == pytest.approx((0.8246 - 0.6570) / 2, abs=1e-3)
    # Even a share of all samples is not certain.
    assert share_half_width(np.array([1.0]), profile, 0)[0] > 0.01


def test_half_width_covers_the_truth() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        hits = int(generator.binomial(200, 0.3))
        profile = (
            ProfileBuilder().add("f", count=hits, weight=hits * 7).add("g", count=200 - hits, weight=(200 - hits) * 7)
        )
        half = share_half_width(np.array([hits / 200]), profile.build(), 0)[0]
        covered += abs(hits / 200 - 0.3) <= half
    assert 930 <= covered <= 970


def test_rows_and_events_that_are_too_many_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.profile.hotspots._SPARE_CELLS", 0)
    monkeypatch.setattr("tdprof.profile.hotspots._CELLS_A_SAMPLE", 0)
    with pytest.raises(TdprofError, match="too many to add up"):
        find_hotspots(example())
