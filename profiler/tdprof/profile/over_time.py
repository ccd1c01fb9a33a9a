"""The hottest functions of a profile over its time."""

import numpy as np

from tdprof.model.arrays import F64, I32, U64
from tdprof.model.profile import Profile
from tdprof.profile.frames import frame_stacks
from tdprof.profile.intervals import Intervals, rate_over_time
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class FunctionsOverTime:
    """Functions with most weight at the leaf, most first.

    Attributes:
        function: int32[n], function id; -1 for samples without a call stack.
        share: float64[n], of all of the event's weight, as fractions.
        weight: uint64[n, rows], in each stretch of time.
    """

    function: I32
    share: F64
    weight: U64


def functions_over_time(profile: Profile, rows: Intervals, event: int, most: int) -> FunctionsOverTime:
    """What the ``most`` hottest functions have of an event in each of the rows."""
    stacks, samples = frame_stacks(profile), profile.samples
    chosen = samples.event == event
    leaf = stacks.function[stacks.start[:-1]][samples.stack[chosen]].astype(np.int64)
    weight = samples.weight[chosen]
    total = np.bincount(leaf + 1, weight, len(profile.functions.name) + 1)
    hottest = np.argsort(-total, kind="stable")[:most]
    hottest = hottest[total[hottest] > 0]
    row_of = np.full(len(total), -1)
    row_of[hottest] = np.arange(len(hottest))
    function = row_of[leaf + 1]
    is_shown = function >= 0
    sums = np.zeros((len(hottest), len(rows.end)), np.uint64)
    np.add.at(sums, (function[is_shown], rows.number[chosen][is_shown]), weight[is_shown])
    whole = float(total.sum())
    return FunctionsOverTime((hottest - 1).astype(np.int32), total[hottest] / (whole or np.nan), sums)


def rates(found: FunctionsOverTime, rows: Intervals, begin_ns: int, end_ns: int, bins: int) -> F64:
    """float64[n, bins]: what each function has in equal parts of a stretch of time, for a picture of it."""
    return np.array([rate_over_time(rows, each, begin_ns, end_ns, bins) for each in found.weight]).reshape(-1, bins)
