"""Opens what a recording needs on every task and CPU: the sampled events and the side-band with its ring."""

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tdprof.capture.spool import RING_FILE, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.limits import unlimited_descriptors
from tdprof.recorder import perf_event as pe
from tdprof.recorder.clock_periods import VariedClock
from tdprof.recorder.event_attrs import clock_attr, inherited, switch_attr
from tdprof.recorder.event_group import open_group, open_whole_group
from tdprof.recorder.locked_memory import RingRefusedError, RingSizes, more_memory
from tdprof.recorder.refusals import open_error
from tdprof.recorder.ring import PerfRing, write_all
from tdprof.recorder.targets import Rate
from tdprof.recorder.wanted_events import WantedEvents

if TYPE_CHECKING:
    from tdprof.recorder.ring_walk import RingWalker

_CLOCKS_DIFFER = 0.001  # of what a task's clock says: no share of the time


class AttachedEvents:
    """The open descriptors of one recording. Use as a context manager: leaving it closes them.

    Every event is opened for each task on each CPU, with ``inherit``: a per-CPU event is the only kind that both
    follows children and may write into a ring buffer, where its throttling is announced. Where BPF programs filter,
    events of CPUs sample whatever runs there, and for each task they are opened once more, over all CPUs, to count.

    Counter groups whose samples BPF takes follow their tasks over all CPUs instead: every new thread inherits a copy of
    each event, and ninety events on each of a hundred CPUs would take it longer to start than many threads live. Their
    side-band, too, is that of CPUs.
    """

    def __init__(self, wanted: WantedEvents, cpus: Sequence[int]) -> None:
        """Open everything, stopped, on the CPUs that are up.

        Raises:
            RingRefusedError: there is no memory to lock for the last buffers.
            TdprofError: the kernel refuses an event, with the reason and what to do about it.
        """
        self._wanted = wanted
        self._rates = list(wanted.rates)
        self._turning: list[int] = []  # leaders of what is on by turns
        self._is_on = False
        self._switch_events: list[int] = []
        self._tells_switches = False
        self._varied: list[VariedClock] = []
        self.rings: dict[int, PerfRing] = {}
        self.sampling: list[list[int]] = [[] for _ in wanted.events]
        self._leaders: list[int] = []
        self.side_band: list[int] = []
        self._clocks: list[int] = []
        self._counting: list[list[int]] = [[] for _ in wanted.events] if wanted.counts_besides else []
        self._closing = contextlib.ExitStack()
        self._closing.enter_context(unlimited_descriptors())
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            for cpu in cpus:
                for task in wanted.told_tasks:
                    self._open_side_band(task, cpu)
            self._copy_as_much_as_suits()
            for task in wanted.target.tasks if wanted.has_clock else ():
                self._open_clock(task)
                for row, fds in enumerate(self._counting):
                    if row not in wanted.timed:
                        self._open_counting(row, task, fds)
            for cpu in cpus:
                self._count_cgroups(cpu)
            places = [(task, cpu) for cpu in ([-1] if wanted.follows_tasks else cpus) for task in wanted.sampled]
            for rows in wanted.together:
                self._open_group(rows, places)
            on_failure.pop_all()

    def _open(self, attr: pe.PerfEventAttr, task: int, cpu: int, *, is_cgroup: bool = False) -> int:
        starts = not is_cgroup and self._wanted.starts_at_exec(task)
        [fd] = open_whole_group([inherited(attr)], task, cpu, starts_at_exec=starts, is_cgroup=is_cgroup)
        self._closing.callback(os.close, fd)
        return fd

    def _open_side_band(self, task: int, cpu: int) -> None:
        attr, target = self._wanted.side_band(), self._wanted.target
        try:
            fd = self._open(attr, task, cpu)
        except OSError as error:
            if error.errno == errno.EINVAL:  # build-ids in mmap2 records came with Linux 5.12
                attr.build_id = attr.cgroup = 0  # and those of control groups with 5.7: a look in time tells them, too
                try:
                    fd = self._open(attr, task, cpu)
                except OSError as second:
                    raise open_error("side-band records", second, target.scope) from second
            elif self._wanted.has_ended(error) or self._wanted.has_gone(cpu, error):
                return
            else:
                raise open_error("side-band records", error, target.scope) from error
        self.side_band.append(fd)
        self._give_ring(fd, cpu)
        if self._wanted.has_switches_by_turns:
            telling = self._open(switch_attr(), task, cpu)
            self._switch_events.append(telling)
            pe.set_output(telling, self.rings[cpu].fd)

    def _open_clock(self, task: int) -> None:
        try:
            self._clocks.append(self._open(clock_attr(), task, -1))
        except OSError as error:
            if not self._wanted.has_ended(error):
                raise open_error("a clock", error, self._wanted.target.scope) from error

    def _open_counting(self, row: int, task: int, fds: list[int]) -> None:
        try:
            fds.append(self._open(self._wanted.counting(row), task, -1))
        except OSError as error:
            if not self._wanted.has_ended(error):
                raise self._wanted.refusal(row, self._rates[row], error) from error

    def _count_cgroups(self, cpu: int) -> None:
        """Count, without sampling, what runs in the control groups on a CPU."""
        for row, fds in enumerate(self._counting):
            for cgroup in self._wanted.target.cgroups:
                try:
                    fds.append(self._open(self._wanted.counting(row), cgroup, cpu, is_cgroup=True))
                except OSError as error:
                    if not self._wanted.has_gone(cpu, error):
                        raise self._wanted.refusal(row, self._rates[row], error) from error

    def _give_ring(self, fd: int, cpu: int) -> None:
        if cpu in self.rings:
            pe.set_output(fd, self.rings[cpu].fd)
            return
        try:
            ring = PerfRing(fd, self._wanted.sizes.side_band)
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
        wanted, is_cgroup = self._wanted, self._wanted.is_of_cgroups

        for task, cpu in places:

            def refused(index: int, error: OSError, cpu: int = cpu) -> bool:
                failures[rows[index]] = error
                if not wanted.has_gone(cpu, error):
                    wanted.check_refusal(rows[index], self._rates[rows[index]], error)
                return index > 0  # without its leader there is no group

            attrs = [wanted.sampling(row, self._rates[row]) for row in rows]
            starts = not is_cgroup and wanted.starts_at_exec(task)
            opened = open_group(attrs, task, cpu, refused, starts_at_exec=starts, is_cgroup=is_cgroup)
            for fd in opened:
                if fd is not None:
                    self._closing.callback(os.close, fd)
            for index, (row, fd) in enumerate(zip(rows, opened, strict=True)):
                if fd is None:
                    continue
                try:
                    if wanted.programs is not None:
                        pe.set_bpf(fd, wanted.programs[row])
                except OSError as error:
                    if refused(index, error):
                        continue
                    break
                if not index:
                    (self._turning if row in wanted.by_turns else self._leaders).append(fd)
                self.sampling[row].append(fd)
                if cpu in self.rings:
                    pe.set_output(fd, self.rings[cpu].fd)
        for row in rows:
            if not self.sampling[row]:
                failure = failures.get(row) or next(iter(failures.values()))
                raise wanted.refusal(row, self._rates[row], failure) from failure

    def _copy_as_much_as_suits(self) -> None:
        chains = self._wanted.call_graph
        if chains.copies_in_ring and self.rings:
            self._wanted = replace(self._wanted, call_graph=chains.for_rings(self.ring_bytes))

    @property
    def ring_bytes(self) -> int:
        """Of the smallest ring: less than was wanted where there was no memory to lock for more."""
        return min((ring.data_bytes for ring in self.rings.values()), default=self._wanted.sizes.side_band)

    @property
    def stack_bytes(self) -> int:
        """How much of each user stack is copied into the rings."""
        return self._wanted.call_graph.stack_bytes

    @property
    def timed(self) -> Sequence[int]:
        """Of which events `counts` does not know the count, as the programs that time threads do."""
        return self._wanted.timed

    @property
    def is_told_per_cpu(self) -> bool:
        """Whether the side-band is of CPUs, which may go offline, and tells of whatever runs there."""
        return self._wanted.is_told_per_cpu

    def recorded_cpus(self) -> list[int]:
        """CPUs that events were opened on."""
        return list(self.rings)

    def enabled_ns(self, cpu: int) -> int:
        """How long the newest events of a CPU have been counting, where these are of CPUs."""
        return pe.read_count(self.rings[cpu].fd).enabled_ns

    def open_again(self, cpu: int) -> None:
        """Open and enable everything that is of CPUs on one that came (back) online.

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
            for rows in () if self._wanted.follows_tasks else self._wanted.together:
                self._open_group(rows, [(task, cpu) for task in self._wanted.sampled])
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
        if self._varied:
            self._leave_clocks()
            self._vary_clocks()

    def record_ids(self) -> list[list[int]]:
        """For each event, the ids that stand in its perf records."""
        return [[pe.event_id(fd) for fd in fds] for fds in self.sampling]

    def enable(self) -> None:
        """Start everything at once, but what waits for its task's exec.

        Clocks come last, and go first: the time for which this process may be kept from going on in between would look
        like time for which events had no counter.
        """
        waits = self._wanted.target.starts_at_exec
        if self._wanted.is_told_per_cpu or not waits:
            for fd in self.side_band:
                pe.enable(fd)
        if self._wanted.target.is_per_cpu or not waits:
            for fd in self._leaders:
                pe.enable(fd)
        if not waits:
            for fd in (*itertools.chain(*self._counting), *self._clocks):
                pe.enable(fd)

    @contextlib.contextmanager
    def varied_clocks(self) -> Iterator[None]:
        """Clocks of CPUs have periods that vary meanwhile; who asked for a period has it."""
        self._vary_clocks()
        try:
            yield
        finally:
            self._leave_clocks()

    def _vary_clocks(self) -> None:
        wanted = self._wanted
        for row, fds in enumerate(self.sampling) if wanted.target.is_per_cpu else ():
            frequency_hz = self._rates[row].frequency_hz
            if wanted.events[row].is_clock and frequency_hz and fds:
                self._varied.append(VariedClock(fds, frequency_hz))

    def _leave_clocks(self) -> None:
        while self._varied:
            self._varied.pop().close()

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
        enabled time of an event on a CPU, or does not, while its task runs on another. Before Linux 6.2 the two are of
        two contexts, which are put on and taken off one after the other, microseconds apart.
        """
        clock = sum((pe.read_count(fd).running_ns for fd in self._clocks), start=0)
        for fds in self._counting or self.sampling:
            if not fds:
                yield None
                continue
            total = sum((pe.read_count(fd) for fd in fds), start=pe.Count(0, 0, 0))
            enabled_ns = total.enabled_ns
            if not self._wanted.target.is_system_wide:
                enabled_ns = clock if total.running_ns < (1 - _CLOCKS_DIFFER) * clock else total.running_ns
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

    def look(self, walker: "RingWalker | None" = None) -> list[bytes]:
        """Of each ring the records that came since the last look, with a walker all but samples; they stay there."""
        return [ring.look(walker.side_band) if walker else ring.look() for ring in self.rings.values()]

    @property
    def pending_bytes(self) -> int:
        """What the rings hold."""
        return sum(ring.pending_bytes for ring in self.rings.values())

    def drain(self, spool: SpoolWriter, walker: "RingWalker | None" = None) -> None:
        """Append the records of every ring that were looked at to its file.

        ``walker`` makes call chains of the stacks that they copy.
        """
        if walker is None:
            for cpu, ring in self.rings.items():
                ring.drain(spool.descriptor(RING_FILE.format(cpu=cpu)))
            return
        parts = [(ring, cpu, ring.looked_at()) for cpu, ring in self.rings.items()]
        # Once it is known what is taken: now no sample is there without what had been said before it, in whatever ring.
        walker.forget([walker.side_band(ring.not_drained()) for ring in self.rings.values()])
        for ring, cpu, part in parts:
            for records in walker.walk(part):
                write_all(spool.descriptor(RING_FILE.format(cpu=cpu)), records)
            ring.drop(part)

    def close(self) -> None:
        """Unmap and close everything."""
        self._closing.close()

    def __enter__(self) -> "AttachedEvents":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
