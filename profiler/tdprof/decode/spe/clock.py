"""The generic timer's counts as times of perf's clock: by what perf says of both, or by pairs of readings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from arm_spe.times import TimerLines
from tdprof.decode.perf.auxtrace import TimeConversion
from tdprof.model.arrays import U64
from tdprof.values import dataclass

_SHIFT = 24  # of slopes made here: 2^-24 of a nanosecond a tick is far below any clock's drift


@dataclass(frozen=True, slots=True, eq=False)
class ClockPairs:
    """Readings of both clocks, straight lines between them: the system's clock is steered to others' all the time.

    Line i holds for ticks from ``ticks[i - 1]`` up to ``ticks[i]``; the first and the last, from before the first
    reading and after the last, have the slope of all: that of two which lie close together is their error's.

    Attributes:
        ticks: uint64[n], of the readings, ascending.
        mult, zero: uint64[n + 1], of the lines: ns = zero + ticks * mult / 2^24, modulo 2^64.
    """

    ticks: U64
    mult: U64
    zero: U64


Clock = TimeConversion | ClockPairs


def clock_of(readings: Sequence[Sequence[int]]) -> ClockPairs | None:
    """The lines through (counter, ns) readings; None if they do not give one. What runs backwards is left out."""
    kept: list[tuple[int, int]] = []
    for reading in readings:
        if len(reading) != 2 or not all(0 <= value < 2**64 for value in reading):
            return None
        ticks, ns = reading
        if not kept or (ticks > kept[-1][0] and ns > kept[-1][1]):
            kept.append((ticks, ns))
    if len(kept) < 2:
        return None
    outside = _slope(kept[0], kept[-1])
    mult = [outside, *(_slope(*pair) for pair in itertools.pairwise(kept)), outside]
    starts = [kept[0], *kept]
    zero = [(ns - (ticks * slope >> _SHIFT)) % 2**64 for (ticks, ns), slope in zip(starts, mult, strict=True)]
    return ClockPairs(
        np.array([ticks for ticks, _ in kept], np.uint64),
        np.array([slope % 2**64 for slope in mult], np.uint64),
        np.array(zero, np.uint64),
    )


def _slope(first: tuple[int, int], last: tuple[int, int]) -> int:
    return round((last[1] - first[1] << _SHIFT) / (last[0] - first[0]))


def timer_lines(clock: Clock) -> TimerLines:
    """The same for the compiled code."""
    if isinstance(clock, ClockPairs):
        return TimerLines(_SHIFT, clock.ticks, clock.mult, clock.zero)
    mult, zero = np.array([[clock.time_mult], [clock.time_zero]], np.uint64)
    lines = TimerLines(clock.time_shift, np.zeros(0, np.uint64), mult, zero)
    return replace(lines, first_ticks=clock.time_cycles, mask=clock.time_mask) if clock.is_short else lines


def time_ns(ticks: U64, clock: Clock) -> U64:
    """Timer ticks as nanoseconds of perf's clock, modulo 2^64 (linux/perf_event.h, `struct perf_event_mmap_page`)."""
    if isinstance(clock, ClockPairs):
        line = np.searchsorted(clock.ticks, ticks, "right")
        return _on_line(ticks, np.uint64(_SHIFT), clock.mult[line], clock.zero[line])
    if clock.is_short:
        start = np.uint64(clock.time_cycles)
        ticks = start + (ticks - start & np.uint64(clock.time_mask))
    return _on_line(ticks, np.uint64(clock.time_shift), np.uint64(clock.time_mult), np.uint64(clock.time_zero))


def _on_line(ticks: U64, shift: np.uint64, mult: U64 | np.uint64, zero: U64 | np.uint64) -> U64:
    low = ticks & ~(np.uint64(2**64 - 1) << shift)
    converted: U64 = zero + (ticks >> shift) * mult + (low * mult >> shift)
    return converted
