"""A recording while it runs: its events counted, its rings drained into the spool, its end noted."""

import contextlib
import errno
import os
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tdprof.capture.manifest import Manifest, write_manifest
from tdprof.capture.spool import SPE_FOLDER, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.duty import duty_notes
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.bpf.sampler import BpfSampler
from tdprof.recorder.cgroups import CgroupNames, ChosenCgroups
from tdprof.recorder.hotplug import CpuFollower
from tdprof.recorder.java_processes import JavaProcesses
from tdprof.recorder.mapping_watch import MappingWatch
from tdprof.recorder.options import TURNS_INTERVAL_NS, USUAL_INTERVAL_NS, Outcome, RecordOptions
from tdprof.recorder.perf_event import Count
from tdprof.recorder.periods import PeriodControl
from tdprof.recorder.ring_walk import RingWalker
from tdprof.recorder.rotation import LeavingSegment, Rotation
from tdprof.recorder.snapshot import SnapshotThread, running_pids
from tdprof.recorder.spe import SpeEvents
from tdprof.recorder.stop_signals import StopSignals
from tdprof.recorder.targets import SamplingTarget
from tdprof.recorder.totals import RunningCounts, with_clock_pair, with_losses, with_totals
from tdprof.recorder.turns import Turns
from tdprof.recorder.unwinding import Unwinding
from tdprof.recorder.workload import Workload

LOOK_INTERVAL_NS = 900_000_000  # how often, at least, CPUs and control groups are looked for, and the manifest written
PAUSE_S = 0.005  # mmap records wake the loop, and may come by the thousand
TICK_MS = 100  # how often a table that fills too fast is noticed
_CURES = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some space", errno.EMFILE: "ulimit -n 1024"}
COPYING_TICK_MS = 20  # the same while stacks are copied, of which 64 of the deepest fill the ring


@dataclass(slots=True)
class Run:
    """The recording while it runs."""

    options: RecordOptions
    target: SamplingTarget
    folder: OwnFolder
    manifest: Manifest
    attached: AttachedEvents
    sampler: BpfSampler | None
    whole_spe: SpeEvents | None  # that does not take turns
    spool: SpoolWriter
    workload: Workload | None
    signals: StopSignals
    control: PeriodControl | None
    unwinding: Unwinding | None
    walker: RingWalker | None
    cgroup_names: CgroupNames
    cgroups: ChosenCgroups | None
    rotation: Rotation | None
    turns: Turns | None
    cpus: CpuFollower | None = None
    is_stopping: bool = False
    snapshot: SnapshotThread | None = None
    mappings: MappingWatch = field(init=False)
    java: JavaProcesses | None = field(init=False)
    first: Manifest = field(init=False)  # as every segment begins
    before: RunningCounts = field(default_factory=RunningCounts)  # up to this segment
    said: frozenset[str] = frozenset()  # in the segments before, of what may have been long ago
    by_programs: dict[str, int] = field(default_factory=dict)  # at the last drain
    leaving: LeavingSegment | None = None

    def __post_init__(self) -> None:
        self.first = self.manifest
        self.java = self._java_in(self.folder)
        if self.unwinding and self.sampler:
            self.unwinding.end_interval = self._end_interval
        self.mappings = MappingWatch(
            self.manifest.followed, needs_replaced=self.sampler is not None, found_java=self._found_java
        )

    @property
    def spe(self) -> SpeEvents | None:
        """SPE's events, while they record."""
        return self.turns.spe if self.turns else self.whole_spe

    def _java_in(self, folder: OwnFolder) -> JavaProcesses | None:
        return JavaProcesses(folder) if self.options.has_interpreted else None

    def _found_java(self, pid: int) -> None:
        if self.java and (self.cgroups is None or pid in self.cgroups.processes()):
            self.java.found(pid)

    def start(self) -> None:
        """Write the first manifest and let the events count.

        Raises:
            TdprofError: the command could not be executed, or the folder could not be written.
        """
        try:
            self._make_spe_folder()
            self._note_clock()
            self.cgroup_names.look(self.spool)
            self.mappings.code.start()
            if self.workload:
                write_manifest(self.folder, self.manifest)
                self._time_threads()
                self.attached.enable()
                self.manifest = replace(self.manifest, start_monotonic_ns=time.monotonic_ns())
                self._watch_cpus()
                self.workload.start()
                if self.unwinding:
                    self.unwinding.add_processes([self.workload.pid])
                return
            if self.unwinding:
                self.unwinding.add_processes(self.cgroups.processes() if self.cgroups else self._processes())
                self.unwinding.await_tables()
            self._time_threads()
            self.attached.enable()
            if self.spe:
                self.spe.start()
            self.manifest = replace(self.manifest, start_monotonic_ns=time.monotonic_ns())
            # Who waits for it to go on with what is to be recorded finds it once events count.
            write_manifest(self.folder, self.manifest)
            self._watch_cpus()
            self.snapshot = SnapshotThread(self._processes(), self.spool, self._found_java)
        except OSError as error:
            hint = _CURES.get(error.errno or 0, "name another folder with -o")
            raise TdprofError(f"cannot write into {self.folder.shown}: {error.strerror}", hint=hint) from error

    def _make_spe_folder(self) -> None:
        if self.manifest.spe:
            self.folder.subfolder(SPE_FOLDER, make=True).close()

    def _time_threads(self) -> None:
        if self.sampler and self.sampler.off_cpu:
            self.sampler.off_cpu.begin()

    def _processes(self) -> Sequence[int]:
        return running_pids() if self.options.is_system_wide else self.target.processes

    def _processes_now(self) -> Sequence[int]:
        """Processes whose threads may have waited since before the recording; a command's have all begun in it."""
        return () if self.workload else self.cgroups.processes() if self.cgroups else self._processes()

    def _watch_cpus(self) -> None:
        if self.target.is_per_cpu:
            open_spe = self._open_spe_again if self.manifest.spe else None
            self.cpus = CpuFollower(self.attached, self.manifest.start_monotonic_ns, open_spe=open_spe)

    def _open_spe_again(self, cpu: int) -> bool:
        return self.spe.open_again(cpu) if self.spe else True  # its next turn has all CPUs

    def again(self, workload: Workload, attached: AttachedEvents, control: PeriodControl | None) -> Outcome:
        """Another run of the command, with other events, into the same capture."""
        self.workload, self.attached, self.control, self.is_stopping = workload, attached, control, False
        ids = [new or old for new, old in zip(attached.record_ids(), self.manifest.record_ids, strict=True)]
        self.manifest = replace(self.manifest, record_ids=ids)
        self.mappings.code.start()
        workload.start()
        if self.unwinding:
            self.unwinding.add_processes([workload.pid])
        return self.until_stopped()

    def until_stopped(self) -> Outcome:
        """Drain until something ends the recording; then stop the events, drain the rest and read the totals."""
        failure: TdprofError | None = None
        try:
            self._loop()
            if self.turns:
                self.turns.stop(self.spool)
        except OSError as error:
            failure = self._write_failure(error)
        except TdprofError as error:
            failure = error
        if self.cpus:
            self.cpus.look()
        self.is_stopping = True
        ran_to_end = self.workload is not None and self.workload.poll() is not None
        self._note_clock()
        self.attached.disable()
        if self.spe:
            self.spe.disable()
        if self.workload and self.signals.received is not None:
            self.workload.terminate()
        totals = list(self.attached.counts())
        totals += [None] * (len(self.manifest.events) - len(totals))
        if self.whole_spe and self.manifest.spe:
            sampling = self.whole_spe.sampling_counts()
            self.manifest = replace(self.manifest, spe=replace(self.manifest.spe, sampling=sampling))
        if failure is None:
            try:
                if self.sampler and self.sampler.off_cpu:
                    self.sampler.off_cpu.end(self.spool, self._processes_now())
                # Twice, because each drain empties one of the two tables.
                self._drain()
                self._drain()
                self.cgroup_names.look(self.spool)
                if self.snapshot:
                    self.manifest = replace(self.manifest, notes=[*self.manifest.notes, *self.snapshot.finish()])
            except OSError as error:
                failure = self._write_failure(error)
        exit_status = self.workload.wait() if self.workload else None
        self.manifest = replace(
            self._with_totals(self._counted(totals)),
            # Of several runs, that of the first that went wrong.
            exit_status=self.manifest.exit_status or exit_status,
            ran_to_end=ran_to_end and not self.before.events,
        )
        self.mappings.code.finish()
        of_java = self.java.finish() if self.java else []
        self.manifest = replace(
            self.manifest, notes=[*self.manifest.notes, *of_java, *([failure.message] if failure else [])]
        )
        try:
            self.mappings.code.save_maps(self.folder, self.mappings.held.follows)
            write_manifest(self.folder, self.manifest)
            if self.rotation and self.leaving:
                self._leave(self.rotation)
        except OSError as error:
            failure = failure or self._write_failure(error)
        return Outcome(self.manifest, failure, self.mappings.held)

    def _counted(self, events: Sequence[Count | None]) -> RunningCounts:
        """Up to now; of the events what was read before."""
        sampler = self.sampler
        ending = sampler.ending_weights() if sampler else []
        return RunningCounts(
            events,
            [*ending, *[0] * (len(events) - len(ending))],
            self.attached.lost_samples(),
            self.by_programs,
            sampler.drained if sampler else 0,
        )

    def _with_totals(self, now: RunningCounts) -> Manifest:
        """The manifest with what the events counted in this segment, and with what is known in the end."""
        notes = [
            *(self.unwinding.notes() if self.unwinding else ()),
            *(self.sampler.late_notes(self.manifest.notes) if self.sampler else ()),
            *(self.walker.notes() if self.walker else ()),
            *(self.spe.final_notes(self.manifest.start_monotonic_ns) if self.spe else ()),
            *(self.cpus.notes() if self.cpus else []),
        ]
        manifest = with_totals(self.manifest, now, self.before)
        notes = [note for note in notes if note not in self.said]
        of_turns = [*self.turns.notes, *duty_notes(manifest.duty, manifest.duration_ns)] if self.turns else []
        return replace(manifest, notes=[*manifest.notes, *notes, *of_turns])

    def _rotate(self, poller: select.poll) -> None:
        """Right after a drain: prepare the next segment if it is time, and begin it once that is done."""
        if self.rotation is None or self.sampler is None:
            return
        if self.leaving and not self.leaving.is_alive():
            self._leave(self.rotation)
        if self.rotation.is_ready:
            with self.turns.between_captures(self.spool, poller) if self.turns else contextlib.nullcontext():
                self._begin_segment(self.rotation, self.sampler)
        elif not self.leaving and self.rotation.is_due((time.monotonic_ns() - self.manifest.start_monotonic_ns) / 1e9):
            self.cgroup_names = self.cgroup_names.anew()
            running = self.cgroups.processes() if self.cgroups else self._processes()
            self.rotation.prepare(self.spool, self.sampler, self.cgroup_names, running, list(self.attached.rings))

    def _begin_segment(self, rotation: Rotation, sampler: BpfSampler) -> None:
        """Right after a drain."""
        now, losses = self._counted(list(self.attached.counts())), self.manifest.losses
        cut_ns = self.manifest.end_monotonic_ns
        self._note_clock()
        # The programs go on counting: of the table at rest counts what it held, and what had no room.
        samples = sampler.drained - self.before.drained + losses.samples_map_full + losses.samples_outside_namespace
        self.manifest = replace(self.manifest, samples_counted=samples)
        ended = self._with_totals(now)
        if self.snapshot:
            ended = replace(ended, notes=[*ended.notes, *self.snapshot.finish(0)])
        self.mappings.code.save_maps(self.folder, self.mappings.held.follows)
        write_manifest(self.folder, ended)
        self.leaving = LeavingSegment(self.folder, ended, self.java)
        output, self.spool, self.snapshot = rotation.switch(self.spool)
        self.folder, self.java = output.folder, self._java_in(output.folder)
        self._make_spe_folder()
        if self.turns:
            self.turns.begin_capture(cut_ns)
        for pid in self.leaving.java_processes():
            self._found_java(pid)
        before = self.before.by_programs.get("samples", 0)
        self.before = replace(now, by_programs=now.by_programs | {"samples": before + samples})
        self.said = self.said.union(ended.notes).difference(self.first.notes)
        self.manifest = replace(
            self.first,
            record_ids=self.manifest.record_ids,
            start_realtime_ns=time.time_ns() - (time.monotonic_ns() - cut_ns),
            start_monotonic_ns=cut_ns,
            end_monotonic_ns=cut_ns,
        )
        write_manifest(self.folder, self.manifest)

    def _leave(self, rotation: Rotation) -> None:
        """All is known of the segment before this one."""
        assert self.leaving
        leaving, self.leaving = self.leaving, None
        rotation.ended(leaving.finish(), self.mappings.held)

    def _loop(self) -> None:
        deadline = None if self.options.duration_s is None else time.monotonic() + self.options.duration_s
        interval_ns = self.options.interval_ns
        next_drain = time.monotonic_ns() + interval_ns
        next_look = time.monotonic_ns() + LOOK_INTERVAL_NS
        next_check = None if self.turns or not self.control else time.monotonic_ns() + self.control.next_check_ns()
        with self._poller() as (poller, ending):
            rings = {ring.fd for ring in self.attached.rings.values()}
            while self.signals.received is None and ending and not (self.cgroups and self.cgroups.are_gone()):
                timeout_ms = 0.0 if self.mappings.replaced else float(TICK_MS)
                if deadline is not None:
                    left_ms = (deadline - time.monotonic()) * 1000
                    if left_ms <= 0:
                        return
                    timeout_ms = min(timeout_ms, left_ms)
                if self.turns:
                    if self.turns.switch_due(self.spool, poller) and self.control:
                        next_check = time.monotonic_ns() + self.control.next_check_ns()
                    has_topdown = self.turns.has_topdown
                    next_check = next_check if has_topdown else None
                    interval_ns = min(self.options.interval_ns, TURNS_INTERVAL_NS if has_topdown else USUAL_INTERVAL_NS)
                    timeout_ms = min(timeout_ms, self.turns.wait_ns() / 1e6)
                if self.control and next_check is not None:
                    if time.monotonic_ns() >= next_check:
                        self.attached.set_periods(self.control.correct(list(self.attached.counts())))
                        next_check = time.monotonic_ns() + self.control.next_check_ns()
                    timeout_ms = min(timeout_ms, (next_check - time.monotonic_ns()) / 1e6)
                if self.sampler and self.sampler.is_copying:
                    timeout_ms = min(timeout_ms, COPYING_TICK_MS)
                timeout_ms = max(0.0, min(timeout_ms, (next_drain - time.monotonic_ns()) / 1e6))
                ready = set()
                for fd, mask in poller.poll(timeout_ms):
                    ready.add(fd)
                    # A ring hangs up when its last task has ended, and would wake us for ever.
                    if fd in ending or mask & (select.POLLHUP | select.POLLERR):
                        poller.unregister(fd)
                ending -= ready
                # First: what was mapped may be gone in a moment.
                self.mappings.see(self.attached.look())
                replaced = self.mappings.take_replaced()
                if self.unwinding:
                    if self.unwinding.fd in ready:
                        self.unwinding.answer()
                    self.unwinding.add_processes(replaced, are_replaced=True)
                    self.unwinding.tick()
                is_due = time.monotonic_ns() >= next_look
                is_new = bool(replaced) and not self.unwinding  # else it has ended the interval where need be
                is_new = self.mappings.code.take_replaced() or is_new
                if is_new or time.monotonic_ns() >= next_drain or (self.sampler and self.sampler.is_filling()):
                    next_drain = max(next_drain, time.monotonic_ns()) + interval_ns
                    self._drain()
                    if is_due or interval_ns >= LOOK_INTERVAL_NS or self.options.segments:
                        self._look(poller)
                        self._rotate(poller)
                        write_manifest(self.folder, self.manifest)
                        next_look = time.monotonic_ns() + LOOK_INTERVAL_NS
                elif is_due:
                    self._drain_rings()
                    self._look(poller)
                    write_manifest(self.folder, self.manifest)
                    next_look = time.monotonic_ns() + LOOK_INTERVAL_NS
                elif ready or self.spe:  # SPE that ran out of room stands still until it is drained
                    self._drain_rings()
                if ready and ready <= rings:
                    time.sleep(PAUSE_S)

    def _look(self, poller: select.poll) -> None:
        """Once the rings are drained, about once a second: control groups that are new, CPUs that are back."""
        if self.cgroup_names.misses_new:
            self.cgroup_names.look(self.spool)
        self._follow_cpus(poller)

    @contextlib.contextmanager
    def _poller(self) -> Iterator[tuple[select.poll, set[int]]]:
        """What can wake the loop, and the descriptors whose readiness ends it once all have been ready."""
        poller = select.poll()
        poller.register(self.signals, select.POLLIN)
        poller.register(self.mappings.code.fd, select.POLLIN)
        if self.unwinding:
            poller.register(self.unwinding.fd, select.POLLIN)
        for ring in self.attached.rings.values():
            poller.register(ring.fd, select.POLLIN)
        for aux_ring in self.spe.rings.values() if self.spe else ():
            poller.register(aux_ring.fd, select.POLLIN)
        with contextlib.ExitStack() as stack:
            ending = set()
            if self.workload:
                ending.add(self.workload.pidfd)
            for pid in self.options.pids:
                with contextlib.suppress(ProcessLookupError):
                    fd = os.pidfd_open(pid)
                    stack.callback(os.close, fd)
                    ending.add(fd)
            for fd in ending:
                poller.register(fd, select.POLLIN)
            if self.options.is_system_wide:
                ending.add(-1)  # nothing but a signal or the duration ends it
            yield poller, ending

    def _drain(self) -> None:
        """Move what the kernel holds into the spool and note how far the capture reaches."""
        self._drain_rings()
        self._note_clock()
        end_ns = time.monotonic_ns()
        if self.sampler:
            end_ns = self.sampler.drain(self.spool)
            self.by_programs = self.sampler.counters()
            before = self.before.by_programs
            counters = {name: count - before.get(name, 0) for name, count in self.by_programs.items()}
            self.manifest = with_losses(self.manifest, counters)
        self.manifest = replace(self.manifest, end_monotonic_ns=end_ns)

    def _end_interval(self, pid: int) -> None:
        """Addresses in a process mean something else from now on."""
        self._drain()
        self.spool.append_replaced(pid, self.manifest.end_monotonic_ns)

    def _drain_rings(self) -> None:
        self.mappings.see(self.attached.look())
        self.attached.drain(self.spool, self.walker)
        if self.unwinding and self.walker and self.walker.has_questions:
            self.unwinding.answer()  # now: who is asked for may end in a moment
        if self.spe:
            self.spe.drain(self.spool, goes_on=not self.is_stopping)

    def _follow_cpus(self, poller: select.poll) -> None:
        """Once all is drained: open events on CPUs that came (back) online, and let their rings wake the loop, too."""
        new = self.cpus.follow(time.monotonic_ns()) if self.cpus else []
        if new:
            self.manifest = replace(self.manifest, record_ids=self.attached.record_ids())
        for cpu in new:
            poller.register(self.attached.rings[cpu].fd, select.POLLIN)
            if self.spe and cpu in self.spe.rings:
                poller.register(self.spe.rings[cpu].fd, select.POLLIN)

    def _note_clock(self) -> None:
        self.manifest = with_clock_pair(self.manifest, self.spe.clock_pair() if self.spe else None)
        if self.turns:
            self.manifest = self.turns.told(self.manifest)

    def _write_failure(self, error: OSError) -> TdprofError:
        cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror)
        cure = _CURES.get(error.errno or 0, "")
        self.spool.release_reserve()
        return TdprofError(
            f"recording stopped early: cannot write into {self.folder.shown}: {cause}",
            hint=f"{cure}; " * bool(cure) + f"tdprof report {self.folder.shown} shows what was kept",
        )
