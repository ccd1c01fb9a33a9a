"""A recording while it runs: its events counted, its rings drained into the spool, its end noted."""

import contextlib
import time
from collections.abc import Collection, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from tdprof.capture.manifest import Manifest, write_manifest
from tdprof.capture.spool import SPE_FOLDER, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.heap import give_back_free_pages
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.readable import is_readable
from tdprof.model.duty import duty_notes
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.bpf.sampler import BpfSampler
from tdprof.recorder.cgroups import CgroupNames, ChosenCgroups
from tdprof.recorder.hidden_losses import tell_hidden_losses
from tdprof.recorder.hotplug import CpuFollower
from tdprof.recorder.mapping_watch import MappingWatch
from tdprof.recorder.options import TURNS_INTERVAL_NS, USUAL_INTERVAL_NS, Outcome, RecordOptions
from tdprof.recorder.pace import LOOK_INTERVAL_NS, Pace
from tdprof.recorder.perf_event import Count
from tdprof.recorder.periods import PeriodControl
from tdprof.recorder.snapshot import SnapshotThread, running_pids
from tdprof.recorder.stop_signals import StopSignals
from tdprof.recorder.targets import SamplingTarget, processes_of
from tdprof.recorder.totals import (
    RunningCounts,
    SegmentCounts,
    counted_between,
    with_clock_pair,
    with_long_interval,
    with_start_now,
)
from tdprof.recorder.unwinding import Unwinding
from tdprof.recorder.urgency import python_threads, soon_switched, urgent
from tdprof.recorder.wakeups import Wakeups, open_wakeups
from tdprof.recorder.workload import Workload
from tdprof.recorder.write_errors import cannot_begin, stopped_early
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.recorder.java_processes import JavaProcesses
    from tdprof.recorder.ring_walk import RingWalker
    from tdprof.recorder.rotation import Rotation
    from tdprof.recorder.spe import SpeEvents
    from tdprof.recorder.turns import Turns

PAUSE_S = 0.005  # mmap records wake the loop, and may come by the thousand
TICK_MS = 100  # how often a table that fills too fast is noticed
MEANWHILE_GRACE_S = 2.0  # for a command whose purpose is over
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
    whole_spe: "SpeEvents | None"  # that does not take turns
    spool: SpoolWriter
    workload: Workload | None
    meanwhile: Workload | None  # nothing of it is recorded, but for how long
    signals: StopSignals
    control: PeriodControl | None
    unwinding: Unwinding | None
    walker: "RingWalker | None"
    cgroup_names: CgroupNames
    cgroups: ChosenCgroups | None
    rotation: "Rotation | None"
    turns: "Turns | None"
    cpus: CpuFollower | None = None
    stopped_ns: int | None = None  # when the events were stopped; CLOCK_MONOTONIC
    snapshot: SnapshotThread | None = None
    mappings: MappingWatch = field(init=False)
    java: "JavaProcesses | None" = None  # once one is found
    segment: SegmentCounts = field(init=False)
    by_programs: dict[str, int] = field(default_factory=dict)  # at the last drain
    before_drain: list[Count | None] | None = None  # counted before the last one; None: no segment can end there
    # When drains ended since what was replaced was last taken, and since the time before; each with the one before.
    drain_ends_ns: list[int] = field(default_factory=list)
    suspect_ends_ns: list[int] = field(default_factory=list)
    urgency: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        self.segment = SegmentCounts(self.manifest)
        if self.unwinding and self.sampler:
            self.unwinding.end_interval = self._end_interval
        self.mappings = MappingWatch(
            self.target.processes, needs_replaced=self.sampler is not None, found_java=self._found_java
        )

    @property
    def spe(self) -> "SpeEvents | None":
        """SPE's events, while they record."""
        return self.turns.spe if self.turns else self.whole_spe

    def _found_java(self, pid: int) -> None:
        # 0: the pid namespace of the recorder does not have it.
        if not self.options.has_interpreted or not pid:
            return
        if self.cgroups is not None and pid not in self.cgroups.processes():
            return
        if self.java is None:
            from tdprof.recorder.java_processes import JavaProcesses  # few recordings meet any

            self.java = JavaProcesses(self.folder)
        self.java.found(pid)

    def prepare(self) -> None:
        """Do what can be done before events count: the kernel may still be looking at the programs that walk stacks.

        Raises:
            TdprofError: the folder could not be written.
        """
        try:
            self._make_spe_folder()
            self._note_clock()
            self.cgroup_names.look(self.spool)
        except OSError as error:
            raise cannot_begin(self.folder, error) from error
        self.mappings.code.start()
        if self.unwinding and not self.workload:
            self.unwinding.prepare_processes(self._recorded_processes())

    def start(self) -> None:
        """Write the first manifest and let the events count.

        Raises:
            TdprofError: the command could not be executed, or the folder could not be written.
        """
        try:
            if self.workload:
                write_manifest(self.folder, self.manifest)
                self._time_threads()
                self._hurry()
                self.attached.enable()
                self.manifest = with_start_now(self.manifest)
                self._watch_cpus()
                self.workload.start()
                if self.unwinding:
                    self.unwinding.add_processes([self.workload.pid])
                return
            self._time_threads()
            self._hurry()
            self.attached.enable()
            self.manifest = with_start_now(self.manifest)  # what follows takes long where there are many processes
            self._follow_later()
            if self.sampler and self.sampler.off_cpu:
                self.sampler.off_cpu.note_standing(self._recorded_processes(), self._recorded_threads())
            if self.spe:
                self.spe.start()
            # Who waits for it to go on with what is to be recorded finds it once events count.
            write_manifest(self.folder, self.manifest)
            self._watch_cpus()
            self.snapshot = SnapshotThread(
                self._processes(), self.spool, self._found_java, self.mappings.held.hold_mapped_before
            )
            if self.meanwhile:
                self.meanwhile.start()
        except OSError as error:
            raise cannot_begin(self.folder, error) from error

    def _hurry(self) -> None:
        """Run before what is recorded until it is sampled no more: what it maps and executes is to be known soon."""
        self.urgency.enter_context(soon_switched())
        self.urgency.enter_context(urgent(python_threads()))

    def _make_spe_folder(self) -> None:
        if self.manifest.spe:
            self.folder.subfolder(SPE_FOLDER, make=True).close()

    def _time_threads(self) -> None:
        if self.sampler and self.sampler.off_cpu:
            self.sampler.off_cpu.begin()
            if self.workload:
                self.sampler.off_cpu.note_standing([], None)  # all threads of a command begin later

    def _processes(self) -> Sequence[int]:
        return running_pids() if self.options.is_system_wide else self.target.processes

    def _recorded_processes(self) -> Sequence[int]:
        return self.cgroups.processes() if self.cgroups else self._processes()

    def _recorded_threads(self) -> Collection[int] | None:
        """None: all threads of the recorded processes."""
        return self.cgroups.threads() if self.cgroups else None

    def _followed_processes(self) -> Sequence[int]:
        """The recorded ones, and all that they have started meanwhile."""
        return self.cgroups.processes() if self.cgroups else [*filter(self.mappings.held.follows, running_pids())]

    def _follow_later(self) -> None:
        """Know, too, what was started since the events were opened: no record tells of it, as they were off."""
        later = sorted(set(processes_of(self.options.pids)) - set(self.target.processes)) if self.options.pids else []
        if not later:
            return
        self.target = replace(self.target, processes=[*self.target.processes, *later])
        for pid in later:
            self.mappings.held.follow(pid)
        if self.manifest.followed:
            self.manifest = replace(self.manifest, followed=list(self.target.processes))

    def _watch_cpus(self) -> None:
        if self.attached.is_told_per_cpu:
            open_spe = self._open_spe_again if self.manifest.spe else None
            self.cpus = CpuFollower(self.attached, self.manifest.start_monotonic_ns, open_spe=open_spe)

    def _open_spe_again(self, cpu: int) -> bool:
        return self.spe.open_again(cpu) if self.spe else True  # its next turn has all CPUs

    def again(self, workload: Workload, attached: AttachedEvents, control: PeriodControl | None) -> Outcome:
        """Another run of the command, with other events, into the same capture."""
        self.workload, self.attached, self.control, self.stopped_ns = workload, attached, control, None
        ids = [new or old for new, old in zip(attached.record_ids(), self.manifest.record_ids, strict=True)]
        followed = [*self.manifest.followed, workload.pid] if attached.is_told_per_cpu else []
        self.manifest = replace(self.manifest, record_ids=ids, followed=followed)
        self.mappings.code.start()
        self.mappings.held.follow(workload.pid)
        self._hurry()
        attached.enable()
        self._watch_cpus()
        workload.start()
        if self.unwinding:
            self.unwinding.add_processes([workload.pid])
        return self.until_stopped()

    def until_stopped(self) -> Outcome:
        """Drain until something ends the recording; then stop the events, drain the rest and read the totals."""
        failure: TdprofError | None = None
        try:
            with self.urgency, self.attached.varied_clocks():
                self._loop()
            if self.turns:
                self.turns.stop(self.spool)
        except OSError as error:
            failure = self._write_failure(error)
        except TdprofError as error:
            failure = error
        if self.cpus:
            self.cpus.look()
        ran_to_end = self.workload is not None and self.workload.poll() is not None
        self._note_clock()
        stopped_ns = self.sampler.off_cpu.stop() if self.sampler and self.sampler.off_cpu else None
        if self.spe:
            self.spe.disable()  # while switches are still told: without them nobody knows whose its records are
        self.attached.disable()
        self.stopped_ns = stopped_ns or time.monotonic_ns()
        if failure:  # of what has counted since the last drain there are no samples
            self.manifest = replace(self.manifest, end_monotonic_ns=self.stopped_ns)
        if self.workload and self.signals.received is not None:
            self.workload.terminate()
        totals = list(self.attached.counts())
        totals += [None] * (len(self.manifest.events) - len(totals))
        if self.whole_spe and self.manifest.spe:
            sampling = self.whole_spe.sampling_counts()
            self.manifest = replace(self.manifest, spe=replace(self.manifest.spe, sampling=sampling))
        if failure is None:
            try:
                self._drain_rest()
                totals = self._with_run_time(totals)
            except OSError as error:
                failure = self._write_failure(error)
            except TdprofError as error:
                failure = error
        exit_status = self._await_command() if self.workload else self._end_meanwhile(has_failed=failure is not None)
        self.manifest = replace(
            self._with_totals(self._counted(totals)),
            # Of several runs, that of the first that went wrong.
            exit_status=self.manifest.exit_status or exit_status,
            ran_to_end=ran_to_end and self.segment.is_first,
        )
        self.mappings.code.finish()
        of_java = self.java.finish() if self.java else []
        self.manifest = replace(
            self.manifest, notes=[*self.manifest.notes, *of_java, *([failure.message] if failure else [])]
        )
        try:
            left_out = self.mappings.code.save_maps(self.folder, self.mappings.held.follows)
            self.manifest = replace(self.manifest, notes=[*self.manifest.notes, *left_out])
            write_manifest(self.folder, self.manifest)
            if self.rotation:
                self.rotation.hand_over(self.mappings.held, waits=True)
        except OSError as error:
            failure = failure or self._write_failure(error)
        return Outcome(self.manifest, failure, self.mappings.held)

    def _drain_rest(self) -> None:
        """What is there once nothing counts any more. Raises OSError: the spool cannot be written."""
        if self.sampler and self.sampler.off_cpu:
            # Whose threads may have waited since before the recording; a command's have all begun in it.
            waiting = () if self.workload else self._recorded_processes()
            self.sampler.off_cpu.end(self.spool, waiting, self._recorded_threads())
        # Twice, because each drain empties one of the two tables.
        self._drain()
        self._drain()
        if self.unwinding:
            # Told of only now: what was sampled since may have been walked by what was there before.
            for pid in self.unwinding.led_through(self.mappings.take_replaced()):
                self._end_interval(pid, is_late=True)
        self.cgroup_names.look(self.spool)
        notes = tell_hidden_losses(self.attached.rings, self.spool)
        if self.whole_spe:
            self.whole_spe.tell_hidden_losses(self.spool)
        notes += self.snapshot.finish() if self.snapshot else []
        self.manifest = replace(self.manifest, notes=[*self.manifest.notes, *notes])

    def _await_command(self) -> int:
        """The status of the command, which may go on longer than what was to be recorded of it."""
        assert self.workload
        if self.workload.poll() is None and self.signals.received is None:
            self.options.on_waiting()
            while self.signals.received is None and not is_readable(self.workload.pidfd, TICK_MS / 1e3):
                pass
            if self.signals.received is not None:
                self.workload.terminate()
        return self.workload.wait()

    def _end_meanwhile(self, *, has_failed: bool) -> int | None:
        """The status of the command that ran meanwhile; None if it is ended here, as it says for how long no more."""
        command = self.meanwhile
        if command is None:
            return None
        goes_on = self.options.duration_s is not None and not has_failed
        while goes_on and self.signals.received is None and not is_readable(command.pidfd, TICK_MS / 1e3):
            pass
        if command.poll() is not None:
            return command.exit_status
        command.terminate()
        is_readable(command.pidfd, MEANWHILE_GRACE_S)  # or it is killed
        return None

    def _with_run_time(self, totals: Sequence[Count | None]) -> list[Count | None]:
        """What the events counted, with those that only the programs know that time threads; of all of these."""
        off_cpu, timed = self.sampler.off_cpu if self.sampler else None, self.attached.timed
        if not off_cpu or not timed or self.by_programs["threads_not_timed"]:
            return [*totals]
        ran_ns = off_cpu.run_time_ns()
        return [Count(ran_ns, ran_ns, ran_ns) if row in timed else count for row, count in enumerate(totals)]

    def _counted(self, events: Sequence[Count | None], at_cut: Sequence[int] = ()) -> RunningCounts:
        """Up to now; of the events what was read before."""
        sampler, timed = self.sampler, self.attached.timed
        # Threads are timed until they are gone.
        weights = sampler.ending_weights() if sampler else []
        ending = [0 if row in timed else weight for row, weight in enumerate(weights)]
        return RunningCounts(
            events,
            [*ending, *[0] * (len(events) - len(ending))],
            self.attached.lost_samples(),
            self.by_programs,
            sampler.drained if sampler else 0,
            at_cut,
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
        manifest = self.segment.with_totals(self.manifest, now, notes)
        of_turns = [*self.turns.notes, *duty_notes(manifest.duty, manifest.duration_ns)] if self.turns else []
        return replace(manifest, notes=[*manifest.notes, *of_turns, *self.mappings.held.notes()])

    def _rotate(self, wakeups: Wakeups) -> None:
        """Right after a drain: prepare the next segment if it is time, and begin it once that is done."""
        if self.rotation is None or self.sampler is None:
            return
        self.rotation.hand_over(self.mappings.held)
        if self.before_drain is not None:
            with self.turns.between_captures(self.spool, wakeups.poller) if self.turns else contextlib.nullcontext():
                self._begin_segment(self.rotation, self.before_drain)
        elif self.rotation.is_due((time.monotonic_ns() - self.manifest.start_monotonic_ns) / 1e9):
            self.cgroup_names = self.cgroup_names.anew()
            running, rings = self._followed_processes(), list(self.attached.rings)
            self.rotation.prepare(self.spool, self.sampler, self.cgroup_names, running, rings)

    def _begin_segment(self, rotation: "Rotation", counts: list[Count | None]) -> None:
        """Right after a drain, before which the events were at ``counts``."""
        rotation.make_room_to_switch(self.spool, self.mappings.code.maps_bytes)
        at_cut = counted_between(counts, list(self.attached.counts()))
        now = self._counted(counts, at_cut)
        cut_ns = self.manifest.end_monotonic_ns
        self._note_clock()
        self.manifest = self.segment.cut(self.manifest, now)
        ended = self._with_totals(now)
        if self.snapshot:
            ended = replace(ended, notes=[*ended.notes, *self.snapshot.finish(0)])
        left_out = self.mappings.code.save_maps(self.folder, self.mappings.held.follows)
        ended = replace(ended, notes=[*ended.notes, *left_out])
        write_manifest(self.folder, ended)
        self._forget_ended()
        output, self.spool, self.snapshot = rotation.switch(self.spool)
        self.mappings.held.begin_segment(self.snapshot.mapped())
        java_processes = rotation.leave(self.folder, ended, self.java)
        self.folder, self.java = output.folder, None
        self._make_spe_folder()
        if self.turns:
            self.turns.begin_capture(cut_ns)
        for pid in java_processes:
            self._found_java(pid)
        self.manifest = self.segment.begin_next(ended, now)
        write_manifest(self.folder, self.manifest)

    def _forget_ended(self) -> None:
        """What is known of processes that have ended, else it would add up for as long as the recording goes on."""
        running = frozenset(running_pids())
        self.mappings.forget_all_but(running)
        if self.unwinding:
            self.unwinding.forget_all_but(running)
        give_back_free_pages()

    def _loop(self) -> None:
        pace = Pace(self.options.duration_s, self.options.interval_ns)
        if self.control and not self.turns:
            pace.check_in(self.control.next_check_ns())
        with self._open_wakeups() as wakeups:
            while not self._is_over(pace, wakeups):
                if self.turns:
                    self._take_turns(self.turns, pace, wakeups)
                if self.control and pace.is_check_due():
                    self.attached.set_periods(self.control.correct(list(self.attached.counts())))
                    pace.check_in(self.control.next_check_ns())
                ready = wakeups.wait(pace.wait_ms(self._patience_ms()))
                ends_interval = self._see(ready)
                self._write(pace, wakeups, ends_interval=ends_interval, is_woken=bool(ready))
                if ready and ready <= {ring.fd for ring in self.attached.rings.values()}:
                    time.sleep(PAUSE_S)

    def _is_over(self, pace: Pace, wakeups: Wakeups) -> bool:
        has_ended = not wakeups.ending or (self.cgroups is not None and self.cgroups.are_gone())
        has_ended = has_ended or (self.meanwhile is not None and self.meanwhile.poll() is not None)
        return self.signals.received is not None or has_ended or pace.is_over()

    def _take_turns(self, turns: "Turns", pace: Pace, wakeups: Wakeups) -> None:
        begins = turns.switch_due(self.spool, wakeups.poller)
        if not turns.has_topdown:
            pace.check_no_more()
        elif begins and self.control:
            pace.check_in(self.control.next_check_ns())
        most_ns = TURNS_INTERVAL_NS if turns.has_topdown else USUAL_INTERVAL_NS
        pace.interval_ns = min(self.options.interval_ns, most_ns)

    def _patience_ms(self) -> float:
        """How long what is no matter of the clock can go unnoticed."""
        if self.mappings.has_replaced:
            return 0.0
        most_ms = COPYING_TICK_MS if self.sampler and self.sampler.is_copying else TICK_MS
        return min(most_ms, self.turns.wait_ns() / 1e6) if self.turns else most_ms

    def _see(self, ready: set[int]) -> bool:
        """Answer what the programs ask for; whether the interval is to end, since addresses change their meaning."""
        self._hear()  # first: what was mapped may be gone in a moment
        replaced = self.mappings.take_replaced()
        # What is told of may have begun within these: at most right before the drain before the last time.
        self.suspect_ends_ns, self.drain_ends_ns = self.drain_ends_ns, self.drain_ends_ns[-1:]
        if self.unwinding:
            if self.unwinding.fd in ready:
                self.unwinding.answer()
            self.unwinding.see_replaced(replaced)  # ends the interval where need be
            self.unwinding.tick()
        return self.mappings.code.take_replaced() or bool(replaced and not self.unwinding)

    def _write(self, pace: Pace, wakeups: Wakeups, *, ends_interval: bool, is_woken: bool) -> None:
        """Drain what is due, and look about when it is time."""
        looks = pace.is_look_due()
        drains = ends_interval or pace.is_drain_due() or (self.sampler is not None and self.sampler.is_filling())
        if drains:
            pace.drained()
            self._drain()
            looks = looks or pace.interval_ns >= LOOK_INTERVAL_NS or self.options.segments is not None
        elif looks or is_woken or self.spe:  # SPE that ran out of room stands still until it is drained
            self._drain_rings()
        if looks:
            self._look(wakeups)
            if drains:
                self._rotate(wakeups)
            write_manifest(self.folder, self.manifest)
            pace.looked()

    def _look(self, wakeups: Wakeups) -> None:
        """Once all is drained: control groups that are new, CPUs that are back, whose rings wake the loop, too."""
        if self.cgroup_names.misses_new:
            self.cgroup_names.look(self.spool)
        new = self.cpus.follow(time.monotonic_ns()) if self.cpus else []
        if new:
            self.manifest = replace(self.manifest, record_ids=self.attached.record_ids())
        for cpu in new:
            wakeups.add([self.attached.rings[cpu].fd])
            if self.spe and cpu in self.spe.rings:
                wakeups.add([self.spe.rings[cpu].fd])

    def _open_wakeups(self) -> contextlib.AbstractContextManager[Wakeups]:
        rings = [*self.attached.rings.values(), *(self.spe.rings.values() if self.spe else ())]
        asking = [self.unwinding.fd] if self.unwinding else []
        asking += [self.sampler.copies_fd] if self.sampler else []
        asking += [self.meanwhile.pidfd] if self.meanwhile else []
        return open_wakeups(
            [self.signals.fileno(), self.mappings.code.fd, *asking, *(ring.fd for ring in rings)],
            command=self.workload.pidfd if self.workload else None,
            pids=self.options.pids,
            is_endless=self.options.is_system_wide,
        )

    def _drain(self) -> None:
        """Move what the kernel holds into the spool and note how far the capture reaches."""
        self._drain_rings()
        self._note_clock()
        end_ns = self.stopped_ns or time.monotonic_ns()
        if self.sampler:
            is_cut = self.rotation is not None and self.rotation.is_ready
            self.before_drain = list(self.attached.counts()) if is_cut else None
            end_ns = self.sampler.drain(self.spool, self.stopped_ns)
            self.manifest = with_long_interval(self.manifest, end_ns)
            self.by_programs = self.sampler.counters()
            self.manifest = self.segment.with_losses(self.manifest, self.by_programs)
        self.spool.note_sums()
        self.manifest = replace(self.manifest, end_monotonic_ns=end_ns)
        self.drain_ends_ns.append(end_ns)

    def _end_interval(self, pid: int, *, is_late: bool) -> None:
        """Addresses in a process mean something else from now on, or have for some time."""
        self._drain()
        self.spool.append_replaced(pid, self.manifest.end_monotonic_ns)
        if is_late:
            for time_ns in dict.fromkeys((*self.suspect_ends_ns, *self.drain_ends_ns)):
                self.spool.append_uncertain(pid, time_ns)

    def _drain_rings(self) -> None:
        if self.rotation:
            self.rotation.make_room(self._pending_bytes())
        if self.sampler:
            self.sampler.save_copies(self.spool)
        if self.spe:
            self.spe.look()
        self._hear()
        self.attached.drain(self.spool, self.walker)
        if self.unwinding and self.walker and self.walker.has_questions:
            self.unwinding.answer()  # now: who is asked for may end in a moment
        if self.spe:
            self.spe.drain(self.spool, goes_on=self.stopped_ns is None)

    def _pending_bytes(self) -> int:
        """What a drain would write now, at most."""
        of_events = self.attached.pending_bytes + (self.spe.pending_bytes if self.spe else 0)
        return of_events + (self.sampler.pending_bytes if self.sampler else 0)

    def _hear(self) -> None:
        """Look at what the side-band tells."""
        told = self.attached.look(self.walker)
        self.mappings.see(told)
        if self.spe:
            self.spe.hear(told)

    def _note_clock(self) -> None:
        self.manifest = with_clock_pair(self.manifest, self.spe.clock_pair() if self.spe else None)
        if self.turns:
            self.manifest = self.turns.told(self.manifest)

    def _write_failure(self, error: OSError) -> TdprofError:
        self.spool.release_reserve()
        return stopped_early(self.folder, error)
