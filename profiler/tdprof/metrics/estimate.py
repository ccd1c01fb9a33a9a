"""Metric values from event counts, with the standard error that the counts' own errors give them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tdprof.catalog.entries import Metric
from tdprof.metrics.formula import evaluate, evaluate_with_gradient
from tdprof.model.arrays import F64


@dataclass(frozen=True, slots=True)
class Estimate:
    """Counts of one event, such as one per function.

    Attributes:
        value: float64; NaN where unknown.
        standard_error: in the value's shape, or None where it is not known. Zero for an exact count.
    """

    value: F64
    standard_error: F64 | None = None


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """Values of one metric.

    Attributes:
        value: in the metric's units; NaN where there is none.
        standard_error: in the same units and shape, or None where a count's error is not known.
        missing: the events of the formula that were not counted; the value is then all NaN.
    """

    metric: Metric
    value: F64
    standard_error: F64 | None
    missing: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why a value of NaN has no value; for a metric whose values are all known it does not apply."""
        if self.missing:
            return f"not counted: {', '.join(self.missing)}"
        return "a denominator is zero"


def exact(counts: Mapping[str, ArrayLike]) -> dict[str, Estimate]:
    """Counts without a known error."""
    return {name: Estimate(np.asarray(count, np.float64)) for name, count in counts.items()}


def estimate_metric(metric: Metric, counts: Mapping[str, Estimate]) -> MetricEstimate:
    """One metric for each element of the counts: one vectorised evaluation, however many there are.

    The standard error is first-order propagation: sqrt(sum over events of (d metric/d event * its error)^2). It takes
    the events' errors as independent, which holds for events sampled by counters of their own.
    """
    missing = tuple(name for name in metric.events if name not in counts)
    if missing:
        shape = np.broadcast_shapes(*(count.value.shape for count in counts.values()))
        return MetricEstimate(metric, np.full(shape, np.nan), None, missing)
    values = {name: counts[name].value for name in metric.events}
    errors = {name: counts[name].standard_error for name in metric.events}
    if any(error is None for error in errors.values()):
        return MetricEstimate(metric, evaluate(metric.expression, values), None, ())
    value, gradient = evaluate_with_gradient(metric.expression, values)
    variance = np.zeros(value.shape)
    for name, partial in gradient.items():
        error = errors[name]
        assert error is not None
        variance = variance + (partial * error) ** 2
    return MetricEstimate(metric, value, np.sqrt(variance), ())
