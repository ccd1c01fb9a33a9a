"""Evaluation: arrays at once, no value where there is none, and the gradient."""

import numpy as np
import pytest

from builders.catalogs import metric_of
from tdprof.catalog.expression import parse_formula
from tdprof.metrics.estimate import Estimate, estimate_metric, exact
from tdprof.metrics.formula import evaluate, evaluate_with_gradient


def test_one_evaluation_serves_every_function() -> None:
    values = evaluate(parse_formula("A / B * 100"), {"A": [1, 2, 3], "B": [4, 4, 4]})
    np.testing.assert_allclose(values, [25, 50, 75])


def test_arrays_and_single_counts_mix() -> None:
    np.testing.assert_allclose(evaluate(parse_formula("A / B"), {"A": [1, 2], "B": 2}), [0.5, 1.0])


@pytest.mark.parametrize("formula", ["A / B", "1 / (A / B)", "0 * (A / B)", "A / (B * 0 + B)", "1 - A / B"])
def test_a_zero_denominator_gives_no_value(formula: str) -> None:
    assert np.isnan(evaluate(parse_formula(formula), {"A": [0.0, 5.0], "B": [0.0, 0.0]})).all()


def test_only_the_elements_without_a_denominator_lose_their_value() -> None:
    values = evaluate(parse_formula("A / B"), {"A": [1.0, 1.0], "B": [0.0, 4.0]})
    assert np.isnan(values[0])
    assert values[1] == 0.25


def test_an_unknown_count_gives_no_value_and_an_overflow_neither() -> None:
    assert np.isnan(evaluate(parse_formula("A * A"), {"A": [np.nan, 1e300]})).all()


def test_gradient_is_the_slope() -> None:
    expression = parse_formula("100 * ((1 - A / B) * (1 - C / (B * 5)) + D * 4 / B)")
    counts = {"A": 30.0, "B": 47.0, "C": 11.0, "D": 3.0}
    _, gradient = evaluate_with_gradient(expression, counts)
    for name in counts:
        step = 1e-5
        up = evaluate(expression, counts | {name: counts[name] + step})
        down = evaluate(expression, counts | {name: counts[name] - step})
        assert gradient[name] == pytest.approx((up - down) / (2 * step), rel=1e-6)


def test_standard_error_follows_the_gradient() -> None:
    # f = A / B: relative errors of a quotient add in squares.
    metric = metric_of("A / B * 100")
    counts = {
        "A": Estimate(np.array([200.0, 50.0]), np.array([4.0, 0.0])),
        "B": Estimate(np.array([1000.0, 100.0]), np.array([10.0, 5.0])),
    }
    result = estimate_metric(metric, counts)
    np.testing.assert_allclose(result.value, [20.0, 50.0])
    assert result.standard_error is not None
    np.testing.assert_allclose(result.standard_error, [20 * np.hypot(4 / 200, 10 / 1000), 50 * 0.05])


def test_propagated_error_is_the_spread_of_repeated_counts() -> None:
    generator = np.random.default_rng(7)
    metric = metric_of("(A - C) / (B + C) * 100")
    centre, error = {"A": 90_000.0, "B": 400_000.0, "C": 10_000.0}, {"A": 300.0, "B": 650.0, "C": 100.0}
    drawn = {name: generator.normal(centre[name], error[name], 200_000) for name in centre}
    spread = float(np.std(evaluate(metric.expression, drawn)))
    estimate = estimate_metric(metric, {n: Estimate(np.asarray(centre[n]), np.asarray(error[n])) for n in centre})
    assert estimate.standard_error is not None
    assert float(estimate.standard_error) == pytest.approx(spread, rel=0.02)


def test_error_is_unknown_if_one_count_has_none() -> None:
    counts = {"A": Estimate(np.asarray(1.0), np.asarray(0.1)), "B": Estimate(np.asarray(2.0))}
    assert estimate_metric(metric_of("A / B"), counts).standard_error is None


def test_a_missing_event_is_named_and_never_zero() -> None:
    result = estimate_metric(metric_of("A / B"), exact({"A": [1.0, 2.0]}))
    assert np.isnan(result.value).all()
    assert result.value.shape == (2,)
    assert result.reason == "not counted: B"
