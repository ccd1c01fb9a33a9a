"""Quantiles and intervals against published tables, and quantiles of histograms."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.profile.statistics import (
    UNSEEN_SAMPLES,
    Z_95,
    benjamini_hochberg,
    grouped_quantiles,
    holm,
    satterthwaite,
    student_95,
    two_sided_p,
    wilson_95,
)


def test_the_normal_quantile() -> None:
    assert pytest.approx(statistics.NormalDist().inv_cdf(0.975), abs=1e-6) == Z_95
    assert np.exp(-UNSEEN_SAMPLES) == pytest.approx(0.025, rel=1e-3)


# By scipy 1.17.1: stats.t.isf(0.025, freedom), stats.norm.isf(0.025).
QUANTILES = [
    (1, 12.706204736174705), (1.25, 8.027951377252055), (1.5, 6.016663104427933), (2, 4.302652729749464),
    (2.5, 3.5746548420036834), (3.7, 2.8675207071911903), (5, 2.5705818356363155), (9, 2.2621571627982053),
    (29.5, 2.0437249667721225), (1000, 1.9623390808264085), (np.inf, 1.959963984540054),
]  # fmt: skip
# 2 * stats.t.sf(t, freedom), and stats.norm.
TAILS = [
    (1, 12.7, 0.050024327689344165), (1.5, 3, 0.13354775425491328), (3, 0.1, 0.9266523488008059),
    (4, 2.5, 0.06676654481198814), (9, 8.2, 1.816212684418995e-05), (9.5, 40, 6.533362638221758e-12),
    (100, 6, 3.172491502802852e-08), (1e6, 25, 6.742358167544194e-138), (np.inf, 6, 1.973175290037647e-09),
]  # fmt: skip


@pytest.mark.parametrize(("freedom", "quantile"), QUANTILES)
def test_students_quantile(freedom: float, quantile: float) -> None:
    assert student_95(freedom) == pytest.approx(quantile, rel=1e-6)


def test_p_is_that_of_students_t() -> None:
    freedom, t, p = (np.array(column, np.float64) for column in zip(*TAILS, strict=True))
    assert two_sided_p(t, freedom) == pytest.approx(p, rel=1e-9)
    assert two_sided_p(-t.reshape(3, 3), freedom.reshape(3, 3)).ravel().tolist() == two_sided_p(t, freedom).tolist()


def test_p_of_what_is_no_number_or_very_large() -> None:
    freedom = np.array([4.0, np.inf, np.nan, 4.0, 1.0, 2.0])
    p = two_sided_p(np.array([0.0, 0.0, 1.0, np.nan, np.inf, 1e200]), freedom)
    assert p[:2].tolist() == [1.0, 1.0]
    assert np.isnan(p[2:4]).all()
    assert (p[4:] < 1e-100).all()


@given(st.floats(1, 1e7))
def test_five_percent_are_beyond_the_quantile(freedom: float) -> None:
    assert two_sided_p(student_95([freedom]), np.array([freedom])) == pytest.approx([0.05], rel=1e-6)


def test_families_of_tests() -> None:
    """By statsmodels 0.15.0, multipletests(p, method="holm" and "fdr_bh"); the latter is scipy's, too."""
    p = np.array([0.0021, 0.34, 0.0004, 0.011, 0.048, 0.77, 0.011, 0.93])
    assert holm(p) == pytest.approx([0.0147, 1.0, 0.0032, 0.066, 0.192, 1.0, 0.066, 1.0])
    assert benjamini_hochberg(p) == pytest.approx([0.0084, 0.34 * 8 / 6, 0.0032, 0.022, 0.0768, 0.88, 0.022, 0.93])
    assert holm(np.array([0.04, np.nan, 0.01, 0.03])) == pytest.approx([0.06, np.nan, 0.03, 0.06], nan_ok=True)


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
