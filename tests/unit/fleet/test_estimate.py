"""Intervals over hosts against the jackknife spelled out, and against hosts that differ as declared."""

import numpy as np
import pytest

from tdprof.fleet.estimate import FEWEST_HOSTS, HostSums, estimate_shares, jackknife_variance
from tdprof.model.arrays import F64
from tdprof.model.fleet import Stratum
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


def leave_out_each(values: F64, total: F64) -> F64:
    hosts = len(total)
    without = [(values.sum() - values[i]) / (total.sum() - total[i]) for i in range(hosts)]
    return (hosts - 1) / hosts * np.sum((np.array(without) - np.mean(without)) ** 2)


def test_the_variance_is_that_of_leaving_out_each_host() -> None:
    rng = np.random.default_rng(7)
    total = rng.lognormal(20, 1, 12)
    values = total * rng.uniform(0, 0.3, (40, 12)) * (rng.random((40, 12)) < 0.5)
    expected = [leave_out_each(row, total) for row in values]
    assert jackknife_variance(sums_of(values), total) == pytest.approx(expected, rel=1e-9)


def test_a_share_and_its_interval() -> None:
    total = np.array([100.0, 200.0, 100.0, 300.0, 300.0])
    values = np.array([[10.0, 30.0, 20.0, 30.0, 10.0]])
    estimates = estimate_shares(sums_of(values), stratum_of(total))
    assert estimates.value == pytest.approx([0.1])
    freedom = np.sum(total**2) ** 2 / np.sum(total**4) - 1  # as if of fewer hosts, since some count more
    quantile = student_95(freedom)
    half = quantile * np.sqrt(leave_out_each(values[0], total))
    assert estimates.half_width == pytest.approx(half)
    assert (estimates.hosts.tolist(), estimates.samples.tolist()) == ([5], [5000])
    # 50,000 samples, those of hosts with more events standing for more of them.
    effective = 1000.0**2 / np.sum(total**2 / 10_000)
    assert estimates.design_effect == pytest.approx((half / quantile) ** 2 / (0.09 / effective))


def test_of_few_hosts_only_the_chance_of_sampling_is_told() -> None:
    hosts = FEWEST_HOSTS - 1
    estimates = estimate_shares(sums_of(np.full((1, hosts), 10.0)), stratum_of(np.full(hosts, 100.0)))
    assert not estimates.is_between
    assert estimates.half_width == pytest.approx([1.96 * np.sqrt(0.09 / 40_000)], rel=0.01)
    assert np.isnan(estimates.design_effect).all()


def test_of_few_samples_there_is_no_interval() -> None:
    estimates = estimate_shares(sums_of(np.full((1, 6), 10.0), samples=4), stratum_of(np.full(6, 100.0)))
    assert np.isnan(estimates.half_width).all()
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
