"""Opens what a recording needs on every task and CPU: the sampled events and the side-band with its ring."""

import contextlib
import errno
import itertools
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tdprof.capture.spool import RING_FILE, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.recorder import perf_event as pe
from tdprof.recorder.chain_source import BY_FRAME_POINTERS, ChainSource
from tdprof.recorder.event_attrs import clock_attr, counting_attr, inherited, sampling_attr, side_band_attr, switch_attr
from tdprof.recorder.event_group import open_group, open_whole_group
from tdprof.recorder.events import Event
from tdprof.recorder.host import perf_event_paranoid
from tdprof.recorder.limits import raised_descriptor_limit
from tdprof.recorder.locked_memory import RingRefusedError, RingSizes, more_memory
from tdprof.recorder.refusals import gone_offline, has_gone_offline, open_error
from tdprof.recorder.ring import PerfRing, write_all
from tdprof.recorder.targets import Rate, SamplingTarget

if TYPE_CHECKING:
    from tdprof.recorder.ring_walk import RingWalker


class AttachedEvents:
    """The open descriptors of one recording. Use as a context manager: leaving it closes them.

    Every event is opened for each task on each CPU, with ``inherit``: a per-CPU event is the only kind that both
    follows children and may write into a ring buffer, where its throttling is announced. Where BPF programs filter,
    events of CPUs sample whatever runs there, and for each task they are opened once more, over all CPUs, to count.

    Counter groups whose samples BPF takes follow their tasks over all CPUs instead: every new thread inherits a copy of
    each event, and ninety events on each of a hundred CPUs would take it longer to start than many threads live.
    """

    def __init__(  # noqa: PLR0913 - what to open, and what its rings hold
        self,
        events: Sequence[Event],
        target: SamplingTarget,
        rates: Sequence[Rate],
        cpus: Sequence[int],
        programs: Sequence[int] | None,
        groups: Sequence[Sequence[int]] | None = None,
        *,
        sizes: RingSizes,
        has_switches: bool = False,
        has_cgroups: bool = False,
        call_graph: ChainSource = BY_FRAME_POINTERS,
        by_turns: Container[int] = (),
        has_switches_by_turns: bool = False,
    ) -> None:
        """Open everything, stopped.

        Args:
            events: what to sample.
            target: on which tasks.
            rates: how often each.
            cpus: CPUs that are up.
            programs: for each event the BPF program that takes its samples; None: samples go to the ring buffers.
            groups: indices of events that are on the PMU together or not at all, the leader first; an event in none of
                them is not opened. None: each event by itself.
            sizes: of the ring buffers; one that is refused is made smaller.
            has_switches: let the side-band tell every context switch of the target.
            has_cgroups: let the side-band tell the control groups that are made.
            call_graph: what samples in the ring buffers say of their callers.
            by_turns: events that stay stopped until `switch`; of a group all or none.
            has_switches_by_turns: context switches are told, but not before `tell_switches`; of recordings of CPUs.

        Raises:
            RingRefusedError: there is no memory to lock for the last buffers.
            TdprofError: the kernel refuses an event, with the reason and what to do about it.
        """
        self._sizes = sizes
        self._target = target
        self._events = events
        self._rates = list(rates)
        self._programs = programs
        self._groups = groups if groups is not None else [[row] for row in range(len(events))]
        self._has_switches = has_switches
        self._has_cgroups = has_cgroups
        self._call_graph = call_graph
        self._by_turns = by_turns
        self._turning: list[int] = []  # leaders of such
        self._is_on = False
        self._switch_events: list[int] = []
        self._has_switches_by_turns, self._tells_switches = has_switches_by_turns, False
        self.rings: dict[int, PerfRing] = {}
        self.sampling: list[list[int]] = [[] for _ in events]
        self._leaders: list[int] = []
        self.side_band: list[int] = []
        self._clocks: list[int] = []
        counts_besides = target.is_filtered or (target.is_of_cgroups and programs is not None)
        self._counting: list[list[int]] = [[] for _ in events] if counts_besides else []
        self._closing = contextlib.ExitStack()
        self._closing.enter_context(raised_descriptor_limit())
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            for cpu in cpus:
                for task in target.sampled_tasks:
                    self._open_side_band(task, cpu)
            for task in () if target.is_system_wide else target.tasks:
                self._open_clock(task)
                for row, fds in enumerate(self._counting):
                    self._open_counting(row, task, fds)
            for cpu in cpus:
                self._count_cgroups(cpu)
            follows_tasks = groups is not None and programs is not None and not target.is_per_cpu
            places = [(task, cpu) for cpu in ([-1] if follows_tasks else cpus) for task in self._sampled]
            for rows in self._groups:
                self._open_group(rows, places)
            on_failure.pop_all()

    @property
    def _sampled(self) -> Sequence[int]:
        """Tasks whose events sample, or control groups; where BPF programs filter, all tasks."""
        return self._target.cgroups if self._of_cgroups else self._target.sampled_tasks

    @property
    def _of_cgroups(self) -> bool:
        return self._target.is_of_cgroups and self._programs is None

    def _open(self, attr: pe.PerfEventAttr, task: int, cpu: int, *, is_cgroup: bool = False) -> int:
        starts = not is_cgroup and self._starts_at_exec(task)
        [fd] = open_whole_group([inherited(attr)], task, cpu, starts_at_exec=starts, is_cgroup=is_cgroup)
        self._closing.callback(os.close, fd)
        return fd

    def _starts_at_exec(self, task: int) -> bool:
        return self._target.starts_at_exec and task >= 0

    def _open_side_band(self, task: int, cpu: int) -> None:
        attr = side_band_attr(
            self._sizes,
            has_switches=self._has_switches,
            has_cgroups=self._has_cgroups,
            has_samples=self._programs is None,
        )
        try:
            fd = self._open(attr, task, cpu)
        except OSError as error:
            if error.errno == errno.EINVAL:  # build-ids in mmap2 records came with Linux 5.12
                attr.build_id = attr.cgroup = 0  # and those of control groups with 5.7: a look in time tells them, too
                try:
                    fd = self._open(attr, task, cpu)
                except OSError as second:
                    raise open_error("side-band records", second, self._target.scope) from second
            elif error.errno == errno.ESRCH and len(self._target.tasks) > 1:
                return  # the thread ended meanwhile
            elif self._has_gone(cpu, error):
                return
            else:
                raise open_error("side-band records", error, self._target.scope) from error
        self.side_band.append(fd)
        self._give_ring(fd, cpu)
        if self._has_switches_by_turns:
            telling = self._open(switch_attr(), task, cpu)
            self._switch_events.append(telling)
            pe.set_output(telling, self.rings[cpu].fd)

    def _has_gone(self, cpu: int, error: OSError) -> bool:
        """Whether a CPU has gone offline, and is opened when it is back.

        Raises:
            TdprofError: it has, and would not be.
        """
        if not has_gone_offline(cpu, error):
            return False
        if not self._target.is_per_cpu:
            raise gone_offline(cpu) from error
        return True

    def _open_clock(self, task: int) -> None:
        try:
            self._clocks.append(self._open(clock_attr(), task, -1))
        except OSError as error:
            if error.errno != errno.ESRCH or len(self._target.tasks) == 1:
                raise open_error("a clock", error, self._target.scope) from error

    def _open_counting(self, row: int, task: int, fds: list[int]) -> None:
        try:
            fds.append(self._open(counting_attr(self._events[row]), task, -1))
        except OSError as error:
            if error.errno != errno.ESRCH or len(self._target.tasks) == 1:
                raise self._refusal(row, error) from error

    def _count_cgroups(self, cpu: int) -> None:
        """Count, without sampling, what runs in the control groups on a CPU."""
        for row, fds in enumerate(self._counting):
            for cgroup in self._target.cgroups:
                try:
                    fds.append(self._open(counting_attr(self._events[row]), cgroup, cpu, is_cgroup=True))
                except OSError as error:
                    if not self._has_gone(cpu, error):
                        raise self._refusal(row, error) from error

    def _give_ring(self, fd: int, cpu: int) -> None:
        if cpu in self.rings:
            pe.set_output(fd, self.rings[cpu].fd)
            return
        try:
            ring = PerfRing(fd, self._sizes.side_band)
        except OSError as error:
            wanted = RingSizes.wanted(has_spe=False)
            raise RingRefusedError(
                f"cannot map a perf ring buffer: {error.strerror}", hint=more_memory(wanted)
            ) from error
        self._closing.callback(ring.close)
        self.rings[cpu] = ring

    def _open_group(self, rows: Sequence[int], places: Sequence[tuple[int, int]]) -> None:
        """Open some of the events, by their indices, as one group for each (task, CPU)."""
        failures: dict[int, OSError] = {}

        for task, cpu in places:

            def refused(index: int, error: OSError, cpu: int = cpu) -> bool:
                failures[rows[index]] = error
                if not self._has_gone(cpu, error):
                    self._check_refusal(rows[index], error)
                return index > 0  # without its leader there is no group

            attrs = [
                inherited(
                    sampling_attr(
                        self._events[row],
                        self._rates[row],
                        self._sizes,
                        self._call_graph if self._programs is None else None,
                    )
                )
                for row in rows
            ]
            starts = not self._of_cgroups and self._starts_at_exec(task)
            opened = open_group(attrs, task, cpu, refused, starts_at_exec=starts, is_cgroup=self._of_cgroups)
            for fd in opened:
                if fd is not None:
                    self._closing.callback(os.close, fd)
            for index, (row, fd) in enumerate(zip(rows, opened, strict=True)):
                if fd is None:
                    continue
                try:
                    if self._programs is not None:
                        pe.set_bpf(fd, self._programs[row])
                except OSError as error:
                    if refused(index, error):
                        continue
                    break
                if not index:
                    (self._turning if row in self._by_turns else self._leaders).append(fd)
                self.sampling[row].append(fd)
                if cpu in self.rings:
                    pe.set_output(fd, self.rings[cpu].fd)
        for row in rows:
            if not self.sampling[row]:
                failure = failures.get(row) or next(iter(failures.values()))
                raise self._refusal(row, failure) from failure

    def _check_refusal(self, row: int, error: OSError) -> None:
        """Raise unless a thread ended, or the PMU belongs to other cores than this one."""
        if error.errno in (errno.ESRCH, errno.ENOENT, errno.ENODEV, errno.EINVAL):
            return
        if self._events[row].exclude_user and error.errno in (errno.EACCES, errno.EPERM):
            raise TdprofError(
                f"not allowed to sample the kernel: kernel.perf_event_paranoid is {perf_event_paranoid()}",
                hint="sudo sysctl kernel.perf_event_paranoid=1, or run tdprof with sudo",
            ) from error
        raise self._refusal(row, error) from error

    def _refusal(self, row: int, error: OSError) -> TdprofError:
        rate = self._rates[row]
        return open_error(self._events[row].name, error, self._target.scope, frequency_hz=rate.frequency_hz)

    def recorded_cpus(self) -> list[int]:
        """CPUs that events were opened on."""
        return list(self.rings)

    def enabled_ns(self, cpu: int) -> int:
        """How long the newest events of a CPU have been counting; of a recording of the whole system."""
        return pe.read_count(self.rings[cpu].fd).enabled_ns

    def open_again(self, cpu: int) -> None:
        """Open and enable everything on a CPU that came (back) online, while the whole system is recorded.

        What it had before counts nothing more, but stays open for its counts. Drain its ring before.

        Raises:
            TdprofError: the CPU is gone again.
        """
        side_band, leaders = len(self.side_band), len(self._leaders)
        turning, switch_events = len(self._turning), len(self._switch_events)
        counting = {fd for fds in self._counting for fd in fds}
        before = self.rings.pop(cpu, None)
        try:
            self._open_side_band(-1, cpu)
            if cpu not in self.rings:
                raise TdprofError(f"CPU {cpu} is offline")
            for rows in self._groups:
                self._open_group(rows, [(task, cpu) for task in self._sampled])
            self._count_cgroups(cpu)
        except TdprofError:
            if before:
                self.rings[cpu] = before
            raise
        if before:
            before.close()
        fresh = [fd for fds in self._counting for fd in fds if fd not in counting]
        if self._is_on:
            fresh += self._turning[turning:]
        if self._tells_switches:
            fresh += self._switch_events[switch_events:]
        for fd in (*self.side_band[side_band:], *self._leaders[leaders:], *fresh):
            pe.enable(fd)

    def record_ids(self) -> list[list[int]]:
        """For each event, the ids that stand in its perf records."""
        return [[pe.event_id(fd) for fd in fds] for fds in self.sampling]

    def enable(self) -> None:
        """Start everything at once, but what waits for its task's exec.

        Clocks come last, and go first: the time for which this process may be kept from going on in between would look
        like time for which events had no counter.
        """
        if self._target.is_per_cpu or not self._target.starts_at_exec:
            for fd in (*self.side_band, *self._leaders):
                pe.enable(fd)
        if not self._target.starts_at_exec:
            for fd in (*itertools.chain(*self._counting), *self._clocks):
                pe.enable(fd)

    def switch(self, *, is_on: bool) -> None:
        """Start or stop the events that take turns."""
        self._is_on = is_on
        for fd in self._turning:
            (pe.enable if is_on else pe.disable)(fd)

    def tell_switches(self, *, is_on: bool) -> None:
        """Begin or stop to tell context switches."""
        self._tells_switches = is_on
        for fd in self._switch_events:
            (pe.enable if is_on else pe.disable)(fd)

    def disable(self) -> None:
        """Stop sampling; side-band first lets nothing be sampled whose mapping is unknown."""
        for fd in (
            *self._clocks,
            *self._leaders,
            *self._turning,
            *self._switch_events,
            *itertools.chain(*self._counting),
            *self.side_band,
        ):
            pe.disable(fd)

    def counts(self) -> Iterator[pe.Count | None]:
        """The exact count of each event, summed over tasks, CPUs and inherited events; None of one that is not open.

        How long a task's event was enabled is what a counter that is never multiplexed says: the kernel adds to the
        enabled time of an event on a CPU, or does not, while its task runs on another.
        """
        clock = sum((pe.read_count(fd).running_ns for fd in self._clocks), start=0)
        for fds in self._counting or self.sampling:
            if not fds:
                yield None
                continue
            total = sum((pe.read_count(fd) for fd in fds), start=pe.Count(0, 0, 0))
            enabled_ns = total.enabled_ns if self._target.is_system_wide else max(clock, total.running_ns)
            yield pe.Count(total.value, enabled_ns, total.running_ns)

    def set_periods(self, periods: Mapping[int, int]) -> None:
        """Change the period of some events, given by index; threads that run already keep what they inherited."""
        for row, period in periods.items():
            self._rates[row] = Rate(period=period)
            for fd in self.sampling[row]:
                pe.set_period(fd, period)

    def lost_samples(self) -> int:
        """Samples for which a ring buffer had no room, also those after which nothing more was written to it."""
        return sum(pe.read_lost(fd) for fds in self.sampling for fd in fds)

    def look(self) -> list[bytes]:
        """Of each ring the records that came since the last look; they stay there."""
        return [ring.look() for ring in self.rings.values()]

    def drain(self, spool: SpoolWriter, walker: "RingWalker | None" = None) -> None:
        """Append the records of every ring that were looked at to its file.

        ``walker`` makes call chains of the stacks that they copy.
        """
        if walker is None:
            for cpu, ring in self.rings.items():
                ring.drain(spool.descriptor(RING_FILE.format(cpu=cpu)))
            return
        taken = {cpu: data for cpu, ring in self.rings.items() if (data := ring.take())}
        # Once all are taken: now no sample is there without what had been said before it, in whatever ring.
        newer = [ring.peek() for ring in self.rings.values()]
        for cpu, records in walker.walk(taken, newer):
            write_all(spool.descriptor(RING_FILE.format(cpu=cpu)), records)

    def close(self) -> None:
        """Unmap and close everything."""
        self._closing.close()

    def __enter__(self) -> "AttachedEvents":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
