"""What `tdprof stat` measured: counts and metrics of a run."""

import math
from collections.abc import Mapping

from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """The count of an event, or the value of a metric, over a run.

    Attributes:
        value: a count is scaled up to the whole time; NaN where there is no value.
        running_percent: the share of the time in which the events were counted; below 100 the value is an estimate.
        standard_deviation: over repetitions; None for a single run.
        reason: why there is no value, or empty.
    """

    value: float
    units: str = ""
    running_percent: float = 100.0
    standard_deviation: float | None = None
    reason: str = ""

    @property
    def is_known(self) -> bool:
        return not math.isnan(self.value)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Counts and metrics of a run, an interval, or the mean of several runs."""

    end_s: float
    seconds: float
    events: Mapping[str, Measured]
    metrics: Mapping[str, Measured]

    def values(self) -> dict[str, float]:
        """Metric to value."""
        return {name: metric.value for name, metric in self.metrics.items()}
