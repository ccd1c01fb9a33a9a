"""Ratios that sampled operations measure, under the catalog's metric names, with confidence intervals.

A ratio of one population of operations needs no sampling interval: each operation is in it or not. Both counts are of
the same operations, so the interval is that of a binomial share.
"""

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64
from tdprof.profile.statistics import wilson_95
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    """A share of operations.

    Attributes:
        name: the catalog's metric, or a name of ours where it has none.
        part, whole: names of counts; the part is among the whole.
        scale: 100 for a metric in percent, else 1.
    """

    name: str
    part: str
    whole: str
    scale: int = 1


# Loads alone for the caches: cores may leave the bits of stores unset. The PMU's events also count what was fetched
# ahead or on a wrong path; these are of operations that the program executed.
RATIOS: tuple[Ratio, ...] = (
    Ratio("load_percentage", "LOADS", "RETIRED", 100),
    Ratio("store_percentage", "STORES", "RETIRED", 100),
    Ratio("branch_percentage", "BRANCHES", "RETIRED", 100),
    Ratio("branch_misprediction_ratio", "MISPREDICTED", "BRANCHES"),
    Ratio("l1d_cache_miss_ratio", "L1D_REFILL", "L1D_ACCESS"),
    Ratio("ll_cache_read_miss_ratio", "LLC_REFILL", "LLC_ACCESS"),
    Ratio("dtlb_walk_ratio", "TLB_WALK", "TLB_ACCESS"),
    Ratio("branch_not_taken_ratio", "NOT_TAKEN", "BRANCHES"),
    Ratio("sve_partial_predicate_ratio", "PARTIAL_PREDICATE", "VECTOR"),
    Ratio("sve_empty_predicate_ratio", "EMPTY_PREDICATE", "VECTOR"),
)


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its 95 % interval; NaN where there were no operations."""

    value: F64
    low: F64
    high: F64


def share_interval(part: NDArray[np.generic], whole: NDArray[np.generic]) -> Share:
    """Wilson's score interval of part / whole, element by element.

    It holds for samples that are independent of each other; SPE's jitter makes them nearly so.
    """
    k, n = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = k / n
    centre, half = wilson_95(p, n)
    with np.errstate(invalid="ignore"):
        # Rounding must not push a bound past 0, 1 or the value itself.
        low, high = np.clip(centre - half, 0, p), np.clip(centre + half, p, 1)
    return Share(p, low, high)


def mean_interval(period: int, *, has_jitter: bool, has_even_jitter: bool) -> int:
    """Operations between two samples on average, without collisions.

    Args:
        period: as programmed; the hardware counts in units of 256.
        has_jitter: whether PMSIRR_EL1.RND was set.
        has_even_jitter: whether the core has FEAT_SPE_ERnd (``caps/ernd``), whose randomness does not add up.
    """
    interval = period // 256 * 256
    return interval + 128 if has_jitter and not has_even_jitter else interval + 1


@dataclass(frozen=True, slots=True)
class SamplingCounts:
    """PMU events of sampling over one span of time and CPU; None where the PMU lacks one.

    Attributes:
        population: SAMPLE_POP, operations that could have been sampled.
        feed: SAMPLE_FEED, samples taken, before filters.
        collision: SAMPLE_COLLISION, samples dropped because one was in flight.
        filtrate: SAMPLE_FILTRATE, samples that passed the filters.
        records: complete records decoded.
    """

    records: int
    population: int | None = None
    feed: int | None = None
    collision: int | None = None
    filtrate: int | None = None


@dataclass(frozen=True, slots=True)
class Weight:
    """Operations that one decoded record stands for.

    Attributes:
        value: the estimate.
        is_measured: from the PMU's counts; otherwise the interval alone, which collisions make too low.
        loss: samples that passed the filters for each record decoded; 1 where that is not known.
    """

    value: float
    is_measured: bool
    loss: float


def record_weight(counts: SamplingCounts, interval: int) -> Weight:
    """What one record stands for: population / feed, times what was lost behind the filter.

    Args:
        counts: of the span.
        interval: `mean_interval`, used where the PMU's counts are missing.
    """
    loss = 1.0
    if counts.filtrate is not None and counts.records:
        loss = max(1.0, counts.filtrate / counts.records)
    if counts.population is not None and counts.feed:
        return Weight(counts.population / counts.feed * loss, is_measured=True, loss=loss)
    return Weight(interval * loss, is_measured=False, loss=loss)
