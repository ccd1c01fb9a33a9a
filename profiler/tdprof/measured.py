"""What a recording measured and what it lost. Apart from `model` so that a recorder never loads NumPy."""

from dataclasses import dataclass, field
from enum import StrEnum


class Unit(StrEnum):
    """The unit in which an event counts; pprof's and speedscope's spelling is up to the exporter."""

    NANOSECONDS = "nanoseconds"
    COUNT = "count"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event as it was recorded.

    Attributes:
        name: as given, or tdprof's canonical name.
        unit: what one unit of weight is.
        period: events per sample asked for, or 0 in frequency mode.
        frequency_hz: samples per second asked for, or 0 in period mode.
        total: exact count from ``read()``, over all tasks and CPUs; None if it could not be read.
        enabled_ns, running_ns: multiplexing times that go with ``total``; None with it.
    """

    name: str
    unit: Unit
    period: int = 0
    frequency_hz: int = 0
    total: int | None = None
    enabled_ns: int | None = None
    running_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Losses:
    """Samples and records that a capture does not hold, by the way they went missing. Each is a count."""

    samples_map_full: int = 0  # the kernel-side table had no room
    # PERF_RECORD_LOST(_SAMPLES) on a sampling ring buffer; side-band records that shared it are counted with them
    samples_ring_full: int = 0
    samples_outside_namespace: int = 0  # the process is not in the recorder's pid namespace
    user_stacks_unreadable: int = 0  # the sample is counted, with no user call chain
    kernel_stacks_unreadable: int = 0
    stack_id_collisions: int = 0  # two stacks with one hash: the sample is counted, with no call chain
    stacks_truncated: int = 0  # deeper than the kernel's limit (perf_event_max_stack)
    side_band_records_lost: int = 0
    throttled: int = 0  # times the kernel stopped an event for interrupting too often
    bytes_damaged: int = 0  # of the capture's own files, when read
    by_reason: dict[str, int] = field(default_factory=dict)  # others, named by their source
