"""What the times of records tell of their threads."""

from __future__ import annotations

import ctypes
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
NO_THREAD = 1 << 32
"""Where nothing tells: above every thread's number."""
STAGE_BITS = 33
"""Of a thread's number, below its stage."""


class _Times(ctypes.Structure):
    """`struct spe_times`."""

    _fields_ = (
        *((name, c_uint64) for name in ("first_ticks", "mask", "shift")),
        ("lines", c_uint64),
        *((name, c_void_p) for name in ("line_ticks", "mult", "zero")),
        ("before", c_uint64),
        ("switches", c_uint64),
        *((name, c_void_p) for name in ("switch_ns", "switched_to")),
        ("staged", c_uint64),
        *((name, c_void_p) for name in ("staged_thread", "first_turn", "turn_ns")),
        *((name, c_uint64) for name in ("line", "at", "stage")),
        *((name, c_uint64) for name in ("known_thread", "known_ticks", "known_span", "known_stage")),
    )


@dataclass(frozen=True, slots=True, eq=False)
class TimerLines:
    """The timer's ticks as nanoseconds, in straight lines.

    Line i holds for ticks from ``ticks[i - 1]`` up to ``ticks[i]``: ns = zero + ticks * mult / 2^shift, modulo 2^64.

    Attributes:
        ticks: uint64[n], ascending.
        mult, zero: uint64[n + 1].
        first_ticks, mask: of a counter with fewer bits: as far from ``first_ticks`` as those under the mask say.
    """

    shift: int
    ticks: U64
    mult: U64
    zero: U64
    first_ticks: int = 0
    mask: int = 2**64 - 1


@dataclass(frozen=True, slots=True, eq=False)
class StageTurns:
    """When stages of threads begin after others.

    Attributes:
        thread: uint64[n], ascending.
        first: uint64[n + 1], the turns of thread i are rows ``first[i]`` to ``first[i + 1]``.
        time_ns: uint64, ascending for each thread.
    """

    thread: U64
    first: U64
    time_ns: U64


class Times:
    """Who ran when on the CPU that wrote some spans; for one thread at a time.

    A record without a time is of `Rules.thread`, in its last stage.

    Args:
        timer: converts the records' timestamps.
        before: who ran before the first switch; here and in ``switched_to`` NO_THREAD where that is not known.
        switch_ns: uint64[n], ascending: when somebody was switched to.
        switched_to: uint64[n], who ran from each on.
        turns: of stages.
    """

    def __init__(self, timer: TimerLines, before: int, switch_ns: U64, switched_to: U64, turns: StageTurns) -> None:
        self._timer, self._turns = timer, turns
        self._switch_ns, self._switched_to = (np.ascontiguousarray(each) for each in (switch_ns, switched_to))
        self._native = _Times(
            timer.first_ticks,
            timer.mask,
            timer.shift,
            len(timer.ticks),
            *(each.ctypes.data for each in (timer.ticks, timer.mult, timer.zero)),
            before,
            len(switch_ns),
            *(each.ctypes.data for each in (self._switch_ns, self._switched_to)),
            len(turns.thread),
            *(each.ctypes.data for each in (turns.thread, turns.first, turns.time_ns)),
        )

    @property
    def address(self) -> int:
        """For `Rules.times`, as long as this lives."""
        return ctypes.addressof(self._native)
