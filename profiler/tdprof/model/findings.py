"""What is known of why code is slow: metrics with their doubt for the program, its functions and lines."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.catalog.entries import Catalog
from tdprof.model.arrays import F64, I32, I64, U32, U64
from tdprof.model.metric_plans import RecordedSamples
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One metric of one piece of code.

    Attributes:
        value: in ``units``; NaN where unknown.
        half_width: half of the 95 % interval, in the same units; NaN where unknown. A zero of which no sample was seen
            is no measured zero: its half width is what there may have been all the same, and it is never significant.
        source: "pmu" or "spe".
        samples: that the value rests on: those of the scarcest event, events aside that hardly add to the doubt.
        is_significant: enough samples, and an interval narrow enough, to be acted upon and ranked by.
    """

    value: float
    half_width: float
    units: str
    source: str
    samples: int
    is_significant: bool

    @property
    def is_unseen(self) -> bool:
        """Whether the value is a zero that only stands for what no sample showed: it is below the half width."""
        return self.value == 0 and self.half_width > 0 and not self.samples


@dataclass(frozen=True, slots=True)
class MetricTable:
    """Metrics of n pieces of code: one column for each metric and source that measured it.

    Attributes:
        metrics: the catalog's names; one that both PMU and SPE measured stands twice.
        units, sources: of each column.
        value, half_width: float64[n, metrics].
        samples: uint64[n, metrics].
        is_significant: bool[n, metrics].
    """

    metrics: Sequence[str]
    units: Sequence[str]
    sources: Sequence[str]
    value: F64
    half_width: F64
    samples: U64
    is_significant: NDArray[np.bool_]

    def column(self, metric: str, source: str = "pmu") -> int | None:
        """The column of a metric as this source measured it."""
        columns = enumerate(zip(self.metrics, self.sources, strict=True))
        return next((column for column, which in columns if which == (metric, source)), None)

    def row(self, index: int) -> list[tuple[str, MetricValue]]:
        """(metric, value) of one piece of code, in the columns' order; unknown values are left out."""
        return [
            (
                self.metrics[column],
                MetricValue(
                    float(self.value[index, column]),
                    float(self.half_width[index, column]),
                    self.units[column],
                    self.sources[column],
                    int(self.samples[index, column]),
                    bool(self.is_significant[index, column]),
                ),
            )
            for column in range(len(self.metrics))
            if not np.isnan(self.value[index, column])
        ]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where a piece of code loses its slots.

    Attributes:
        path: the tree's metrics followed, level 1 first; empty where nothing stands out of the noise.
        groups: the metric groups that the path leads to, to be looked at in this order.
        advice: what a high value of the path's last metric means, in one line; empty without a path.
    """

    path: Sequence[str]
    groups: Sequence[str]
    advice: str

    @property
    def bottleneck(self) -> str | None:
        """The dominating level-1 metric."""
        return self.path[0] if self.path else None


NO_DIAGNOSIS = Diagnosis((), (), "")


@dataclass(frozen=True, slots=True)
class CallPaths:
    """Ways on which code was reached, of those with enough samples; highest self share first.

    Attributes:
        start: int64[k + 1]; the functions of path i are ``function[start[i]:start[i + 1]]``.
        function: int32, function ids, leaf first, inlined ones too.
        share: float64[k], of the program's cycles.
        metrics: of the leaf's own instructions when it was reached that way.
    """

    start: I64
    function: I32
    share: F64
    metrics: MetricTable

    def ending_in(self, function: int) -> list[int]:
        """The paths with this function at the leaf."""
        return np.flatnonzero(self.function[self.start[:-1]] == function).tolist()

    def functions_of(self, path: int) -> list[int]:
        """Function ids of a path, leaf first."""
        found: list[int] = self.function[self.start[path] : self.start[path + 1]].tolist()
        return found


@dataclass(frozen=True, slots=True)
class MetricTimes:
    """Metrics of the whole program in stretches of time; their doubt is that of sampling alone.

    Attributes:
        begin, end: int64[n], nanoseconds since the recording's start.
        metrics: n rows.
    """

    begin: I64
    end: I64
    metrics: MetricTable


@dataclass(frozen=True, slots=True)
class Findings:
    """Metrics of a whole profile. Rows of ``functions`` and ``inclusive`` go with ``function``.

    Attributes:
        catalog: of the core that was recorded.
        program: one row: everything that was sampled.
        program_diagnosis: of that.
        function: int32[n], function ids as in ``FrameStacks``, highest self share first; -1: no call stack.
        functions: of each function's own instructions.
        inclusive: of each function with all that it called.
        diagnoses: of each function's own instructions.
        line_function, line: int32[m], uint32[m]: source lines, highest self share first; ``lines`` has their metrics.
        disagreements: metrics that PMU and SPE put apart by more than their errors, a sentence each.
        call_paths: of a Topdown recording.
        times: those of the whole program over time, for who asked for them.
        left_out: functions that have no row, because there are too many: those with the smallest inclusive shares.
        recorded: what metrics of stretches of time are made of, of a Topdown recording.
    """

    catalog: Catalog
    program: MetricTable
    program_diagnosis: Diagnosis
    function: I32
    functions: MetricTable
    inclusive: MetricTable
    diagnoses: Sequence[Diagnosis]
    line_function: I32
    line: U32
    lines: MetricTable
    disagreements: Sequence[str] = ()
    call_paths: CallPaths | None = None
    times: MetricTimes | None = None
    left_out: int = 0
    recorded: RecordedSamples | None = None

    @property
    def has_topdown(self) -> bool:
        """Whether these are of a Topdown recording; else SPE alone measured, which tells no bottleneck."""
        return set(self.functions.sources) != {"spe"}

    def row_of(self) -> Mapping[int, int]:
        """Function id to row."""
        return {int(function): row for row, function in enumerate(self.function)}
