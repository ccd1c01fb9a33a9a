"""Intervals over hosts against the jackknife spelled out, and against hosts that differ as declared."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tdprof.fleet.changes import SideCounts, compare_sides
from tdprof.fleet.estimate import (
    FEWEST_HOSTS,
    HostSums,
    estimate_shares,
    freedom_of,
    jackknife,
    share_interval,
    spread_without,
)
from tdprof.fleet.report import self_sums
from tdprof.model.arrays import F64
from tdprof.model.fleet import FleetFunction, FunctionCounts, Stratum
from tdprof.profile.statistics import benjamini_hochberg, student_95


def stratum_of(total: F64, samples: float = 10_000, seconds: F64 | None = None) -> Stratum:
    seconds = np.ones(len(total)) if seconds is None else seconds
    hosts = [f"h{i}" for i in range(len(total))]
    count = np.full(len(total), int(samples), np.int64)
    whole = total * seconds
    return Stratum("core", "cycles", "count", hosts, len(hosts), seconds, whole, whole, count, count.astype(float))


def sums_of(values: F64, samples: int = 1000) -> HostSums:
    """Of float64[functions, hosts], without the zeros."""
    function, host = np.nonzero(values)
    count = np.full(len(function), samples, np.int64)
    return HostSums(function, host, values[function, host], count, len(values))


def leave_out_each(values: F64, total: F64) -> tuple[float, float]:
    """The variance of a ratio, without each host by turns, and how far the hosts' parts of it are skewed, squared."""
    part, ratio = total / total.sum(), values.sum() / total.sum()
    without = np.array([np.delete(values, i).sum() / np.delete(total, i).sum() for i in range(len(total))])
    variance = np.sum((1 - part) ** 2 / (1 - 2 * part + np.sum(part**2)) * (without - ratio) ** 2)
    moved = (1 - part) * (without - ratio)
    return variance, np.sum(moved**3) ** 2 / np.sum(moved**2) ** 3


def test_the_variance_is_that_of_leaving_out_each_host() -> None:
    rng = np.random.default_rng(7)
    total = rng.lognormal(20, 1, 12)
    values = total * rng.uniform(0, 0.3, (40, 12)) * (rng.random((40, 12)) < 0.5)
    variance, skew = zip(*(leave_out_each(row, total) for row in values), strict=True)
    found = jackknife(sums_of(values), total)
    assert found[0] == pytest.approx(variance, rel=1e-9)
    assert found[1] == pytest.approx(skew, rel=1e-6)
    whole = values.sum(axis=1, keepdims=True)
    without = (whole - values) / (total.sum() - total)
    of_any = spread_without(without, whole / total.sum(), total)
    assert of_any[0] == pytest.approx(variance, rel=1e-9)
    assert of_any[1] == pytest.approx(skew, rel=1e-6)


def test_the_variance_is_right_on_average_and_known_as_well_as_said() -> None:
    """Of hosts that differ alike and count very differently, over many fleets."""
    total = np.array([1, 1, 1, 2, 2, 3, 4, 6, 9, 16.0])
    part = total / total.sum()
    share = np.random.default_rng(5).normal(0.1, 0.01, (20_000, 10))
    variance = jackknife(sums_of(share * total), total)[0]
    assert variance.mean() == pytest.approx(0.01**2 * np.sum(part**2), rel=0.03)
    assert 2 * variance.mean() ** 2 / variance.var() == pytest.approx(freedom_of(total), rel=0.05)
    assert freedom_of(np.ones(7)) == pytest.approx(6)


def test_a_share_and_its_interval() -> None:
    total = np.array([100.0, 200.0, 100.0, 300.0, 300.0])
    values = np.array([[10.0, 30.0, 20.0, 30.0, 10.0]])
    estimates = estimate_shares(sums_of(values), stratum_of(total))
    assert estimates.value == pytest.approx([0.1])
    variance, skew = leave_out_each(values[0], total)
    z = 1.959964
    longer = 1 + (z**4 + 2 * z**2 - 3) / 18 * skew
    half = student_95(freedom_of(total)) * np.sqrt(variance) * longer
    assert (estimates.low[0], estimates.high[0]) == pytest.approx(on_odds(0.1, float(half)))
    assert (estimates.hosts.tolist(), estimates.samples.tolist()) == ([5], [5000])
    # 50,000 samples, those of hosts with more events standing for more of them.
    effective = 1000.0**2 / np.sum(total**2 / 10_000)
    assert estimates.design_effect == pytest.approx(variance / (0.09 / effective))


SHARES = [0.101, 0.094, 0.12, 0.088, 0.109, 0.097, 0.131]


def on_odds(share: float, half: float) -> tuple[float, float]:
    """The ends of an interval that is symmetrical for the logarithm of the odds, by the derivative of that."""
    middle, half = math.log(share / (1 - share)), half / (share * (1 - share))
    low, high = (1 / (1 + math.exp(-end)) for end in (middle - half, middle + half))
    return low, high


def side_of(shares: list[float], name: str) -> SideCounts:
    """Hosts that count alike: then ratios are means."""
    hosts = len(shares)
    stratum = replace(stratum_of(np.full(hosts, 1e6)), hosts=[f"{name}{i}" for i in range(hosts)])
    weight, count = np.array(shares) * 1e6, np.full(hosts, 1000, np.int64)
    function, host = np.zeros(hosts, np.int64), np.arange(hosts)
    return SideCounts(stratum, FunctionCounts([FleetFunction("m", "f")], function, host, weight, weight, count, count))


def test_where_hosts_count_alike_intervals_are_those_of_scipy() -> None:
    """stats.ttest_1samp, of scipy 1.17.1, and its confidence_interval, longer by what skews the hosts."""
    side = side_of(SHARES, "h")
    estimates = estimate_shares(self_sums(side.counts, side.stratum), side.stratum)
    skew = leave_out_each(np.array(SHARES), np.ones(7))[1]
    expected = on_odds(0.10571428571428572, 0.014144540257454555 * (1 + 1.0799847 * float(skew)))
    assert estimates.value[0] == pytest.approx(0.10571428571428572, rel=1e-6)
    assert (estimates.low[0], estimates.high[0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("shares", "name", "difference", "p", "half_width"),
    [
        # stats.ttest_ind(equal_var=False), Welch's test, and stats.ttest_rel, of scipy 1.17.1; of the second row with
        # the 10.7 degrees of freedom that seven and six hosts have which scatter alike, not the 11 of these.
        ([0.22, 0.154, 0.181, 0.253, 0.157, 0.199], "other", 0.08828571428571426, 0.0015204889418267806,
         0.040197093638235176),
        ([0.14, 0.118, 0.127, 0.151, 0.119, 0.133], "other", 0.02561904761904761, 0.0074285416949178215,
         0.017182860231975496),
        ([0.108, 0.097, 0.125, 0.09, 0.117, 0.099, 0.139], "h", 0.005, 0.0027521569714048307, 0.002504494125900026),
    ],
    ids=["other_hosts", "other_hosts_that_scatter_alike", "the_same_hosts"],
)  # fmt: skip
def test_where_hosts_count_alike_differences_are_those_of_scipy(
    shares: list[float], name: str, difference: float, p: float, half_width: float
) -> None:
    table = compare_sides(side_of(SHARES, "h"), side_of(shares, name), is_self=True)
    assert (table.change[0], table.p[0]) == pytest.approx((difference, p))
    assert table.half_width[0] == pytest.approx(half_width, rel=1e-6)


def test_of_few_hosts_only_the_chance_of_sampling_is_told() -> None:
    hosts = FEWEST_HOSTS - 1
    estimates = estimate_shares(sums_of(np.full((1, hosts), 10.0)), stratum_of(np.full(hosts, 100.0)))
    assert not estimates.is_between
    assert estimates.half_width == pytest.approx([1.96 * np.sqrt(0.09 / 40_000)], rel=0.01)
    assert np.isnan(estimates.design_effect).all()


def test_ends_are_shares_and_what_all_hosts_have_alike_is_sure() -> None:
    low, high = share_interval(np.array([0.001, 0.999, 1.0, 0.3, 0.3]), np.array([0.002, 0.002, 1e-17, 0.0, np.nan]))
    assert ((low[:2] > 0) & (high[:2] < 1)).all()
    assert (low[2:4].tolist(), high[2:4].tolist()) == ([1.0, 0.3], [1.0, 0.3])
    assert np.isnan([low[4], high[4]]).all()


def test_of_few_samples_there_is_no_interval() -> None:
    estimates = estimate_shares(sums_of(np.full((1, 6), 10.0), samples=4), stratum_of(np.full(6, 100.0)))
    assert np.isnan([estimates.low, estimates.high]).all()
    assert estimates.value == pytest.approx([0.1])


def test_a_host_that_is_recorded_longer_counts_no_more() -> None:
    rate, share = np.full(6, 1000.0), np.array([[0.1, 0.1, 0.1, 0.2, 0.2, 0.2]])
    values = estimate_shares(sums_of(share * rate), stratum_of(rate, seconds=np.array([1, 1, 1, 50, 50, 50.0])))
    assert values.value == pytest.approx([0.15])


def test_one_host_with_everything_tells_nothing_of_others() -> None:
    total = np.array([100.0, 0, 0, 0, 0])
    estimates = estimate_shares(sums_of(np.array([[10.0, 0, 0, 0, 0]])), stratum_of(total))
    assert estimates.value == pytest.approx([0.1])
    assert not estimates.half_width[0] > 0


def test_benjamini_and_hochberg_as_published() -> None:
    """The fifteen p-values of section 3.1 of their paper of 1995: four are rejected at 5 %."""
    p = [1e-4, 4e-4, 1.9e-3, 9.5e-3, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.324, 0.4262, 0.5719, 0.6528, 0.759, 1.0]
    q = benjamini_hochberg(np.array([*p, np.nan]))
    assert (q <= 0.05).tolist() == [True] * 4 + [False] * 12
    assert q[3] == pytest.approx(0.0095 * 15 / 4)
    assert np.isnan(q[-1])
    assert benjamini_hochberg(np.array([0.04, 0.03]))[0] == pytest.approx(0.04)
