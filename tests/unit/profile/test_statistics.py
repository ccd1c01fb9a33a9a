"""Quantiles and intervals against published tables, and quantiles of histograms."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.profile.statistics import UNSEEN_SAMPLES, Z_95, grouped_quantiles, satterthwaite, student_95, wilson_95


def test_the_normal_quantile() -> None:
    assert pytest.approx(statistics.NormalDist().inv_cdf(0.975), abs=1e-6) == Z_95
    assert np.exp(-UNSEEN_SAMPLES) == pytest.approx(0.025, rel=1e-3)


@pytest.mark.parametrize(("freedom", "quantile"), [(2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (np.inf, Z_95)])
def test_students_quantile(freedom: float, quantile: float) -> None:
    assert student_95(freedom) == pytest.approx(quantile, rel=0.01)


def test_wilsons_interval() -> None:
    centre, half = wilson_95(np.array([0.75, 0.0, 1.0]), np.array([100, 10, 10]))
    assert (centre - half).tolist() == pytest.approx([0.6570, 0.0, 0.7225], abs=1e-4)
    assert (centre + half).tolist() == pytest.approx([0.8246, 0.2775, 1.0], abs=1e-4)
    assert np.isnan(wilson_95(np.array([0.5]), 0.0)[1]).all()


def test_what_is_known_adds_freedom() -> None:
    estimated = np.array([4.0, 2.0, 0.0])
    assert satterthwaite(np.full(3, 4.0), estimated, 7).tolist() == [7.0, 28.0, np.inf]


@given(st.lists(st.lists(st.integers(0, 4095), min_size=1, max_size=300), min_size=1, max_size=5))
def test_quantiles_are_those_of_the_lists(lists: list[list[int]]) -> None:
    histograms = [np.unique(np.array(latencies), return_counts=True) for latencies in lists]
    start = np.cumsum([0, *(len(values) for values, _ in histograms[:-1])])
    values, counts = (np.concatenate(column) for column in zip(*histograms, strict=True))
    shares = (0.5, 0.9, 0.99)
    expected = [[sorted(one)[math.ceil(share * len(one)) - 1] for share in shares] for one in lists]
    assert grouped_quantiles(start, values, counts, shares).tolist() == expected


def test_quantiles_of_no_histograms() -> None:
    empty = np.zeros(0, np.int64)
    assert grouped_quantiles(empty, empty, empty, (0.5, 0.9)).shape == (0, 2)
