"""Samples of a range of time: whole intervals by their middle, or each sample by its own time."""

import numpy as np
import pytest

from builders.profiles import ProfileBuilder
from tdprof.errors import TdprofError
from tdprof.model.choices import Selection
from tdprof.model.profile import Profile
from tdprof.model.time_range import parse_time_ranges
from tdprof.profile.intervals import find_intervals
from tdprof.profile.selection import select
from tdprof.report.summary import facts

S = 1_000_000_000
START_NS = 500 * S


def intervals(*ends_s: float, longest_s: float = 1.0) -> Profile:
    """A sample of 1, 2, 4 … in the intervals that end then."""
    builder = ProfileBuilder()
    for number, end_s in enumerate(ends_s):
        builder.add("main", f"part_{number}", weight=1 << number, time_ns=START_NS + round(end_s * S))
    return builder.build(
        start_monotonic_ns=START_NS,
        duration_ns=round(max(ends_s) * S),
        longest_interval_ns=round(longest_s * S),
        is_whole_run=True,
    )


def at(profile: Profile, text: str) -> Profile:
    return select(profile, Selection(times=tuple(parse_time_ranges(text))))


def weight(profile: Profile, text: str) -> int:
    return int(at(profile, text).samples.weight.sum())


def test_intervals_follow_each_other_and_no_gap_is_taken_for_one() -> None:
    found = find_intervals(intervals(0.9, 1.8, 4.5, 5.4))
    assert (found.begin / S).tolist() == pytest.approx([0, 0.9, 3.5, 4.5])
    assert (found.end / S).tolist() == pytest.approx([0.9, 1.8, 4.5, 5.4])
    assert found.number.tolist() == [0, 1, 2, 3]


def test_an_interval_is_whole_where_its_middle_is() -> None:
    profile = intervals(1, 2, 3, 4)
    assert weight(profile, "1s-3s") == 0b0110
    assert weight(profile, "1.4s-3.6s") == 0b1110  # the middles are 0.5, 1.5, 2.5, 3.5
    assert weight(profile, "1.5s-2.5s") == 0b0010  # from the beginning on, up to before the end
    assert weight(profile, "-1s-") == 0b1000
    assert weight(profile, "0s-1s,3s-") == 0b1001


@pytest.mark.parametrize("slices", [2, 3, 4, 10])
def test_slices_add_up_to_the_whole(slices: int) -> None:
    profile = intervals(*np.arange(0.7, 30, 0.9).tolist())
    percent = 100 / slices
    text = [f"{percent * n:.9f}%-{percent * (n + 1):.9f}%" for n in range(slices - 1)]
    parts = [weight(profile, each) for each in [*text, f"{percent * (slices - 1):.9f}%-"]]
    assert sum(parts) == int(profile.samples.weight.sum())


def test_the_head_says_what_is_shown_and_how_finely_time_is_known() -> None:
    found = at(intervals(1, 2, 3, 4), "1.2s-3.2s")
    assert dict(facts(found))["time"] == (
        "1.000 s to 3.000 s: the intervals, of about 1.000 s, whose middle is within 1.200 s to 3.200 s; "
        "each counts whole"
    )
    assert "time" not in dict(facts(intervals(1, 2)))
    assert not found.is_whole_run
    assert found.notes[0].startswith("only samples of --time 1.2s-3.2s: 2 of 4 samples (50.0%)")


def test_sample_times_are_taken_as_they_are() -> None:
    builder = ProfileBuilder()
    for number in range(4):
        builder.add("main", weight=1 << number, time_ns=START_NS + number * S // 2)
    profile = builder.build(start_monotonic_ns=START_NS, duration_ns=3 * S // 2, has_sample_times=True)
    assert weight(profile, "0.5s-1s") == 0b0010
    assert weight(profile, "0.5s-1.5s") == 0b1110  # the last moment is in the range that ends with it
    assert weight(profile, "0%-50%") == 0b0011
    assert dict(facts(at(profile, "0.5s-1s")))["time"] == "0.500 s to 1.000 s, by the time of each sample"


def test_a_range_finer_than_the_capture_and_one_without_samples_are_refused() -> None:
    with pytest.raises(TdprofError, match=r"this capture knows time to 1\.000 s"):
        at(intervals(1, 2, 3), "1.6s-1.9s")
    with pytest.raises(TdprofError, match="no sample is of --time 3s-7s"):
        at(intervals(1, 2, 9), "3s-7s")
