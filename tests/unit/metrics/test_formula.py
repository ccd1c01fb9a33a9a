"""Evaluation: arrays at once, no value where there is none, and the gradient."""

import numpy as np
import pytest

from builders.catalogs import metric_of
from tdprof.catalog.expression import parse_formula
from tdprof.metrics.formula import evaluate, evaluate_with_gradient
from tdprof.pipeline.count import evaluate_counts


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


def test_a_missing_event_is_named_and_never_zero() -> None:
    found = evaluate_counts([metric_of("A / B"), metric_of("A / (C - C)", "other")], {"A": 1.0, "C": 3.0}).metrics
    assert not found["a_metric"].is_known
    assert found["a_metric"].reason == "not counted: B"
    assert not found["other"].is_known
    assert found["other"].reason == "a denominator is zero"
