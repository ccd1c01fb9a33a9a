"""Records Arm SPE: opens arm_spe_N on each of its CPUs and drains the Profiling Buffer into files.

AUX areas are as perf_event_open(2) describes them. Raw bytes are kept; decoding is for later.
"""

import contextlib
import ctypes
import errno
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING

from tdprof.capture.spool import AUX_FILE, SPE_RING_FILE, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import SampleType
from tdprof.native.library import load_native
from tdprof.recorder import perf_event as pe
from tdprof.recorder.event_attrs import inherited, switch_attr
from tdprof.recorder.event_group import open_whole_group
from tdprof.recorder.events import Event
from tdprof.recorder.hidden_losses import tell_hidden_loss
from tdprof.recorder.locked_memory import RingRefusedError, RingSizes, more_memory
from tdprof.recorder.permitted import restrict_to_permitted
from tdprof.recorder.refusals import gone_offline, has_gone_offline, open_error
from tdprof.recorder.ring import AuxRing, write_ring
from tdprof.recorder.spe_counters import SamplingCounters
from tdprof.recorder.spe_options import SpeOptions, SpePmu, spe_event
from tdprof.recorder.spe_rate import Budget, choose_period
from tdprof.recorder.targets import SamplingTarget

if TYPE_CHECKING:
    from tdprof.recorder.spe_threads import KeptThreads

_AUX_FLAG_TRUNCATED = 1  # PERF_AUX_FLAG_TRUNCATED, include/uapi/linux/perf_event.h


class SpeEvents:
    """Open SPE events and their buffers. Use as a context manager: leaving it closes them.

    Every task has an event of its own on each CPU, since only such are inherited and may write into a buffer; all of a
    CPU write into one, as one runs at a time. Where these would be too many, each CPU has one.
    """

    def __init__(
        self,
        pmus: Sequence[SpePmu],
        options: SpeOptions,
        target: SamplingTarget,
        cpus: Sequence[int],
        sizes: RingSizes,
        *,
        has_counters: bool = True,
        first_number: int = 0,
        threads: "KeptThreads | None" = None,
    ) -> None:
        """Open everything, stopped.

        Args:
            pmus: the SPE of each kind of core.
            options: what is asked for.
            target: whom to sample.
            cpus: CPUs that are up.
            sizes: of the buffers.
            has_counters: the core PMU's counters may count SPE's sampling: nothing else takes turns on them.
            first_number: of each CPU's files in the spool; `next_number` is free after these.
            threads: of the target, whose records are kept of those of whole CPUs.

        Raises:
            RingRefusedError: there is no memory to lock for the last buffers.
            TdprofError: no SPE here, or the driver refuses, with the reason.
        """
        if not pmus:
            raise TdprofError(
                "this machine offers no SPE: there is no arm_spe_0 PMU",
                hint="tdprof doctor says why it may be missing; record without --spe",
            )
        self._target = SamplingTarget([-1]) if threads else target
        self._threads = threads
        self._looked: dict[int, bytes] = {}  # records of each CPU, not drained yet
        self._sizes = sizes
        self.events: dict[str, Event] = {}
        self._event_of: dict[int, Event] = {}  # each CPU's
        self.rings: dict[int, AuxRing] = {}
        self._fds: dict[int, list[int]] = {}
        self._switch_events: dict[int, list[int]] | None = None
        self._number = defaultdict(lambda: first_number, dict.fromkeys(cpus, first_number))  # of each CPU's files
        self.notes: list[str] = []
        self.period = options.period
        if not self.period:
            self.period, note = choose_period(options.bytes_a_second, target, cpus, is_of_cpus=threads is not None)
            self.notes.append(note)
        self._budget = Budget.starting(options.bytes_a_second) if options.bytes_a_second else None
        self._stopped: set[int] = set()  # as the last drain found
        self._closing = contextlib.ExitStack()
        native = load_native()
        self._clock_pair = getattr(native, "tdprof_clock_pair", None)
        self._has_aux_flags = getattr(native, "tdprof_has_aux_flags", None)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            for pmu in pmus:
                self._open_pmu(pmu, options, [cpu for cpu in pmu.cpus if cpu in cpus])
            self._counters = self._open_counters(options, target, is_possible=has_counters)
            on_failure.pop_all()

    def _open_counters(self, options: SpeOptions, target: SamplingTarget, *, is_possible: bool) -> SamplingCounters:
        """What counts SPE's own sampling."""
        suffix = "u" if any(event.exclude_kernel for event in self.events.values()) else options.modifiers
        if not is_possible:
            self.notes.append(
                "SPE's own sampling is not counted beside Topdown's groups, whose turns would become shorter: "
                "records are weighted by the period, which is too low where samples collided"
            )
        return self._closing.enter_context(SamplingCounters(target, suffix, is_possible=is_possible))

    def _open_pmu(self, pmu: SpePmu, options: SpeOptions, cpus: Sequence[int]) -> None:
        asked = spe_event(pmu, options)
        event = restrict_to_permitted(asked)
        if event != asked:
            self.notes.append(f"SPE in user space only: not allowed to see the kernel ({pmu.name})")
        if self.period < (least := pmu.caps.get("min_interval", 0)):
            self.notes.append(
                f"{pmu.name} samples every {least} operations at most: a period of {self.period} is that as well"
            )
        self.events[pmu.name] = event
        self._event_of.update(dict.fromkeys(pmu.cpus, event))
        for cpu in cpus:
            for task in self._target.tasks:
                self._open_one(event, task, cpu)

    def _open_one(self, event: Event, task: int, cpu: int) -> None:
        attr = event.attr()
        attr.sample_period = self.period
        attr.sample_type = SampleType.IDENTIFIER | SampleType.TID | SampleType.TIME | SampleType.CPU
        attr.sample_id_all = 1
        attr.disabled = 1
        attr.inherit = not self._target.is_system_wide
        attr.enable_on_exec = self._target.starts_at_exec
        attr.use_clockid = 1
        attr.clockid = pe.CLOCK_MONOTONIC
        try:
            fd = pe.perf_event_open(attr, task, cpu)
        except OSError as error:
            if error.errno == errno.ESRCH and len(self._target.tasks) > 1:
                return
            if has_gone_offline(cpu, error):
                if self._target.is_system_wide:
                    return  # opened when it is back
                raise gone_offline(cpu) from error
            if error.errno == errno.EBUSY:
                raise TdprofError(f"another profiler has SPE on CPU {cpu}", hint="stop it, then try again") from error
            raise open_error(event.name, error, self._target.scope) from error
        self._closing.callback(os.close, fd)
        self._fds.setdefault(cpu, []).append(fd)
        if cpu in self.rings:
            pe.set_output(fd, self.rings[cpu].fd)
        else:
            self._give_ring(fd, cpu)
        if self._switch_events is not None:
            self._open_switches(self._switch_events, task, cpu)

    def tell_switches(self) -> None:
        """Let context switches be told in the rings, by events of their own: SPE's would tell none while stopped.

        Raises:
            TdprofError: the kernel refuses them.
        """
        self._switch_events = {}
        for cpu in self.rings:
            for task in self._target.tasks:
                self._open_switches(self._switch_events, task, cpu)

    def _open_switches(self, events: dict[int, list[int]], task: int, cpu: int) -> None:
        attr = inherited(switch_attr(has_ends=True))
        try:
            [fd] = open_whole_group([attr], task, cpu, starts_at_exec=self._target.starts_at_exec)
        except OSError as error:
            if error.errno == errno.ESRCH or has_gone_offline(cpu, error):  # since SPE's was opened
                return
            raise open_error("context switches", error, self._target.scope) from error
        self._closing.callback(os.close, fd)
        events.setdefault(cpu, []).append(fd)
        pe.set_output(fd, self.rings[cpu].fd)

    def _give_ring(self, fd: int, cpu: int) -> None:
        try:
            ring = AuxRing(fd, self._sizes.spe, self._sizes.aux)
        except OSError as error:
            wanted = RingSizes.wanted(has_spe=True)
            raise RingRefusedError(f"cannot map an SPE buffer: {error.strerror}", hint=more_memory(wanted)) from error
        self._closing.callback(ring.close)
        self.rings[cpu] = ring

    def start(self) -> None:
        """Start everything, once the side-band tells of threads; not for events that start at exec."""
        if self._threads:
            self._threads.begin()
        self._counters.enable()
        for fd in self._switch_fds():
            pe.enable(fd)
        self.enable()

    def _switch_fds(self, cpu: int | None = None) -> Iterator[int]:
        """The events that tell switches; of all CPUs, or of one."""
        for number, fds in (self._switch_events or {}).items():
            yield from fds if cpu in (None, number) else ()

    def open_again(self, cpu: int) -> bool:
        """Sample a CPU that came (back) online, while the whole system is recorded; drain it before.

        Events of tasks need nothing: the kernel takes only those of CPUs away.

        Returns:
            Whether SPE records of the CPU now; not if it has none, or is gone again, or there is no memory to lock.
        """
        if not self._target.is_system_wide:
            return cpu in self.rings
        if cpu not in self._event_of:
            return False
        ring, fds = self.rings.pop(cpu, None), self._fds.pop(cpu, [])
        with contextlib.suppress(TdprofError):
            self._open_one(self._event_of[cpu], -1, cpu)
        if cpu not in self.rings:
            self._fds[cpu] = fds
            if ring:
                self.rings[cpu] = ring
            return False
        if ring:
            ring.close()
            self._number[cpu] += 1  # AUX offsets begin anew
        if self._threads is None:
            with contextlib.suppress(TdprofError):  # gone again
                self._counters.count_cpu(cpu)
        for fd in self._switch_fds(cpu):
            pe.enable(fd)
        if self._budget is None or self._budget.still_since_ns is None:
            self.enable(cpu)
        return True

    @property
    def next_number(self) -> int:
        """That no file of these events has."""
        return max(self._number.values()) + 1

    def sampling_counts(self) -> dict[str, list[int]]:
        """[count, enabled ns, running ns] of each event that counts SPE's sampling and that this PMU has."""
        return self._counters.read()

    def enable(self, cpu: int | None = None) -> None:
        """Start sampling, of one CPU or all.

        Harmless for an event that runs; not for one that still waits for its exec.
        """
        for number, fds in self._fds.items():
            for fd in fds if cpu in (None, number) else ():
                pe.enable(fd)

    def disable(self) -> None:
        """Stop; this also makes the driver hand over what it had not announced yet."""
        self._counters.disable()
        self._stand_still()
        for fd in self._switch_fds():  # last: until here it is told whose records these are
            pe.disable(fd)

    def _stand_still(self) -> None:
        for fds in self._fds.values():
            for fd in fds:
                pe.disable(fd)

    @property
    def pending_bytes(self) -> int:
        """What the rings hold."""
        return sum(ring.pending_bytes for ring in self.rings.values())

    def look(self) -> None:
        """Take notice of what there is; what the side-band tells afterwards includes all that this may be of."""
        self._looked = {cpu: ring.look() for cpu, ring in self.rings.items()}

    def hear(self, rings: Sequence[bytes]) -> None:
        """What came through the side-band's rings since the last time."""
        if self._threads:
            self._threads.hear(rings)

    def drain(self, spool: SpoolWriter, *, goes_on: bool) -> None:
        """Append the records and AUX bytes that were looked at to the spool, one file for each CPU.

        What the driver has stopped, since there was no room, samples again if recording goes on: room is there now. It
        is told so twice, since the kernel writes the record first, and stops the event a moment later.
        """
        stopped, written = set(), 0
        write = self._threads.write if self._threads else write_ring
        for cpu, records in self._looked.items():
            ring, number = self.rings[cpu], self._number[cpu]
            ring.drain(spool.descriptor(SPE_RING_FILE.format(cpu=cpu, number=number)))
            written += ring.drain_aux(spool.aux_descriptor(AUX_FILE.format(cpu=cpu, number=number)), write)
            if records and self._says_stopped(records):
                stopped.add(cpu)
        self._looked = {}
        if self._threads:
            self._threads.drained()
        again, self._stopped = stopped | self._stopped, stopped
        if goes_on:
            self._go_on(again, written)

    def _go_on(self, stopped: Set[int], written: int) -> None:
        """Let SPE sample on CPUs where it was stopped, or stand still everywhere, as the budget says."""
        changes = self._budget.spend(written, time.monotonic_ns()) if self._budget else None
        if changes is False:
            self._stand_still()
        elif changes is True:
            self.enable()
        elif self._budget is None or self._budget.still_since_ns is None:
            for cpu in sorted(stopped):
                self.enable(cpu)

    def tell_hidden_losses(self, spool: SpoolWriter) -> None:
        """As `tell_hidden_loss`, of its rings."""
        for cpu, ring in self.rings.items():
            tell_hidden_loss(ring, cpu, SPE_RING_FILE.format(cpu=cpu, number=self._number[cpu]), spool)

    def final_notes(self, started_ns: int) -> list[str]:
        """What the user should know at the end of a recording that began then."""
        now_ns = time.monotonic_ns()
        notes = [self._budget.note(now_ns - started_ns, now_ns) if self._budget else ""]
        notes += [self._threads.note()] if self._threads else []
        if any(ring.may_hide_loss for ring in self.rings.values()):
            notes.append(
                "SPE's ring of records was full in the end: not told is who ran then, and whether SPE had room"
            )
        return [*filter(None, notes)]

    def _says_stopped(self, records: bytes) -> bool:
        """Whether the driver says that it lost samples, which is when it stops; assumed where nothing reads it fast."""
        if self._has_aux_flags is None:
            return True
        return bool(self._has_aux_flags(records, len(records), _AUX_FLAG_TRUNCATED))

    def clock_pair(self) -> tuple[int, int] | None:
        """(counter, CLOCK_MONOTONIC ns) of one moment, by which timestamps become times; None without native code."""
        count, ns = ctypes.c_uint64(), ctypes.c_uint64()
        if self._clock_pair is None or self._clock_pair(pe.CLOCK_MONOTONIC, count, ns):
            return None
        return count.value, ns.value

    def close(self) -> None:
        """Unmap and close everything."""
        self._closing.close()

    def __enter__(self) -> "SpeEvents":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
