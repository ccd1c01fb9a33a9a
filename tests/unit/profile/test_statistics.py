"""Quantiles and intervals against published tables."""

import statistics

import numpy as np
import pytest

from tdprof.profile.statistics import UNSEEN_SAMPLES, Z_95, satterthwaite, student_95, wilson_95


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
