"""Shares over hosts, with what differs between hosts in their intervals.

The host is the sampling unit (Cochran, Sampling Techniques, 3rd ed., chapter 6, on ratio estimators; Wolter,
Introduction to Variance Estimation, chapter 4, on the jackknife): samples of one host share code, input, neighbours and
firmware, so that a million of them say little more of the fleet than a thousand.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import Estimates, Stratum
from tdprof.profile.statistics import student_95, wilson_95

# Below, the scatter between hosts is known too badly to say anything of it.
FEWEST_HOSTS = 5
# With fewer a share's error is too skewed for an interval of so simple a form.
FEWEST_SAMPLES = 30
_ROWS_AT_ONCE = 1 << 18


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
        half = wilson_95(share, effective)[1]
        return Estimates(share, half, seen, samples, np.full(sums.n, np.nan), is_between=False)
    variance = jackknife_variance(sums, total)
    half = student_95(freedom_of(total)) * np.sqrt(variance)
    half = np.where(samples >= FEWEST_SAMPLES, half, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.where(chance > 0, variance / chance, np.nan)
    return Estimates(share, half, seen, samples, effect, is_between=True)


def jackknife_variance(sums: HostSums, total: F64) -> F64:
    """float64[n]: variance of the ratio of all hosts' values to their totals, from leaving out a host at a time.

    Args:
        total: float64[h], positive; two hosts or more.
    """
    hosts = len(total)
    whole = total.sum()
    ratio = _sum(sums, sums.value) / whole
    # Without host i the ratio is larger by (ratio * total_i - value_i) / (whole - total_i): most functions are on few
    # hosts, and the sums over the hosts without them are the same for all.
    first, second = np.empty(sums.n), np.empty(sums.n)
    with np.errstate(divide="ignore", invalid="ignore"):  # one host alone has all there is: nothing is known then
        share = total / (whole - total)
        for functions, rows in _pieces(sums):
            part, value, host = sums.function[rows] - functions.start, sums.value[rows], sums.host[rows]
            mine = np.where(value > 0, value / total[host], 0)
            weight, own = share[host], ratio[functions]
            known = [weight * mine, weight**2 * mine * (2 * own[part] - mine)]
            first[functions], second[functions] = (np.bincount(part, each, len(own)) for each in known)
        first = ratio * share.sum() - first
        second = ratio**2 * np.sum(share**2) - second
    return np.asarray((hosts - 1) / hosts * np.maximum(second - first**2 / hosts, 0))


def _pieces(sums: HostSums) -> Iterator[tuple[slice, slice]]:
    """Functions and their rows, some at a time: what is worked out on the way would take more memory than the rows."""
    edges = sorted({0, *sums.function[::_ROWS_AT_ONCE].tolist(), sums.n})
    for first, end in itertools.pairwise(edges):
        yield slice(first, end), slice(*np.searchsorted(sums.function, [first, end]).tolist())


def freedom_of(total: F64) -> float:
    """Degrees of freedom of a variance between hosts, of which those with more events count more (Satterthwaite)."""
    squares = total.astype(np.float64) ** 2
    return float(max(squares.sum() ** 2 / np.sum(squares**2) - 1, 1.0)) if squares.any() else 1.0


def _effective_number(stratum: Stratum) -> float:
    """As many samples, drawn from all hosts as if they were one, would tell as much where hosts did not differ."""
    rate = stratum.rate
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(stratum.effective > 0, rate**2 / stratum.effective, 0).sum()
    return float(rate.sum() ** 2 / variance) if variance else 0.0


def _sum(sums: HostSums, values: F64 | I64) -> F64:
    return np.bincount(sums.function, values, minlength=sums.n).astype(np.float64)
