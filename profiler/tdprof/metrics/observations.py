"""A profile's samples as sums for each piece of code: what estimates and their errors are made of."""

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, I64
from tdprof.model.profile import Profile
from tdprof.profile.statistics import MAX_INTERVALS
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Entries:
    """Samples of an event within an interval, of one stack; sorted by event.

    Attributes:
        stack: int64[n], stack id.
        interval: int64[n], 0 to ``intervals - 1`` in order of time.
        samples, weight: float64[n], sums.
        squares: float64[n], sum of the squared weights of the single samples.
        event_start: int64[events + 1]; the entries of event i are ``event_start[i]:event_start[i + 1]``.
        intervals: how many there are.
    """

    stack: I64
    interval: I64
    samples: F64
    weight: F64
    squares: F64
    event_start: I64
    intervals: int

    def of_event(self, event: int) -> slice:
        """Where an event's entries stand."""
        return slice(int(self.event_start[event]), int(self.event_start[event + 1]))


def sample_entries(profile: Profile) -> Entries:
    """Add up the samples over processes and threads."""
    samples = profile.samples
    interval, intervals = _intervals(samples.time_ns)
    stacks = len(profile.stacks.start) - 1
    key = (samples.event.astype(np.int64) * intervals + interval) * stacks + samples.stack
    distinct, row = np.unique(key, return_inverse=True)
    count, weight = samples.count.astype(np.float64), samples.weight.astype(np.float64)
    squares = _squares(samples.event.astype(np.int64) * intervals + interval, count, weight)
    n = len(distinct)
    event = distinct // max(1, stacks * intervals)
    return Entries(
        stack=distinct % max(1, stacks),
        interval=distinct // max(1, stacks) % intervals,
        samples=sum_by_row(row, count, n),
        weight=sum_by_row(row, weight, n),
        squares=sum_by_row(row, squares, n),
        event_start=np.searchsorted(event, np.arange(len(profile.events) + 1)).astype(np.int64),
        intervals=intervals,
    )


@dataclass(frozen=True, slots=True)
class EventSums:
    """One event's samples of each of n pieces of code.

    Attributes:
        weight: float64[n, intervals].
        samples, squares: float64[n], as in `Entries`.
    """

    weight: F64
    samples: F64
    squares: F64


class CodeSamples:
    """A profile's samples by piece of code, an event at a time.

    Stacks are deep, so that all events at once would be many times the profile's size.
    """

    def __init__(self, entries: Entries, row: I64, stack: I64, n: int) -> None:
        """An entry counts for each row that its stack belongs to.

        Args:
            row, stack: int64[pairs], sorted by stack, as in `rows.CodeRows`.
            n: number of rows.
        """
        self.n = n
        self.intervals = entries.intervals
        self._entries = entries
        self._row = row
        self._start = np.searchsorted(stack, np.arange(int(stack.max(initial=-1)) + 2))

    def sums(self, event: int) -> EventSums:
        """One event's samples."""
        entries, chosen = self._entries, self._entries.of_event(event)
        stack = entries.stack[chosen]
        first = self._start[stack]
        rows_of = self._start[stack + 1] - first
        ends = np.cumsum(rows_of)
        source = np.repeat(np.arange(chosen.start, chosen.stop), rows_of)
        row = self._row[np.arange(len(source)) + np.repeat(first - (ends - rows_of), rows_of)]
        place = row * self.intervals + entries.interval[source]
        weight = sum_by_row(place, entries.weight[source], self.n * self.intervals)
        return EventSums(
            weight.reshape(self.n, self.intervals),
            sum_by_row(row, entries.samples[source], self.n),
            sum_by_row(row, entries.squares[source], self.n),
        )


def _squares(group: I64, count: F64, weight: F64) -> F64:
    """Sum of squared weights of each row's samples, of which only the sum of weights is kept.

    Periods are fixed but for a few corrections, so that most rows' samples weigh the same. In an interval with a
    correction a row has samples from before and behind it. Their variance is at most the product of the mean's
    distances to the largest and to the least weight (Bhatia and Davis 2000), and just that where there are two weights.
    The means of the interval's rows stand for single samples' extremes: some rows have one sample, or one side's.

    Args:
        group: int64[rows], event and interval of each.
    """
    mean = np.divide(weight, count, out=np.zeros_like(weight), where=count > 0)
    least, most = np.full(group.max(initial=-1) + 1, np.inf), np.zeros(group.max(initial=-1) + 1)
    np.minimum.at(least, group[count > 0], mean[count > 0])
    np.maximum.at(most, group, mean)
    variance = np.multiply(most[group] - mean, mean - least[group], out=np.zeros_like(mean), where=count > 1)
    return np.asarray(weight * mean + np.maximum(count - 1, 0) * variance)


def sum_by_row(row: NDArray[np.integer], values: F64, n: int) -> F64:
    """float64[n]: the values of each row added up."""
    return np.asarray(np.bincount(row, values, n), np.float64)


def _intervals(time_ns: NDArray[np.uint64]) -> tuple[I64, int]:
    """Number of each sample's interval, and how many there are: those recorded, or wider ones of equal length."""
    times, number = np.unique(time_ns, return_inverse=True)
    if len(times) <= MAX_INTERVALS:
        return number.astype(np.int64), max(1, len(times))
    since = (times - times[0]).astype(np.float64)
    wide = np.minimum((since / since[-1] * MAX_INTERVALS).astype(np.int64), MAX_INTERVALS - 1)
    return wide[number], MAX_INTERVALS
