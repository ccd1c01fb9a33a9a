"""What a recording wants opened on every task and CPU, and what it means where the kernel refuses some of it."""

import errno
from collections.abc import Container, Sequence
from dataclasses import KW_ONLY

from tdprof.errors import TdprofError
from tdprof.recorder import perf_event as pe
from tdprof.recorder.chain_source import BY_FRAME_POINTERS, ChainSource
from tdprof.recorder.event_attrs import counting_attr, inherited, sampling_attr, side_band_attr
from tdprof.recorder.events import Event
from tdprof.recorder.host import perf_event_paranoid
from tdprof.recorder.locked_memory import RingSizes
from tdprof.recorder.refusals import gone_offline, has_gone_offline, open_error
from tdprof.recorder.targets import Rate, SamplingTarget
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class WantedEvents:
    """What `AttachedEvents` opens.

    Attributes:
        events: what to sample.
        target: on which tasks.
        rates: how often each, to begin with.
        programs: for each event the BPF program that takes its samples; None: samples go to the ring buffers.
        groups: indices of events that are on the PMU together or not at all, the leader first; an event in none of
            them is not opened. None: each event by itself.
        sizes: of the ring buffers; one that is refused is made smaller.
        has_switches: let the side-band tell every context switch of the target.
        has_cgroups: let the side-band tell the control groups that are made.
        call_graph: what samples in the ring buffers say of their callers.
        by_turns: events that stay stopped until they are switched on; of a group all or none.
        has_switches_by_turns: context switches are told, but not before it is asked for; of recordings of CPUs.
    """

    events: Sequence[Event]
    target: SamplingTarget
    rates: Sequence[Rate]
    programs: Sequence[int] | None
    groups: Sequence[Sequence[int]] | None = None
    _: KW_ONLY
    sizes: RingSizes
    has_switches: bool = False
    has_cgroups: bool = False
    call_graph: ChainSource = BY_FRAME_POINTERS
    by_turns: Container[int] = ()
    has_switches_by_turns: bool = False

    @property
    def together(self) -> Sequence[Sequence[int]]:
        """Of all that is opened the indices of the events that are one group."""
        return self.groups if self.groups is not None else [[row] for row in range(len(self.events))]

    @property
    def is_of_cgroups(self) -> bool:
        """Whether the events are of control groups, not of tasks; BPF programs choose themselves."""
        return self.target.is_of_cgroups and self.programs is None

    @property
    def sampled(self) -> Sequence[int]:
        """Tasks whose events sample, or control groups; where BPF programs filter, all tasks."""
        return self.target.cgroups if self.is_of_cgroups else self.target.sampled_tasks

    @property
    def follows_tasks(self) -> bool:
        """Whether events are of tasks on all CPUs, rather than of tasks on each CPU."""
        return self.groups is not None and self.programs is not None and not self.target.is_per_cpu

    @property
    def is_told_per_cpu(self) -> bool:
        """Whether the side-band is of CPUs, whatever runs there: who may load BPF programs may have that."""
        return self.target.is_per_cpu or self.follows_tasks

    @property
    def told_tasks(self) -> Sequence[int]:
        """Of which the side-band is opened on each CPU."""
        return [-1] if self.is_told_per_cpu else self.target.tasks

    @property
    def counts_besides(self) -> bool:
        """Whether each event is opened once more, to count: those that sample are of others, too."""
        return self.target.is_filtered or (self.target.is_of_cgroups and self.programs is not None)

    @property
    def timed(self) -> Sequence[int]:
        """Of these events the programs that time threads know the count.

        An event of a thread makes each of its context switches dearer, about as much as those programs do.
        """
        return [row for row, event in enumerate(self.events) if self.target.is_timed and event.is_run_time]

    @property
    def has_clock(self) -> bool:
        """Whether there is an event of tasks, for which it is to be known how long they were there to be counted."""
        return not self.target.is_system_wide and len(self.timed) < len(self.events)

    def starts_at_exec(self, task: int) -> bool:
        """Whether a task's events wait for its exec."""
        return self.target.starts_at_exec and task >= 0

    def side_band(self) -> pe.PerfEventAttr:
        """What tells of processes and mappings."""
        return side_band_attr(
            self.sizes,
            has_switches=self.has_switches,
            has_cgroups=self.has_cgroups,
            has_samples=self.programs is None,
        )

    def sampling(self, row: int, rate: Rate) -> pe.PerfEventAttr:
        """An event that samples."""
        chains = self.call_graph if self.programs is None else None
        attr = sampling_attr(self.events[row], rate, self.sizes, chains)
        # On a CPU that idles, without the kernel's ticks, a clock is soon paused for interrupting too often, and still
        # is as somebody comes to run there.
        attr.exclude_idle = self.counts_besides and self.events[row].is_clock
        return inherited(attr)

    def counting(self, row: int) -> pe.PerfEventAttr:
        """The same event where it only counts."""
        return counting_attr(self.events[row])

    def has_ended(self, error: OSError) -> bool:
        """Whether a thread ended meanwhile, one of several."""
        return error.errno == errno.ESRCH and len(self.target.tasks) > 1

    def has_gone(self, cpu: int, error: OSError) -> bool:
        """Whether a CPU has gone offline, and is opened when it is back.

        Raises:
            TdprofError: it has, and would not be.
        """
        if not has_gone_offline(cpu, error):
            return False
        if not self.is_told_per_cpu:
            raise gone_offline(cpu) from error
        return True

    def check_refusal(self, row: int, rate: Rate, error: OSError) -> None:
        """Raise unless a thread ended, or the PMU belongs to other cores than this one."""
        if error.errno in (errno.ESRCH, errno.ENOENT, errno.ENODEV, errno.EINVAL):
            return
        if self.events[row].exclude_user and error.errno in (errno.EACCES, errno.EPERM):
            raise TdprofError(
                f"not allowed to sample the kernel: kernel.perf_event_paranoid is {perf_event_paranoid()}",
                hint="sudo sysctl kernel.perf_event_paranoid=1, or run tdprof with sudo",
            ) from error
        raise self.refusal(row, rate, error) from error

    def refusal(self, row: int, rate: Rate, error: OSError) -> TdprofError:
        """Why an event cannot be had, and what to do about it."""
        return open_error(self.events[row].name, error, self.target.scope, frequency_hz=rate.frequency_hz)
