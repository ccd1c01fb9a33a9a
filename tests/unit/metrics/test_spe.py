"""Arithmetic on sampled operations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.metrics.spe import SamplingCounts, mean_interval, record_weight, share_interval


def test_wilson_interval_of_a_known_case() -> None:
    """8 of 10: the published interval is 0.490 to 0.943."""
    share = share_interval(np.array([8]), np.array([10]))
    assert share.value[0] == 0.8
    assert share.low[0] == pytest.approx(0.490, abs=5e-4)
    assert share.high[0] == pytest.approx(0.943, abs=5e-4)


def test_no_operations_give_no_ratio() -> None:
    share = share_interval(np.array([0]), np.array([0]))
    assert math.isnan(share.value[0])


@given(st.integers(1, 10**9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_value(counts: tuple[int, int]) -> None:
    part, whole = counts
    share = share_interval(np.array([part]), np.array([whole]))
    assert 0 <= share.low[0] <= share.value[0] <= share.high[0] <= 1


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = rng.binomial(200, 0.07, 20_000)
    share = share_interval(hits, np.full(len(hits), 200))
    covered = ((share.low <= 0.07) & (share.high >= 0.07)).mean()
    assert 0.93 < covered < 0.97


@pytest.mark.parametrize(
    ("has_jitter", "has_even_jitter", "mean"), [(False, False, 4097), (True, False, 4224), (True, True, 4097)]
)
def test_mean_interval(has_jitter: bool, has_even_jitter: bool, mean: int) -> None:
    assert mean_interval(4100, has_jitter=has_jitter, has_even_jitter=has_even_jitter) == mean


def test_weight_counts_collisions_and_losses() -> None:
    counts = SamplingCounts(records=800, population=1_100_000, feed=1000, collision=100, filtrate=1000)
    weight = record_weight(counts, interval=1000)
    assert weight.is_measured
    assert weight.loss == 1.25
    assert weight.value * 800 == pytest.approx(1_100_000)


def test_weight_without_counters_is_the_interval() -> None:
    weight = record_weight(SamplingCounts(records=10), interval=4224)
    assert (weight.value, weight.is_measured, weight.loss) == (4224.0, False, 1.0)
