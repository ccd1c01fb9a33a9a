"""How metrics are made of a recording's samples, for what evaluates them: of all of it, of a part, or in the page."""

from collections.abc import Mapping, Sequence

from tdprof.catalog.entries import Metric
from tdprof.model.arrays import U32, U64
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class EventCount:
    """How an event's count is made for one metric.

    Attributes:
        rows: the profile's events whose samples stand for it: one, or where a metric's events are spread over groups
            one for each group that has it.
        total: what the counters say; None if they could not be read, then weights count as they are.
        samples, weight, squares: sums over all the samples of these events, as in `Entries`.
        edges: variance of the total in squares of a sample, where it is known to whole samples.
    """

    rows: Sequence[int]
    total: float | None
    samples: float
    weight: float
    squares: float
    edges: float = 1.0

    @property
    def scale(self) -> float:
        """Events that one unit of weight stands for."""
        if self.total is None:
            return 1.0
        return self.total / self.weight if self.weight else 0.0


@dataclass(frozen=True, slots=True)
class MetricPlan:
    """How a metric is measured.

    Attributes:
        counts: of each of its events.
        seen: the share of the run that the group's counters saw.
    """

    metric: Metric
    counts: Mapping[str, EventCount]
    seen: float

    @property
    def events(self) -> list[int]:
        """Rows of the profile's events that it takes, without repetition."""
        return sorted({event for count in self.counts.values() for event in count.rows})


@dataclass(frozen=True, slots=True)
class RecordedSamples:
    """What metrics of any stretch of time are made of: samples of a Topdown recording, before they were calibrated.

    Attributes:
        event, weight: uint32[n], uint64[n]: of each row of the calibrated profile's samples, as it was recorded.
        plans: how the whole recording's metrics are measured.
        threads: of the recording.
    """

    event: U32
    weight: U64
    plans: Sequence[MetricPlan]
    threads: int
