"""How far estimates from samples may be off: quantiles, and variances seen between intervals of time."""

import numpy as np
from numpy.typing import ArrayLike

from tdprof.model.arrays import F64

Z_95 = 1.959964  # two-sided 95 % of the normal distribution

# The most events that give no sample at 97.5 %, in sampling periods: exp(-x) = 0.025.
UNSEEN_SAMPLES = 3.689


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
