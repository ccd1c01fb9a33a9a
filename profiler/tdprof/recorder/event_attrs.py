"""What the kernel is asked for with each kind of event of a recording."""

from dataclasses import replace

from tdprof.linux.perf_abi import ReadFormat
from tdprof.recorder import perf_event as pe
from tdprof.recorder.chain_source import SIDE_BAND_SAMPLE_TYPE, ChainSource
from tdprof.recorder.events import Event
from tdprof.recorder.locked_memory import RingSizes
from tdprof.recorder.targets import Rate


def side_band_attr(sizes: RingSizes, *, has_switches: bool, has_cgroups: bool, has_samples: bool) -> pe.PerfEventAttr:
    """Of the event that writes side-band records into a ring.

    Args:
        sizes: of the rings.
        has_switches: whether it tells every context switch.
        has_cgroups: and the control groups that are made.
        has_samples: whether samples come through the same ring.
    """
    return _telling_attr(
        read_format=ReadFormat.TOTAL_TIME_ENABLED | ReadFormat.TOTAL_TIME_RUNNING,
        mmap=1,
        mmap2=1,
        comm=1,
        comm_exec=1,
        task=1,
        context_switch=has_switches,
        cgroup=has_cgroups,
        build_id=1,
        # Where samples have no time, mappings that change are to be known at once.
        wakeup_watermark=sizes.wakeup_bytes if has_samples else 1,
    )


def switch_attr(*, has_ends: bool = False) -> pe.PerfEventAttr:
    """Of an event that tells context switches into another's ring, and nothing else but, if asked, who ends."""
    return _telling_attr(context_switch=1, task=has_ends)


def _telling_attr(**more: int) -> pe.PerfEventAttr:
    """Of an event that counts nothing and writes records into a ring."""
    return pe.PerfEventAttr(
        type=pe.PERF_TYPE_SOFTWARE,
        config=pe.PERF_COUNT_SW_DUMMY,
        sample_period=1,
        sample_type=SIDE_BAND_SAMPLE_TYPE,
        exclude_kernel=1,
        exclude_hv=1,
        watermark=1,
        **more,
    )


def clock_attr() -> pe.PerfEventAttr:
    """A counter of nothing that runs whenever its task does: its running time is the others' enabled time."""
    return pe.PerfEventAttr(
        type=pe.PERF_TYPE_SOFTWARE,
        config=pe.PERF_COUNT_SW_DUMMY,
        exclude_kernel=1,
        exclude_hv=1,
        read_format=ReadFormat.TOTAL_TIME_ENABLED | ReadFormat.TOTAL_TIME_RUNNING,
    )


def inherited(attr: pe.PerfEventAttr) -> pe.PerfEventAttr:
    """What all events of a recording have in common."""
    attr.inherit = 1
    attr.sample_id_all = 1
    attr.use_clockid = 1
    attr.clockid = pe.CLOCK_MONOTONIC
    return attr


def sampling_attr(event: Event, rate: Rate, sizes: RingSizes, call_graph: ChainSource | None) -> pe.PerfEventAttr:
    """Of the event when it samples at a rate; ``call_graph``: None where samples do not go to a ring buffer."""
    attr = event.attr()
    attr.freq = rate.frequency_hz > 0
    attr.sample_period = rate.frequency_hz or rate.period
    attr.sample_type = SIDE_BAND_SAMPLE_TYPE
    attr.exclude_callchain_kernel = event.exclude_kernel
    if call_graph:
        call_graph.ask_for(attr)
    if call_graph and pe.knows_lost_format():
        attr.read_format |= ReadFormat.LOST
    attr.watermark = 1
    attr.wakeup_watermark = sizes.wakeup_bytes
    return attr


def counting_attr(event: Event) -> pe.PerfEventAttr:
    """Of the event when it is only counted; the PMU then has no use for precision."""
    return replace(event, precise=0).attr()
