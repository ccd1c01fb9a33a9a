"""The statistics that more than one report stands on: intervals of shares, variances, quantiles, families of tests."""

import functools

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tdprof.model.arrays import F64

Z_95 = 1.959964  # two-sided 95 % of the normal distribution

# Student's t of v degrees of freedom has its own at the polynomial in 1 / v with these coefficients: the one through
# exact quantiles at eight Chebyshev points of 1 / v from 0 to 1, with the normal distribution's where 1 / v is 0.
STUDENT_95 = (
    Z_95, 2.3722705, 2.822593, 2.5543261, 1.5947884, 0.7525964, 0.5118512, -0.0295694, 0.167382,
)  # fmt: skip

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

# How soon a row counts as one with nearly all samples: the power of the part of its variance that known totals take
# away, which is about its share. With half the samples next to nothing of that is left, with nine tenths some 0.4.
NEARLY_ALL = 8

# Where scatter between intervals is less than chance would have it, that much more than its half width is what is said:
# of two estimates the smaller one leans low. With fewer degrees of freedom (nine intervals have them) it is not known.
OF_LESS_SCATTER = 1.2
SCATTER_FREEDOM = 5.0

# Twice the exponent at which a tail's integrand counts no more.
_NEGLIGIBLE = 74.0

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
    """Two-sided 95 % quantile of Student's t; of less than one degree of freedom that of one."""
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


def two_sided_p(t: F64, freedom: F64) -> F64:
    """The chance of a value of Student's t so far from 0, to nine digits however far that is.

    In w = sqrt(v log(1 + t^2 / v)), which Wallace (1959) takes for a normal deviate, the density of t with v degrees of
    freedom is exp(-w^2 / 2) g(w / sqrt(v)) but for a constant, with g(s) = s / sqrt(1 - exp(-s^2)); that is integrated.

    Args:
        freedom: of each, positive or infinite.
    """
    flat = t.ravel()
    distinct, which = np.unique(np.broadcast_to(freedom, t.shape).ravel(), return_inverse=True)
    distinct = np.minimum(distinct, 1e18)  # where it is the normal distribution
    v = distinct[which]
    w = np.sqrt(v * np.log1p(np.clip(flat, -1e150, 1e150) ** 2 / v))
    p = np.exp(-(w**2) / 2) * _student_tail(w, v) / _student_tail(np.zeros(len(distinct)), distinct)[which]
    return np.asarray(p.reshape(t.shape))


def _student_tail(w: F64, v: F64) -> F64:
    """float64[n]: the integral of `two_sided_p` from w on, divided by exp(-w^2 / 2)."""
    width = _NEGLIGIBLE / (np.sqrt(w**2 + _NEGLIGIBLE) + w)  # beyond, the integrand has fallen by exp(-_NEGLIGIBLE / 2)
    found = np.zeros(len(w))
    for node, weight in _gauss_legendre():
        step = width * node
        square = (w + step) ** 2 / v
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(square > 1e-14, square / -np.expm1(-square), 1.0)
        found += weight * np.exp(-step * (w + step / 2)) * np.sqrt(ratio)
    return np.asarray(width * found)


@functools.cache
def _gauss_legendre() -> list[tuple[float, float]]:
    """Nodes from 0 to 1 and their weights: 24 give ten digits of what falls as `_student_tail`'s does."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    return [((node + 1) / 2, weight / 2) for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True)]


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
