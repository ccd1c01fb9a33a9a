"""The statistics that more than one report stands on: intervals of shares, variances, quantiles, families of tests."""

import math

import numpy as np
from numpy.typing import ArrayLike

from tdprof.model.arrays import F64

Z_95 = 1.959964  # two-sided 95 % of the normal distribution

# The most events that give no sample at 97.5 %, in sampling periods: exp(-x) = 0.025.
UNSEEN_SAMPLES = 3.689

# With fewer the intervals miss the truth too often: the errors of ratios are skewed (docs/accuracy.md has the table).
MIN_SAMPLES = 30


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
    """Two-sided 95 % quantile of Student's t, by the expansion around the normal one.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5; within 1 % from two degrees of freedom on.
    """
    z, v = Z_95, np.maximum(np.asarray(freedom, np.float64), 1.0)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return np.asarray(z + g1 / v + g2 / v**2 + g3 / v**3 + g4 / v**4)


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
