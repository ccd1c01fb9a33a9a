"""Shares over hosts, with what differs between hosts in their intervals.

The host is the sampling unit (Cochran, Sampling Techniques, 3rd ed., chapter 6, on ratio estimators; Wolter,
Introduction to Variance Estimation, chapter 4, on the jackknife): samples of one host share code, input, neighbours and
firmware, so that a million of them say little more of the fleet than a thousand. A host that is left out counts by how
much the ratio follows it.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import Estimates, Stratum
from tdprof.profile.statistics import Z_95, student_95, wilson_95
from tdprof.values import dataclass

# Below, the scatter between hosts is known too badly to say anything of it.
FEWEST_HOSTS = 5
# With fewer a share's error is too skewed for an interval of so simple a form.
FEWEST_SAMPLES = 30
_ROUNDING = 1e-12  # of sums of parts of a whole
_ROWS_AT_ONCE = 1 << 18
# By so much of the squared skewness intervals are longer: (z^4 + 2 z^2 - 3) / 18, z of the normal distribution's 95 %.
_OF_SKEW = (Z_95**4 + 2 * Z_95**2 - 3) / 18


@dataclass(frozen=True, slots=True)
class HostSums:
    """What n functions have on h hosts, where they have anything: rows of function, host and value.

    Attributes:
        function, host: int64[rows], the former ascending.
        value: float64[rows], in the unit of the hosts' totals.
        samples: int64[rows].
        n: how many functions.
    """

    function: I64
    host: I64
    value: F64
    samples: I64
    n: int


def estimate_shares(sums: HostSums, stratum: Stratum) -> Estimates:
    """The functions' shares of an event on all hosts of a stratum, each host counting by its events a second.

    Args:
        sums: with values in events a second, as ``stratum.rate``.
    """
    total, hosts = stratum.rate, len(stratum.hosts)
    share = _sum(sums, sums.value) / total.sum() if total.sum() else np.full(sums.n, np.nan)
    seen = np.bincount(sums.function[sums.samples > 0], minlength=sums.n).astype(np.int64)
    samples = _sum(sums, sums.samples).astype(np.int64)
    effective = _effective_number(stratum)
    chance = share * (1 - share) / effective if effective else np.full(sums.n, np.nan)
    if hosts < FEWEST_HOSTS:
        centre, half = wilson_95(share, effective)
        ends = centre - half, centre + half
        return Estimates(share, *ends, seen, samples, np.full(sums.n, np.nan), is_between=False)
    variance, skew = jackknife(sums, total)
    half = half_width(variance, skew, freedom_of(total))
    low, high = share_interval(share, np.where(samples >= FEWEST_SAMPLES, half, np.nan))
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.where(chance > 0, variance / chance, np.nan)
    return Estimates(share, low, high, seen, samples, effect, is_between=True)


def jackknife(sums: HostSums, total: F64) -> tuple[F64, F64]:
    """float64[n] each, of the ratio of all hosts' values to their totals: its variance and its squared skewness.

    Args:
        total: float64[h], positive; two hosts or more.
    """
    ratio = _sum(sums, sums.value) / total.sum()
    part = total / total.sum()
    by_square, by_cube = part**2, part**3
    by_gain = by_square * _gain(part)
    found = np.empty((3, sums.n))
    # Most functions are on few hosts, and of the others each deviates from the ratio by all of it.
    for functions, rows in _pieces(sums):
        function, host, own = sums.function[rows] - functions.start, sums.host[rows], ratio[functions]
        expected = own[function]
        with np.errstate(divide="ignore", invalid="ignore"):  # a host may have had nothing at all
            deviation = np.where(sums.value[rows] > 0, sums.value[rows] / total[host], 0) - expected
        squared, all_squared = deviation * deviation, expected * expected
        squares, cubes = squared - all_squared, squared * deviation + all_squared * expected
        sums_of = ((by_gain, squares, own**2), (by_square, squares, own**2), (by_cube, cubes, -(own**3)))
        for row, (factor, more, of_others) in enumerate(sums_of):
            found[row, functions] = of_others * factor.sum() + np.bincount(function, factor[host] * more, len(own))
    variance, squares, cubes = found
    return np.maximum(variance, 0), _squared_skew(cubes, squares)


def half_width(variance: F64, skew: F64, freedom: float) -> F64:
    """Half of the 95 % intervals, longer where hosts differ in a skewed way.

    Where few hosts have much more than the others, such fleets without them tell of too little scatter, and Student's t
    alone holds the truth too seldom: the term of second order is Hall's, The Bootstrap and Edgeworth Expansion, 2.6.

    Args:
        variance, skew: float64[n], as of `jackknife`.
    """
    return np.asarray(student_95(freedom) * np.sqrt(variance) * (1 + _OF_SKEW * skew))


def share_interval(share: F64, half: F64) -> tuple[F64, F64]:
    """Both ends of shares' intervals, which are symmetrical on the scale of the logarithms of odds.

    Of small shares they are longer upwards: where few hosts have many times what others have, fleets that lack them
    have a low share and differ little. No end is below 0 or above 1.

    Args:
        half: float64[n], of the interval of the share itself, as of `half_width`.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        odds, factor = share / (1 - share), np.exp(half / (share * (1 - share)))
        low, high = odds / (odds + factor), 1 / (1 + 1 / (odds * factor))
    is_sure = half <= _ROUNDING
    return np.where(is_sure, share, low), np.where(is_sure, share, high)


def spread_without(without: F64, whole: F64, total: F64) -> tuple[F64, F64]:
    """float64[n] each, of any function of sums over hosts: its variance and its squared skewness.

    Args:
        without: float64[n, h], evaluated without each host.
        whole: float64[n, 1], evaluated with all.
        total: float64[h], by which hosts count.
    """
    part = total / total.sum()
    mine = (without - whole) * (1 - part)
    return mine**2 @ _gain(part), _squared_skew(np.sum(mine**3, axis=1), np.sum(mine**2, axis=1))


def freedom_of(total: F64) -> float:
    """Degrees of freedom of such a variance, if hosts differ alike: twice its square by its own variance (likewise)."""
    if np.count_nonzero(total) < 2:
        return 1.0
    part = total / total.sum()
    square = np.sum(part**2)
    factor, half = part**2 * _gain(part), part - square / 2
    alone = np.sum(factor**2 * ((1 - 2 * half) ** 2 - (2 * half) ** 2))
    pairs = 2 * np.sum(factor) * np.sum(factor * half**2) + 2 * np.sum(factor * half) ** 2
    return float(np.nan_to_num(np.maximum(square**2 / (pairs + alone), 1.0), nan=1.0))


def _gain(part: F64) -> F64:
    """float64[h]: by which squared deviations from a ratio are too small, since it follows the hosts that it is of.

    That of leverage in Bell and McCaffrey, Survey Methodology 28, 2002: of hosts that count alike, h / (h - 1). NaN
    where one host has all there is, of which nothing is known then.

    Args:
        part: float64[h], of all that counts, with a sum of 1.
    """
    kept = 1 - 2 * part + np.sum(part**2)
    return np.where(kept.min() > _ROUNDING, 1 / np.maximum(kept, _ROUNDING), np.nan)


def _squared_skew(cubes: F64, squares: F64) -> F64:
    """float64[n]: from hosts' parts of the deviation; at most 1, where one host has all of it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(np.nan_to_num(cubes**2 / squares**3), 0, 1)


def _pieces(sums: HostSums) -> Iterator[tuple[slice, slice]]:
    """Functions and their rows, some at a time: what is worked out on the way would take more memory than the rows."""
    edges = sorted({0, *sums.function[::_ROWS_AT_ONCE].tolist(), sums.n})
    for first, end in itertools.pairwise(edges):
        yield slice(first, end), slice(*np.searchsorted(sums.function, [first, end]).tolist())


def _effective_number(stratum: Stratum) -> float:
    """As many samples, drawn from all hosts as if they were one, would tell as much where hosts did not differ."""
    rate = stratum.rate
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(stratum.effective > 0, rate**2 / stratum.effective, 0).sum()
    return float(rate.sum() ** 2 / variance) if variance else 0.0


def _sum(sums: HostSums, values: F64 | I64) -> F64:
    return np.bincount(sums.function, values, minlength=sums.n).astype(np.float64)
