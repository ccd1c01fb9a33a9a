"""The kernel's clocks beside CLOCK_MONOTONIC, which all times of a recording are of."""

import time

# Two clocks that are read further apart are read again: another thread or process had the CPU in between.
_BETWEEN_CLOCKS_NS = 1_000_000
# /proc counts hundredths of a second, and the clock of files stands still between ticks.
_CLOCKS_APART_NS = 100_000_000


def ahead_ns(clock: int) -> int:
    """By how much a clock (``time.CLOCK_…``) is ahead of CLOCK_MONOTONIC just now."""
    while True:
        began_ns, other_ns, ended_ns = time.monotonic_ns(), time.clock_gettime_ns(clock), time.monotonic_ns()
        if ended_ns - began_ns < _BETWEEN_CLOCKS_NS:
            return other_ns - ended_ns


def file_time_to_monotonic_ns(file_time_ns: int) -> int:
    """What CLOCK_MONOTONIC was at a file's time; now, if that has not come yet."""
    ahead = ahead_ns(time.CLOCK_REALTIME)
    return min(file_time_ns - ahead, time.monotonic_ns())


def is_older(file_time_ns: int, began_ns: int) -> bool:
    """Whether a file was written last before a process had begun (CLOCK_MONOTONIC): by another of its number."""
    return file_time_to_monotonic_ns(file_time_ns) + _CLOCKS_APART_NS < began_ns
