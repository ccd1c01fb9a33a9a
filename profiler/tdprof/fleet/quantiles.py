"""Quantiles over hosts of histograms that add up exactly, with the intervals of Woodruff (1952).

The interval of a quantile is that of the share of operations at or below it, which is a ratio over hosts, read back
through the distribution: no density has to be guessed. What hosts have above a high quantile is skewed; but where few
of those that have most of it were seen the quantile lies low, more lies above it, and the interval is longer upwards.
"""

import numpy as np
from numpy.typing import NDArray

from tdprof.fleet.estimate import FEWEST_HOSTS, FEWEST_SAMPLES
from tdprof.model.arrays import F64, I64
from tdprof.profile.statistics import Z_95, student_95
from tdprof.values import dataclass

_ROUNDING = 1e-9  # of sums of weights, far below one operation of any that are counted


@dataclass(frozen=True, slots=True)
class Pooled:
    """Histograms of n rows over all hosts.

    Attributes:
        row: int64[m], ascending.
        value: int64[m], ascending within a row.
        weight: float64[m], positive.
    """

    row: I64
    value: I64
    weight: F64


@dataclass(frozen=True, slots=True)
class HostParts:
    """What each host has of n rows: a row of these for each one that has any.

    Attributes:
        row: int64[k], ascending; ``host``: int64[k].
        weight: float64[k], of all operations; ``records``: int64[k], their number.
        below: float64[k, quantiles], weight at or below the row's quantiles.
    """

    row: I64
    host: I64
    weight: F64
    records: I64
    below: F64


@dataclass(frozen=True, slots=True)
class QuantileIntervals:
    """What is known of the quantiles of n rows.

    Attributes:
        low, high: float64[n, quantiles], the 95 % interval; NaN where it is not known, infinite where it has no end.
        is_between: bool[n], whether it holds what differs between hosts; else, of too few, only chance.
        design_effect: float64[n, quantiles], of the share below; NaN where hosts are too few to tell.
    """

    low: F64
    high: F64
    is_between: NDArray[np.bool_]
    design_effect: F64


def find_quantiles(pooled: Pooled, share: F64) -> F64:
    """float64[n]: the smallest value with at least that share of its row's weight at or below it.

    Args:
        share: float64[n], of each row; NaN gives NaN, 1 the largest value, 0 the smallest. All rows have values.
    """
    start = np.searchsorted(pooled.row, np.arange(len(share)))
    until = np.concatenate([[0.0], np.cumsum(pooled.weight)])
    first, whole = until[start], until[np.append(start[1:], len(pooled.row))] - until[start]
    wanted = first + np.nan_to_num(np.clip(share, 0, 1)) * whole * (1 - _ROUNDING)
    at = np.searchsorted(until[1:], wanted)
    last = np.append(start[1:], len(pooled.row)) - 1
    found = pooled.value[np.clip(at, start, last)].astype(np.float64)
    return np.asarray(np.where(np.isnan(share), np.nan, found))


def estimate_intervals(pooled: Pooled, parts: HostParts, shares: tuple[float, ...], rows: int) -> QuantileIntervals:
    """The intervals of quantiles.

    Args:
        shares: which quantiles, such as 0.5 and 0.99; those that ``parts.below`` is of.
        rows: n.
    """
    hosts = np.bincount(parts.row, minlength=rows).astype(np.int64)
    records = np.bincount(parts.row, parts.records, rows)
    weight = np.bincount(parts.row, parts.weight, rows).astype(np.float64)
    squares = np.bincount(parts.row, parts.weight**2 / np.maximum(parts.records, 1), rows)
    is_between = hosts >= FEWEST_HOSTS
    low, high, effect = (np.full((rows, len(shares)), np.nan) for _ in range(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = weight**2 / squares
        student = np.where(is_between, student_95(_freedom(parts, rows)), Z_95)
        for column, share in enumerate(shares):
            below = parts.below[:, column]
            found = np.bincount(parts.row, below, rows) / weight
            chance = found * (1 - found) / effective
            variance = np.where(is_between, _jackknife(parts, below, weight, hosts, rows), chance)
            effect[:, column] = np.where(is_between & (chance > 0), variance / chance, np.nan)
            # All of a row may lie at its quantile: then nothing is known of how often it does elsewhere but by chance.
            error = np.sqrt(np.maximum(variance, np.where(found < 1, 0, 1 / effective**2)))
            ends = [share - student * error, share + student * error]
            is_known = (records >= FEWEST_SAMPLES) & np.isfinite(ends[0]) & np.isfinite(ends[1])
            low[:, column], high[:, column] = (find_quantiles(pooled, np.where(is_known, end, np.nan)) for end in ends)
            # Above the last value that was seen there may be more.
            high[is_known & (ends[1] > 1 - 1 / effective), column] = np.inf
    return QuantileIntervals(low, high, is_between, effect)


def _jackknife(parts: HostParts, below: F64, weight: F64, hosts: I64, rows: int) -> F64:
    """float64[n]: variance of each row's share below, from leaving out a host at a time."""
    whole = np.bincount(parts.row, below, rows)
    without = (whole[parts.row] - below) / (weight[parts.row] - parts.weight)
    mean = np.bincount(parts.row, without, rows) / hosts
    squares = np.bincount(parts.row, (mean[parts.row] - without) ** 2, rows)
    return np.asarray((hosts - 1) / hosts * squares)


def _freedom(parts: HostParts, rows: int) -> F64:
    """float64[n]: degrees of freedom, of as many hosts as would tell as much if they counted alike."""
    squares, fourth = (np.bincount(parts.row, parts.weight**power, rows) for power in (2, 4))
    return np.asarray(np.maximum(squares**2 / fourth - 1, 1.0))
