"""The events that a recording measured. Loads no NumPy, for a recorder's sake."""

from dataclasses import field
from enum import StrEnum

from tdprof.values import dataclass

MOST_EVENTS = 1024
"""Of one recording that is read: what a report costs grows with each."""


class Unit(StrEnum):
    """The unit in which an event counts; pprof's and speedscope's spelling is up to the exporter."""

    NANOSECONDS = "nanoseconds"
    COUNT = "count"
    BYTES = "bytes"


# perf_sw_ids of include/uapi/linux/perf_event.h, under perf's names.
SOFTWARE_EVENTS = {
    "cpu-clock": 0,
    "task-clock": 1,
    "page-faults": 2,
    "faults": 2,
    "context-switches": 3,
    "cs": 3,
    "cpu-migrations": 4,
    "migrations": 4,
    "minor-faults": 5,
    "major-faults": 6,
    "alignment-faults": 7,
    "emulation-faults": 8,
    "cgroup-switches": 11,
}
CLOCKS = ("cpu-clock", "task-clock")

# The event that stands for what threads do not do: time in which they are on no CPU.
OFF_CPU = "off-cpu"


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event as it was recorded.

    Attributes:
        name: as given, or tdprof's canonical name.
        unit: what one unit of weight is.
        period: events per sample asked for, or 0 in frequency mode.
        frequency_hz: samples per second asked for, or 0 in period mode.
        total: exact count from ``read()``, over all tasks and CPUs; None if it could not be read. Where events of CPUs
            are sampled, what threads do while they end is in it as it was sampled: the kernel counts nothing of that.
        enabled_ns, running_ns: multiplexing times that go with ``total``; None with it.
        counted_at_cuts: where the recording was cut into segments, what counted while this one was cut off from those
            beside it: ``total`` may have that much more or less than what its samples are of.
    """

    name: str
    unit: Unit
    period: int = 0
    frequency_hz: int = 0
    total: int | None = None
    enabled_ns: int | None = None
    running_ns: int | None = None
    counted_at_cuts: int = 0


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """Events that were sampled together, so that the metrics over them speak of the same moments.

    Attributes:
        events: rows of the capture's list of events. An event that several groups need, such as CPU_CYCLES, is a row in
            each: every row has its own period, total and running time.
        names: the catalog's name of each of these events.
        metrics: the catalog's metrics that this group's counts make up.
    """

    events: list[int]
    names: list[str]
    metrics: list[str]


@dataclass(frozen=True, slots=True)
class TopdownInfo:
    """What a Topdown recording measured, and how its groups shared the counters.

    Attributes:
        core: the catalog, as ``--cpu`` takes it, with its revision where that chooses formulas.
        groups: all that were asked for, also those that never ran: their events' running times are zero.
        is_pass_per_group: the command ran once for each group; else the groups took turns on the counters.
        split_metrics: metrics that needed more counters than there are, whose events are spread over groups.
        catalog: the text of the user's own catalog; empty for a packaged one.
    """

    core: str
    groups: list[SampledGroup]
    is_pass_per_group: bool = False
    split_metrics: list[str] = field(default_factory=list)
    catalog: str = ""
