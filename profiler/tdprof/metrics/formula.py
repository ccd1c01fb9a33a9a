"""Evaluates metric formulas on arrays, with their gradient; a division by zero has no value."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from tdprof.catalog.expression import Expression, Name, Number, Operation, Operator
from tdprof.model.arrays import F64


def evaluate(expression: Expression, counts: Mapping[str, ArrayLike]) -> F64:
    """The formula's value for each element of the counts.

    Args:
        counts: event name to counts; the arrays broadcast against each other. NaN marks an unknown count.

    Returns:
        float64; NaN where a denominator is zero, a count is unknown, or the value exceeds what float64 holds.

    Raises:
        KeyError: an event of the formula is not among the counts.
    """
    value, _ = _evaluate(expression, {name: np.asarray(count, np.float64) for name, count in counts.items()}, False)
    return value


def evaluate_with_gradient(expression: Expression, counts: Mapping[str, ArrayLike]) -> tuple[F64, dict[str, F64]]:
    """As `evaluate`, with the partial derivative by each event of the formula, in the value's shape."""
    value, gradient = _evaluate(expression, {name: np.asarray(c, np.float64) for name, c in counts.items()}, True)
    return value, {name: np.broadcast_to(partial, value.shape) for name, partial in gradient.items()}


def _evaluate(expression: Expression, counts: Mapping[str, F64], derive: bool) -> tuple[F64, dict[str, F64]]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value, gradient = _node(expression, counts, derive)
        known = np.isfinite(value)
        return np.where(known, value, np.nan), {n: np.where(known, p, np.nan) for n, p in gradient.items()}


def _node(expression: Expression, counts: Mapping[str, F64], derive: bool) -> tuple[F64, dict[str, F64]]:
    """Forward differentiation: the value and, if wanted, its partial derivatives."""
    match expression:
        case Number(number):
            return np.asarray(number), {}
        case Name(name):
            return counts[name], {name: np.asarray(1.0)} if derive else {}
        case Operation(operator, left, right):
            a, da = _node(left, counts, derive)
            b, db = _node(right, counts, derive)
    if operator is Operator.ADD:
        return a + b, _combine(da, 1.0, db, 1.0)
    if operator is Operator.SUBTRACT:
        return a - b, _combine(da, 1.0, db, -1.0)
    if operator is Operator.MULTIPLY:
        return a * b, _combine(da, b, db, a)
    # Zero becomes NaN before dividing, so that x/0 and 0/0 alike have no value, here and in every parent.
    divisor = np.where(b == 0, np.nan, b)
    quotient = a / divisor
    return quotient, _combine(da, 1.0 / divisor, db, -quotient / divisor)


def _combine(
    left: Mapping[str, F64], by_left: F64 | float, right: Mapping[str, F64], by_right: F64 | float
) -> dict[str, F64]:
    """The chain rule over both operands."""
    total = {name: np.asarray(partial * by_left) for name, partial in left.items()}
    for name, partial in right.items():
        term = np.asarray(partial * by_right)
        total[name] = total[name] + term if name in total else term
    return total
