"""Time off a CPU in the intervals in which it passed.

A wait is sampled when it is over, so that all that it stands for falls into the interval of its end. What a thread
cannot have waited within that interval, since it is longer, belongs to the wait that it was in when the interval began.
"""

from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, I64, group_rows
from tdprof.model.events import OFF_CPU
from tdprof.model.profile import Profile
from tdprof.profile.intervals import Intervals, even_intervals, find_intervals, joined

_MOST_INTERVALS = 1 << 16
_ROUNDING = 1e-6  # of sums of periods
_LEAST_MOST_PIECES, _MOST_PIECES_A_ROW = 1 << 18, 8


class _Moved(NamedTuple):
    """Samples that belong to a time before their interval.

    Attributes:
        row: int64[n], row of the profile's samples.
        samples: int64[n], how many of it.
        begin, end: int64[n], nanoseconds since the recording's start, when they passed.
    """

    row: I64
    samples: I64
    begin: I64
    end: I64


def spread_waits(profile: Profile) -> Profile:
    """The profile with the time of long waits in all of the intervals that they lasted; sums stay the same.

    To the wait that a thread was in when an interval began goes what all of its waits that end in the interval are
    longer than that, and than what later ones leave of it: to the row that has most. It is right to an interval, and to
    a period at each end.
    """
    names = [event.name for event in profile.events]
    if profile.has_sample_times or OFF_CPU not in names:
        return profile
    event = names.index(OFF_CPU)
    if not (period_ns := profile.events[event].period):
        return profile
    moved = _longer_than_intervals(profile, profile.samples.event == event, period_ns)
    if not len(moved.row):
        return profile
    return _with_moved(profile, moved, even_intervals(profile, _MOST_INTERVALS))


def _longer_than_intervals(profile: Profile, is_off_cpu: NDArray[np.bool_], period_ns: int) -> _Moved:
    samples, found = profile.samples, find_intervals(profile)
    rows = np.flatnonzero(is_off_cpu)
    number, count = found.number[rows], samples.count[rows].astype(np.float64)
    # Of each thread's in each interval the row with most is the last.
    order = np.lexsort((count, -number, samples.tid[rows], samples.pid[rows]))
    pid, tid = samples.pid[rows][order], samples.tid[rows][order]
    groups, start = group_rows(pid, tid, -number[order])
    if not len(start):
        return _Moved(*(np.empty(0, np.int64) for _ in _Moved._fields))
    most = order[groups[np.append(start[1:], len(groups)) - 1]]
    whole: F64 = np.add.reduceat(count[order][groups], start)
    begin, end = found.begin[number[most]], found.end[number[most]]
    fits = (end - begin) / period_ns
    later = np.append(0, begin[:-1])
    is_last = np.append(True, (np.diff(samples.pid[rows][most]) != 0) | (np.diff(samples.tid[rows][most]) != 0))
    carried, before = _carried_back(whole, fits, np.maximum(later - end, 0) / period_ns, is_last)
    # What later waits take of this interval and beyond is nearest to them.
    beyond = np.maximum(carried - fits, 0)
    # No wait is longer than the recording, whatever a damaged capture says.
    room = begin / period_ns - beyond
    longer = np.floor(np.minimum(np.minimum(before - beyond, count[most]), room) + _ROUNDING)
    is_longer = longer >= 1
    moved, until = longer[is_longer].astype(np.int64), (begin - beyond * period_ns)[is_longer].astype(np.int64)
    return _Moved(rows[most[is_longer]], moved, until - moved * period_ns, until)


def _carried_back(whole: F64, fits: F64, gap: F64, is_last: NDArray[np.bool_]) -> tuple[F64, F64]:
    """What of a thread's waits lies before the intervals that they end in.

    Args:
        whole, fits: of each thread's intervals, the last first: periods that end in it, and for how many it has room.
        gap: for how many there is room between it and the next one that the thread has.
        is_last: where a thread begins, with its last interval.

    Returns:
        What later ones leave for this interval and those before it, and what there is before it in all.
    """
    thread = np.flatnonzero(is_last)
    # A thread has nothing of another's: no more is left of one than it has.
    of_thread = np.add.reduceat(whole, thread)
    room = gap.copy()
    room[thread] = np.append(0, of_thread[:-1])
    steps = np.stack((-room, whole - fits), axis=1).reshape(-1)
    sums = np.cumsum(steps)
    left = sums - np.minimum(np.minimum.accumulate(sums), 0)
    return left[0::2], left[1::2]


def _with_moved(profile: Profile, moved: _Moved, intervals: Intervals) -> Profile:
    """The profile with these samples in the intervals, which leave no gap, that they belong to."""
    first, pieces = _covered(moved, intervals)
    most = _LEAST_MOST_PIECES + _MOST_PIECES_A_ROW * len(profile.samples.stack)
    while (total := int(pieces.sum())) > most and len(intervals.end) > 1:
        intervals = joined(intervals, -(-len(intervals.end) // 4))
        first, pieces = _covered(moved, intervals)
    of = np.repeat(np.arange(len(pieces)), pieces)
    at = first[of] + np.arange(total) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin, end, count = moved.begin[of], moved.end[of], moved.samples[of]

    def passed(until: I64) -> I64:
        return np.rint((np.clip(until, begin, end) - begin) / (end - begin) * count).astype(np.int64)

    part = passed(intervals.end[at]) - passed(intervals.begin[at])
    of, at, part = of[part > 0], at[part > 0], part[part > 0]
    samples, source = profile.samples, moved.row[of]
    of_one = samples.weight[source] // np.maximum(samples.count[source], 1)
    start_ns = np.uint64(profile.start_monotonic_ns % (1 << 64))
    changed = {
        "time_ns": intervals.end[at].astype(np.uint64) + start_ns,
        "count": part.astype(np.uint64),
        "weight": part.astype(np.uint64) * of_one,
    }
    left = {name: getattr(samples, name).copy() for name in ("count", "weight")}
    for name in left:
        np.subtract.at(left[name], source, changed[name])
    stays = left["count"] > 0
    columns = {
        field.name: np.concatenate(
            [
                left.get(field.name, column := getattr(samples, field.name))[stays],
                changed.get(field.name, column[source]),
            ]
        )
        for field in fields(samples)
    }
    return replace(profile, samples=replace(samples, **columns))


def _covered(moved: _Moved, intervals: Intervals) -> tuple[I64, I64]:
    """The first interval that each reaches into, and how many."""
    first = np.searchsorted(intervals.end, moved.begin, side="right")
    last = np.minimum(np.searchsorted(intervals.end, moved.end, side="left"), len(intervals.end) - 1)
    return first.astype(np.int64), np.maximum(last - first + 1, 0).astype(np.int64)
