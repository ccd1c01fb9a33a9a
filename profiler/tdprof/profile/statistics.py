"""The statistics that more than one report stands on: intervals of shares, variances, quantiles, families of tests."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tdprof.model.arrays import F64

Z_95 = 1.959964  # two-sided 95 % of the normal distribution

# Its expansion for Student's t, in powers of one by the degrees of freedom: Abramowitz and Stegun, Handbook of
# Mathematical Functions, 26.7.5.
STUDENT_95 = (
    Z_95,
    (Z_95**3 + Z_95) / 4,
    (5 * Z_95**5 + 16 * Z_95**3 + 3 * Z_95) / 96,
    (3 * Z_95**7 + 19 * Z_95**5 + 17 * Z_95**3 - 15 * Z_95) / 384,
    (79 * Z_95**9 + 776 * Z_95**7 + 1482 * Z_95**5 - 1920 * Z_95**3 - 945 * Z_95) / 92160,
)

# The most events that give no sample at 97.5 %, in sampling periods: exp(-x) = 0.025.
UNSEEN_SAMPLES = 3.689

# With fewer the intervals miss the truth too often: the errors of ratios are skewed (docs/accuracy.md has the table).
MIN_SAMPLES = 30

# An event with less of a value's variance than this may be scarce: its own skew does not matter to the sum.
MINOR_VARIANCE = 0.1

# Percentages known to so many points tell something even where they are no larger than their error.
INFORMATIVE_POINTS = 5.0

# Half of an interval that is no more than this part of its value is what rounding makes of zero.
ROUNDING = 1e-9

# Below this a counter group missed so little of the run that the windows it did not see cannot matter.
SEEN_WHOLE = 0.99

# Stretches of time in which it is looked how values change; more would only cost time and memory.
MAX_INTERVALS = 32


def wilson_95(share: F64, n: ArrayLike) -> tuple[F64, F64]:
    """Centre and half the width of the 95 % interval of shares of n independent samples.

    Wilson's score interval (1927): it stays sensible for few samples and shares near 0 and 1. NaN where n is 0.
    """
    samples = np.asarray(n, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrunk = 1 + Z_95**2 / samples
        centre = (share + Z_95**2 / (2 * samples)) / shrunk
        half = Z_95 / shrunk * np.sqrt(share * (1 - share) / samples + (Z_95 / (2 * samples)) ** 2)
    return np.asarray(centre), np.asarray(half)


def student_95(freedom: ArrayLike) -> F64:
    """Two-sided 95 % quantile of Student's t, by `STUDENT_95`; within 1 % from two degrees of freedom on."""
    v = np.maximum(np.asarray(freedom, np.float64), 1.0)
    return np.asarray(sum(term / v**power for power, term in enumerate(STUDENT_95)))


def grouped_quantiles(
    start: NDArray[np.int64], values: NDArray[np.generic], counts: NDArray[np.generic], shares: tuple[float, ...]
) -> F64:
    """Exact quantiles of histograms: the smallest value with at least that share of the observations at or below it.

    Args:
        start: int64[n], ascending: histogram i is ``start[i]:start[i + 1]``, the last one up to the end; none is empty.
        values: distinct values, ascending within each histogram.
        counts: observations of each, at least one.
        shares: such as (0.5, 0.9, 0.99).

    Returns:
        float64[n, len(shares)].
    """
    below = np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))])
    first = below[start]
    totals = np.diff(first, append=below[-1])
    wanted = first[:, None] + np.ceil(np.array(shares) * totals[:, None]).astype(np.int64)
    found: F64 = np.asarray(values, np.float64)[np.searchsorted(below[1:], wanted)]
    return found


def variance_between(parts: F64) -> tuple[F64, F64]:
    """Variance of sums over time, from the differences between neighbouring intervals.

    Slow drift, which every interval saw alike, hardly counts as error (Wolter, Introduction to Variance Estimation,
    on systematic sampling: the estimator of successive differences).

    Args:
        parts: float64[n, intervals], what each interval adds to the sum.

    Returns:
        float64[n] variance of the sum over the intervals, and its degrees of freedom; NaN with a single interval.
    """
    n = parts.shape[1]
    if n < 2:
        return np.full(len(parts), np.nan), np.full(len(parts), np.nan)
    variance = np.sum(np.diff(parts, axis=1) ** 2, axis=1) / 2 * n / (n - 1)
    used = np.maximum(2, np.count_nonzero(parts, axis=1))
    # The differences overlap, so that they tell less than as many independent ones.
    return variance, 2.0 * (used - 1) ** 2 / (3 * used - 4)


def satterthwaite(variance: F64, estimated: F64, freedom: ArrayLike) -> F64:
    """Degrees of freedom of variances, of which a part was estimated and the rest is known (Satterthwaite 1946).

    Args:
        freedom: of what was estimated.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.asarray(freedom, np.float64) * (variance / np.maximum(estimated, 0)) ** 2)


def two_sided_p(z: F64, freedom: F64) -> F64:
    """The chance of a value of Student's t so far from 0 (Wallace's normal approximation, 1959)."""
    few = np.minimum(freedom, 1e9)
    normal = (8 * few + 1) / (8 * few + 3) * np.sqrt(few * np.log1p(z**2 / few))
    return np.array([math.erfc(value / math.sqrt(2)) for value in normal.ravel().tolist()]).reshape(z.shape)


def holm(p: F64) -> F64:
    """p-values of a family of tests, adjusted by Holm (1979); NaN, no test, stays.

    Among those at or below a level there is any false one with no more than that chance, however the tests depend on
    each other.
    """
    adjusted = np.full(len(p), np.nan)
    tests = np.flatnonzero(~np.isnan(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


def benjamini_hochberg(p: F64) -> F64:
    """q-values of a family of tests (Benjamini and Hochberg 1995); NaN, no test, stays.

    Of those at or below a level no more than that part is false on average, where tests do not depend on each other or
    lean to one side together.
    """
    adjusted = np.full(len(p), np.nan)
    tests = np.flatnonzero(~np.isnan(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    scaled = p[order] * len(order) / np.arange(1, len(order) + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted
