"""When samples were taken: the intervals of a capture, and which of them a range of time means."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, I64, U64
from tdprof.model.profile import Profile, TimeWindow
from tdprof.model.time_range import NS_PER_S, TimeRange
from tdprof.values import dataclass

_SHORTEST_BIN_NS = NS_PER_S // 100
_MOST_MISSING = 1_000_000


@dataclass(frozen=True, slots=True)
class Intervals:
    """The stretches of time that a profile's samples are added up over; none with samples is missing.

    Attributes:
        begin, end: int64[n], nanoseconds since the recording's start, ascending, not overlapping.
        number: int64[samples], the interval of each row of samples.
    """

    begin: I64
    end: I64
    number: I64

    @property
    def middle(self) -> I64:
        """int64[n]."""
        return (self.begin + self.end) // 2


def find_intervals(profile: Profile) -> Intervals:
    """The intervals of a profile whose samples have no times of their own.

    Of an interval the samples tell the end. It begins where the one before ends; where that is twice the time ago that
    intervals were to take, one between had no samples, and it is taken to have that length, unless the recording says
    that it took longer.
    """
    ends, number = np.unique(profile.samples.time_ns, return_inverse=True)
    end = _since_start(profile, ends)
    before = np.concatenate([np.zeros(min(len(end), 1), np.int64), end[:-1]])
    begin = np.where(end - before < 2 * profile.interval_ns, before, end - profile.interval_ns)
    for row, time_ns in enumerate(ends.tolist() if profile.long_intervals else ()):
        if time_ns in profile.long_intervals:
            long_ns = time_ns - profile.long_intervals[time_ns]
            begin[row] = max(int(before[row]), int(end[row]) - max(long_ns, 0))
    return Intervals(np.minimum(begin, end), end, number.reshape(-1).astype(np.int64))


def sample_times(profile: Profile) -> I64:
    """int64[samples]: nanoseconds from the recording's start to each sample, of a profile with sample times.

    It starts once the last CPU's events count; what the others had sampled by then is of its first moment.
    """
    return np.maximum(_since_start(profile, profile.samples.time_ns), 0)


def _since_start(profile: Profile, time_ns: U64) -> I64:
    # Modulo 2^64, so that times that cannot be, as damage makes them, have a place like others.
    return (time_ns - np.uint64(profile.start_monotonic_ns % (1 << 64))).view(np.int64)


def seconds_of_samples(profile: Profile) -> Intervals:
    """The seconds of a recording, without those that have no samples.

    Of a capture that adds samples up over intervals each is in the second of its middle, and a row begins and ends
    where its intervals do; where they are so long that a second has one or two of them by chance, each is a row.
    """
    if profile.has_sample_times:
        second, number = np.unique(sample_times(profile) // NS_PER_S, return_inverse=True)
        end = np.minimum((second + 1) * NS_PER_S, max(profile.duration_ns, 1))
        return Intervals(second * NS_PER_S, np.maximum(end, second * NS_PER_S), number.reshape(-1).astype(np.int64))
    found = find_intervals(profile)
    if _grain(profile, found) > NS_PER_S // 2:
        return found
    _, first, second = np.unique(found.middle // NS_PER_S, return_index=True, return_inverse=True)
    last = np.append(first[1:], len(found.end))[: len(first)] - 1
    return Intervals(found.begin[first], found.end[last], second.reshape(-1)[found.number])


def equal_bins(profile: Profile, most: int) -> Intervals:
    """At most so many stretches of equal length, of a profile with sample times; also those without samples."""
    covered = profile.window.covered if profile.window else [(0, max(profile.duration_ns, 1))]
    begin, end = covered[0][0], covered[-1][1]
    bins = int(min(most, max(1, (end - begin) // _SHORTEST_BIN_NS)))
    edges = np.linspace(begin, end, bins + 1).astype(np.int64)
    number = np.clip(np.searchsorted(edges, sample_times(profile), side="right") - 1, 0, bins - 1)
    return Intervals(edges[:-1], edges[1:], number.astype(np.int64))


def time_bins(profile: Profile, most: int) -> Intervals:
    """At most so many stretches of time: of whole intervals, or of equal length where samples have their own times."""
    return equal_bins(profile, most) if profile.has_sample_times else joined(find_intervals(profile), most)


def joined(found: Intervals, most: int) -> Intervals:
    """At most so many stretches, each of as many neighbours."""
    together = -(-len(found.end) // most) or 1
    first = np.arange(0, len(found.end), together)
    last = np.minimum(first + together, len(found.end)) - 1
    return Intervals(found.begin[first], found.end[last], found.number // together)


def even_intervals(profile: Profile, most: int) -> Intervals:
    """At most so many stretches of about equal length without a gap: whole intervals, and as many as fit where there
    are none, since they had no samples; of equal length where samples have their own times."""
    if profile.has_sample_times:
        return equal_bins(profile, most)
    found = find_intervals(profile)
    if not len(found.end):
        return found
    before = np.concatenate([[0], found.end[:-1]])
    # What damage makes of a capture's times is not to become a table as long.
    missing = (found.begin - before) // max(_grain(profile, found), 1)
    pieces = np.clip(missing, 0, _MOST_MISSING // len(before))
    at = np.arange(len(before)) + np.cumsum(pieces)  # of those with samples
    known = np.stack([at - pieces, at], axis=1).reshape(-1), np.stack([before, found.begin], axis=1).reshape(-1)
    begin = np.interp(np.arange(at[-1] + 1), *known).clip(-(2.0**62), 2.0**62).astype(np.int64)
    begin[at] = found.begin
    end = np.append(begin[1:], found.end[-1])
    return joined(Intervals(begin, end, at[found.number]), most)


def rate_over_time(rows: Intervals, weight: NDArray[np.number], begin_ns: int, end_ns: int, bins: int) -> F64:
    """float64[bins]: what a stretch of time has in each of equal parts, for a picture of it.

    Args:
        rows: stretches of time, within which what they have counts as even.
        weight: [n], of each of the rows.
        begin_ns, end_ns: the stretch.
    """
    if not len(rows.end):
        return np.zeros(bins)
    edges = np.stack([rows.begin, np.maximum(rows.end, rows.begin + 1)], axis=1).reshape(-1).astype(np.float64)
    until = np.cumsum(np.stack([np.zeros(len(weight)), weight], axis=1).reshape(-1))
    shares: F64 = np.diff(np.interp(np.linspace(begin_ns, end_ns, bins + 1), edges, until))
    return shares


def choose_times(profile: Profile, ranges: Sequence[TimeRange]) -> tuple[NDArray[np.bool_], TimeWindow]:
    """bool[samples]: those of any of the ranges, and what of the recording's time they are of.

    An interval is taken whole if its middle is in a range, else not at all: nothing is divided that was counted whole.

    Raises:
        TdprofError: a range has nothing of the recording.
    """
    asked = _merged([each.within(profile.start_realtime_ns, profile.duration_ns) for each in ranges])
    if profile.has_sample_times:
        chosen = _is_within(sample_times(profile), asked, profile.duration_ns)
        return chosen, TimeWindow(asked, asked, None)
    intervals = find_intervals(profile)
    is_taken = _is_within(intervals.middle, asked, profile.duration_ns)
    covered = [*zip(intervals.begin[is_taken].tolist(), intervals.end[is_taken].tolist(), strict=True)]
    return is_taken[intervals.number], TimeWindow(asked, _merged(covered), _grain(profile, intervals))


def _grain(profile: Profile, intervals: Intervals) -> int:
    """How long intervals are, in the middle, in nanoseconds."""
    return int(np.median(intervals.end - intervals.begin)) if len(intervals.end) else profile.interval_ns


def _is_within(at: I64, ranges: Sequence[tuple[int, int]], last: int) -> NDArray[np.bool_]:
    """bool[n]: at or after a range's beginning and before its end; the last moment of all is in the range it ends."""
    chosen = np.zeros(len(at), bool)
    for begin, end in ranges:
        chosen |= (at >= begin) & ((at < end) | (end >= last))
    return chosen


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, those that overlap or touch made one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged
