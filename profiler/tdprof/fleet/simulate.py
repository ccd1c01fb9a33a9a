"""Fleets with a declared truth: whether intervals hold it, how often changes are called by mistake, what is found.

The same estimators that answer for a store are given hosts that are drawn: each host's share of a function is the
declared one times a factor of its own, its speed another, and its samples are drawn from that share.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tdprof.fleet.changes import SideCounts, compare_sides, with_discoveries
from tdprof.fleet.outliers import find_outliers
from tdprof.fleet.quantiles import HostParts, Pooled, estimate_intervals, find_quantiles
from tdprof.fleet.report import shares_in
from tdprof.model.arrays import F64, distinct
from tdprof.model.fleet import FleetFunction, FunctionCounts, Stratum
from tdprof.profile.statistics import Z_95
from tdprof.values import dataclass

FUNCTIONS = 40  # of which each simulated fleet runs
_SPEEDS = 0.5  # deviation of the logarithm of hosts' events a second
_Z_80_ONE_SIDED = 0.841621  # one-sided 80 % of the normal distribution
_Z_99_ONE_SIDED = 2.326348
_MEDIAN_CYCLES, _CYCLES_DEVIATION = 200, 0.5  # of latencies, and the deviation of their logarithm on one host
_NORMAL_AT = np.linspace(-8, 8, 4001)
_NORMAL_BELOW = np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in _NORMAL_AT.tolist()])
_CHANGED = 0.1  # part of the functions that changed, where some did


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What is simulated.

    Attributes:
        scatter: by how much a function's share differs between hosts, relative.
        samples: of each host.
        share: of the function that is looked for; the others have the rest in equal parts.
        change: of the functions that changed, relative.
        rounds: fleets.
    """

    scatter: float
    samples: int
    share: float
    change: float
    rounds: int
    seed: int


@dataclass(frozen=True, slots=True)
class Simulated:
    """What came of fleets of so many hosts.

    Attributes:
        hosts: on each side, where two are compared.
        coverage: of how many intervals hold the truth.
        half_width: the median one of the function's share, relative to it.
        false_discoveries: of what was called changed, the mean part that had not; 0 where nothing was called.
        found: of the changed functions, how many were called.
        least_change: of that function, relative, what is found with 80 % power in one test at 5 %.
        false_outliers: the mean part of the listed outliers that are none; all hosts but one are alike.
        outlier_found: how often that one, whose function takes twice as much, is listed.
        median_coverage, p99_coverage: of how many intervals of a latency's quantile hold the truth.
        p99_half_width: half of the median one, relative to the quantile.
    """

    hosts: int
    coverage: float
    half_width: float
    false_discoveries: float
    found: float
    least_change: float
    false_outliers: float
    outlier_found: float
    median_coverage: float
    p99_coverage: float
    p99_half_width: float


def simulate(plan: FleetPlan, host_counts: Sequence[int]) -> Iterator[Simulated]:
    """Simulate fleets of each number of hosts; the same numbers for the same plan."""
    for hosts in host_counts:
        yield _simulate_hosts(plan, hosts)


def _simulate_hosts(plan: FleetPlan, hosts: int) -> Simulated:
    rng = np.random.default_rng([plan.seed, hosts])
    shares = np.full(FUNCTIONS, (1 - plan.share) / (FUNCTIONS - 1))
    shares[0] = plan.share
    changed = shares.copy()
    which = np.arange(0, FUNCTIONS, round(1 / _CHANGED))
    changed[which] *= 1 + plan.change
    changed_truth = np.isin(np.arange(FUNCTIONS), which)
    held, widths, false, found, false_outliers, outlier_found = [], [], [], [], [], []
    for _ in range(plan.rounds):
        before = draw_fleet(rng, plan, hosts, shares)
        told = shares_in(before.stratum, before.counts).own
        order = np.argsort([_number(each) for each in shares_in(before.stratum, before.counts).functions])
        low, high = told.low[order], told.high[order]
        known = np.isfinite(low)
        held.append(((low <= shares) & (shares <= high))[known])
        widths.append(told.half_width[order[0]] / plan.share)
        after = draw_fleet(rng, plan, hosts, changed)
        compared = with_discoveries([compare_sides(before, after, is_self=True)])[0]
        marks = np.zeros(FUNCTIONS, bool)
        marks[[_number(each) for each in compared.functions]] = compared.is_significant
        false.append((marks & ~changed_truth).sum() / max(marks.sum(), 1))
        found.append((marks & changed_truth).sum() / changed_truth.sum())
        odd = draw_fleet(rng, plan, hosts, shares, outlier=2.0)
        listed = find_outliers(odd.counts, odd.stratum)
        is_it = (listed.host == 0) & (np.array([_number(each) for each in listed.functions])[listed.function] == 0)
        false_outliers.append((~is_it).sum() / max(len(is_it), 1))
        outlier_found.append(bool(is_it.any()))
    width = float(np.nanmedian(widths))
    median, p99, p99_width = simulate_latencies(plan, hosts)
    return Simulated(
        hosts=hosts,
        coverage=float(np.mean(np.concatenate(held))),
        half_width=width,
        false_discoveries=float(np.mean(false)),
        found=float(np.mean(found)),
        least_change=_least_change(width),
        false_outliers=float(np.mean(false_outliers)),
        outlier_found=float(np.mean(outlier_found)),
        median_coverage=median,
        p99_coverage=p99,
        p99_half_width=p99_width,
    )


def _least_change(half_width: float) -> float:
    """Relative: of two sides with such intervals, what exceeds their difference's error often enough."""
    # Both errors count; so many deviations to be called, and more of them for four of five to be.
    return float(np.sqrt(2) * half_width * (1 + _Z_80_ONE_SIDED / Z_95))


def simulate_latencies(plan: FleetPlan, hosts: int) -> tuple[float, float, float]:
    """Of how many intervals of the median and of the 99th percentile hold the truth, and how wide the latter are.

    A host's latencies are lognormal, and its median is the declared one times a factor of its own, which differs
    between hosts as shares do. Of each host there are as many records as samples.
    """
    rng = np.random.default_rng([plan.seed, hosts, 1])
    deviation = float(np.sqrt(np.log1p(plan.scatter**2)))
    shares = (0.5, 0.99)
    # Each cycle near the quantiles, so that the ends of intervals are what they are; elsewhere five percent apart.
    whole = float(np.hypot(_CYCLES_DEVIATION, deviation))
    near = 1 + max(4 * plan.scatter / np.sqrt(hosts), 0.02)
    middles = [_MEDIAN_CYCLES * np.exp(whole * z) for z in (0, _Z_99_ONE_SIDED)]
    apart = np.exp(np.arange(np.log(20), np.log(6000), 0.05))
    values = np.concatenate([apart, *(np.arange(each / near, each * near) for each in middles)])
    values = distinct(np.round(values).astype(np.int64))
    cycles = np.log(values / _MEDIAN_CYCLES)
    truth = values[np.searchsorted(_normal(cycles / whole), shares)]
    rows, held, widths = np.zeros(hosts, np.int64), np.zeros((plan.rounds, 2)), []
    for fleet in range(plan.rounds):
        own = rng.normal(0, deviation, hosts)
        below = _normal((cycles - own[:, None]) / _CYCLES_DEVIATION)
        counts = rng.poisson(plan.samples * np.diff(below, axis=1, prepend=0)).astype(np.int64)
        weight = counts * rng.lognormal(0, _SPEEDS, hosts)[:, None]
        seen = np.flatnonzero(counts.sum(axis=0))
        pooled = Pooled(np.zeros(len(seen), np.int64), values[seen], weight.sum(axis=0)[seen])
        found = [float(find_quantiles(pooled, np.array([share]))[0]) for share in shares]
        at_or_below = np.stack([(weight * (values <= each)).sum(axis=1) for each in found], axis=1)
        parts = HostParts(rows, np.arange(hosts), weight.sum(axis=1), counts.sum(axis=1), at_or_below)
        known = estimate_intervals(pooled, parts, shares, 1)
        held[fleet] = (known.low[0] <= truth) & (truth <= known.high[0])
        widths.append((known.high[0, 1] - known.low[0, 1]) / 2 / truth[1])
    return float(held[:, 0].mean()), float(held[:, 1].mean()), float(np.median(widths))


def _normal(z: F64) -> F64:
    """The normal distribution's share below, read off a table as fine as is of any matter."""
    return np.asarray(np.interp(z, _NORMAL_AT, _NORMAL_BELOW))


def draw_fleet(
    rng: np.random.Generator, plan: FleetPlan, hosts: int, shares: F64, *, outlier: float = 1.0
) -> SideCounts:
    """Hosts whose functions have such shares on average.

    Args:
        shares: float64[functions], declared.
        outlier: by which the first function's share is multiplied on the first host.
    """
    deviation = np.sqrt(np.log1p(plan.scatter**2))
    own = shares[:, None] * rng.lognormal(-(deviation**2) / 2, deviation, (len(shares), hosts))
    own[0, 0] *= outlier
    samples = rng.poisson(np.minimum(own, 1.0) * plan.samples)
    total = np.full(hosts, plan.samples)
    speed = rng.lognormal(0, _SPEEDS, hosts)
    stratum = Stratum(
        core="simulated",
        event="cycles",
        unit="count",
        hosts=[f"host {number}" for number in rng.integers(0, 1 << 62, hosts).tolist()],
        recordings=hosts,
        seconds=np.ones(hosts),
        weight=total * speed,
        counted=total * speed,
        samples=total.astype(np.int64),
        effective=total.astype(np.float64),
    )
    function, host = np.nonzero(samples)
    count = samples[function, host].astype(np.int64)
    weight = count * speed[host]
    functions = [FleetFunction("app", f"{number:04}") for number in range(len(shares))]
    return SideCounts(stratum, FunctionCounts(functions, function, host, weight, weight, count, count))


def _number(function: FleetFunction) -> int:
    return int(function.name)
