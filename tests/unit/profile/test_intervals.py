"""Samples of a range of time: whole intervals by their middle, or each sample by its own time."""

from dataclasses import replace

import numpy as np
import pytest

from builders.profiles import ProfileBuilder
from tdprof.errors import TdprofError
from tdprof.model.choices import GroupKind, Selection
from tdprof.model.profile import Profile
from tdprof.model.time_range import parse_time_ranges
from tdprof.profile.groups import group_samples
from tdprof.profile.intervals import even_intervals, find_intervals, rate_over_time, sample_times, seconds_of_samples
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
        interval_ns=round(longest_s * S),
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


def test_a_long_interval_begins_when_the_recording_says() -> None:
    """Else what had ten intervals' samples would have them in one."""
    profile = replace(
        intervals(0.9, 1.8, 9.5, 10.4, 14.0), long_intervals={START_NS + round(9.5 * S): START_NS + 4 * S, 14 * S: 1}
    )
    found = find_intervals(profile)
    assert (found.begin / S).tolist() == pytest.approx([0, 0.9, 4, 9.5, 13])
    # What damage makes of it reaches no further than the interval before.
    damaged = replace(profile, long_intervals={START_NS + round(9.5 * S): 0, START_NS + 14 * S: START_NS + 20 * S})
    assert (find_intervals(damaged).begin / S).tolist() == pytest.approx([0, 0.9, 1.8, 9.5, 14])


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
    builder.add("main", weight=16, time_ns=START_NS - 1)  # of a CPU whose events counted before the last one's did
    profile = builder.build(start_monotonic_ns=START_NS, duration_ns=3 * S // 2, has_sample_times=True)
    assert weight(profile, "0s-0.5s") == 0b10001
    assert seconds_of_samples(profile).begin.tolist() == [0, S]
    assert weight(profile, "0.5s-1s") == 0b0010
    assert weight(profile, "0.5s-1.5s") == 0b1110  # the last moment is in the range that ends with it
    assert weight(profile, "0%-50%") == 0b10011
    assert dict(facts(at(profile, "0.5s-1s")))["time"] == "0.500 s to 1.000 s, by the time of each sample"


def test_a_range_finer_than_the_capture_and_one_without_samples_are_refused() -> None:
    with pytest.raises(TdprofError, match=r"this capture knows time to 1\.000 s"):
        at(intervals(1, 2, 3), "1.6s-1.9s")
    with pytest.raises(TdprofError, match="no sample is of --time 3s-7s"):
        at(intervals(1, 2, 9), "3s-7s")


def test_seconds_are_in_order_and_have_all_samples() -> None:
    profile = intervals(*(0.1 * n for n in range(1, 26)), longest_s=0.1)
    found = group_samples(profile, GroupKind.SECOND)
    assert [round(begin / S, 3) for begin, _ in found.seconds] == [0, 1, 2]
    assert [round(end / S, 3) for _, end in found.seconds] == [1, 2, 2.5]
    assert found.weight[:, 0].tolist() == [(1 << 10) - 1, (1 << 20) - (1 << 10), (1 << 25) - (1 << 20)]
    assert found.share.sum() == pytest.approx(1)


def test_long_intervals_are_rows_themselves() -> None:
    """Two of 0.9 s have their middle in one second now and then, which would look like twice the work."""
    profile = intervals(*(0.9 * n for n in range(1, 12)))
    assert len(group_samples(profile, GroupKind.SECOND)) == 11
    assert (seconds_of_samples(profile).begin / S).tolist() == pytest.approx([0.9 * n for n in range(11)])


def test_seconds_of_sample_times_are_those_of_the_clock() -> None:
    builder = ProfileBuilder()
    for at_s in (0, 0.999, 1, 3.5):
        builder.add("main", weight=1, time_ns=START_NS + round(at_s * S))
    profile = builder.build(start_monotonic_ns=START_NS, duration_ns=round(3.5 * S), has_sample_times=True)
    found = group_samples(profile, GroupKind.SECOND)
    assert [(begin / S, end / S) for begin, end in found.seconds] == [(0, 1), (1, 2), (3, 3.5)]
    assert found.weight[:, 0].tolist() == [2, 1, 1]


def test_a_picture_of_a_steady_rate_is_flat_whatever_the_intervals() -> None:
    profile = intervals(*(0.9 * n for n in range(1, 11)))
    rows = find_intervals(profile)
    rates = rate_over_time(rows, np.full(10, 90.0), 0, 9 * S, 7)
    assert rates == pytest.approx(np.full(7, 900 / 7))
    gap = find_intervals(intervals(1, 3))  # nothing from 1 s to 2 s
    assert rate_over_time(gap, np.array([5.0, 7.0]), 0, 3 * S, 3).tolist() == pytest.approx([5, 0, 7])


LAST = 2**64 - 1


@pytest.mark.parametrize("start_ns", [0, 5, 2**63, LAST, -(2**63)])
@pytest.mark.parametrize("has_times", [False, True])
def test_times_that_cannot_be_have_a_place(start_ns: int, *, has_times: bool) -> None:
    """Damage or a stranger made them: nothing fails, and samples at the start are there."""
    builder = ProfileBuilder()
    times = [5, 2**63, LAST, start_ns % 2**64]
    for time_ns in times:
        builder.add("main", time_ns=time_ns)
    profile = builder.build(
        start_monotonic_ns=start_ns, duration_ns=1 << 62, interval_ns=1 << 60, has_sample_times=has_times
    )
    assert sample_times(profile).tolist()[3] == 0
    for found in (find_intervals(profile), seconds_of_samples(profile), even_intervals(profile, 100)):
        assert len(found.number) == len(times)
        assert set(found.number.tolist()) <= {*range(len(found.end))}
