"""One recording from start to end: attach, run, drain, stop. Leaves a folder whose spool holds everything."""

import contextlib
import errno
import os
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tdprof import __version__
from tdprof.capture.manifest import Manifest, SpeEventInfo, SpeInfo, write_manifest
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.spool import SPE_FOLDER, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.events import EventInfo, TopdownInfo
from tdprof.model.losses import NOT_FOLLOWED, Losses
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.bpf import sampler as bpf_sampler
from tdprof.recorder.bpf.unwind_arrays import OF_A_MACHINE
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.chain_source import ChainSource
from tdprof.recorder.first_files import files_of_command
from tdprof.recorder.following import choose_target, privilege_notes
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.host import (
    MAX_SAMPLE_RATE,
    describe_host,
    is_in_initial_pid_namespace,
    online_cpus,
    read_setting,
)
from tdprof.recorder.hotplug import CpuFollower
from tdprof.recorder.ladder import BpfAttempt, choose_events
from tdprof.recorder.locked_memory import RingRefusedError, RingSizes, fit, locked_memory_budget, shrunk_note
from tdprof.recorder.options import Outcome, RecordOptions
from tdprof.recorder.perf_event import Count
from tdprof.recorder.periods import PeriodControl
from tdprof.recorder.replaced_mappings import ReplacedMappings
from tdprof.recorder.ring_walk import RingWalker, can_walk, copied_bytes
from tdprof.recorder.snapshot import SnapshotThread, running_pids
from tdprof.recorder.spe import SpeEvents, SpeOptions, find_spe_pmus
from tdprof.recorder.stop_signals import StopSignals
from tdprof.recorder.targets import Rate, SamplingTarget, processes_of, threads_of
from tdprof.recorder.unwinding import Unwinding, start_unwinding
from tdprof.recorder.workload import Workload, check_command
from tdprof.unwind.tables import TableCache

DRAIN_INTERVAL_NS = 900_000_000  # a capture knows time to the second, whatever the scheduler does to us
# Where groups take turns, what one did not see is judged by how unlike each other its moments were.
TURNS_INTERVAL_NS = 200_000_000
MAX_CLOCK_PAIRS = 64
SPARE_THREADS = 1024  # that a process may start while it is being looked at
PAUSE_S = 0.005  # mmap records wake the loop, and may come by the thousand
TICK_MS = 100  # how often a table that fills too fast is noticed


def record(options: RecordOptions, output: OutputFolder) -> Outcome:
    """Record until the command or the processes end, the duration is over, or a signal asks to stop.

    Args:
        options: what to record.
        output: where to; published once recording has begun.

    Raises:
        TdprofError: nothing could be recorded. Once recording has begun, failures are in the outcome instead.
    """
    options = _within_rate_limit(options)
    with contextlib.ExitStack() as stack:
        if options.command:
            check_command(options.command[0])
        named_threads = len(threads_of(processes_of(options.pids)))
        choice = choose_events(options.events)
        signals = stack.enter_context(StopSignals())
        folder = output.make()
        first = stack.enter_context(contextlib.ExitStack())
        workload = first.enter_context(Workload(options.command)) if options.command else None
        cpus = online_cpus()
        passes = options.passes
        together = max(len(group) for group in passes[0]) if passes[0] else len(choice.events)
        sizes = bpf_sampler.TableSizes.for_rate(max(options.rate.frequency_hz, 1000) * len(cpus) * together)
        if options.is_system_wide:
            sizes = replace(sizes, arrays=OF_A_MACHINE)
        elif options.topdown is None:
            sizes = replace(sizes, named_threads=SPARE_THREADS + 2 * named_threads)
        attempt = BpfAttempt(choice.events, sizes, options.call_graph, is_wanted=options.use_bpf)
        stack.callback(attempt.close)
        host = describe_host()
        sampler, rung, reason = attempt.finish(choice)
        if sampler:
            stack.enter_context(sampler)
        walker = RingWalker() if sampler is None and can_walk(options.call_graph, together, options.rate) else None
        unwinding = start_unwinding(sampler) if sampler else Unwinding(walker, None, TableCache()) if walker else None
        if unwinding:
            stack.enter_context(unwinding)
            if options.command:
                unwinding.prepare_files(files_of_command(options.command))
        programs = sampler.programs if sampler else None

        rates = [options.rate] * len(choice.events)
        control = _period_control(options)
        if control:
            rates = [Rate(period=period) for period in control.periods]

        suitable = options.stack_bytes or copied_bytes(rates[0], together)
        chains = ChainSource(suitable if walker else 0, is_leaf_only=options.call_graph is CallGraph.NONE)

        def attach(target: SamplingTarget, groups: list[list[int]] | None, sizes: RingSizes) -> AttachedEvents:
            # Who ran when, for SPE records that no context packet names the thread of: the kernel swaps the events of
            # tasks that inherited the same ones instead of stopping them, so a buffer's records may be of many tasks.
            has_switches = options.spe is not None
            return AttachedEvents(
                choice.events,
                target,
                rates,
                cpus,
                programs,
                groups,
                sizes=sizes,
                has_switches=has_switches,
                call_graph=chains,
            )

        target = choose_target(options, workload, sampler, choice.events)
        wanted = RingSizes.wanted(has_spe=options.spe is not None)
        ring_sizes = fit(wanted, len(cpus), locked_memory_budget(len(cpus)))
        while True:
            try:
                with contextlib.ExitStack() as opening:
                    attached = opening.enter_context(attach(target, passes[0], ring_sizes))
                    spe = SpeEvents(find_spe_pmus(), options.spe, target, cpus, ring_sizes) if options.spe else None
                    opening.pop_all()
                break
            except RingRefusedError:  # this user's other programs lock memory, too
                smaller = ring_sizes.smaller()
                if smaller is None:
                    raise
                ring_sizes = smaller
        first.enter_context(attached)
        if spe:
            stack.enter_context(spe)
        spool = stack.enter_context(_open_spool(folder))
        manifest = Manifest(
            host=host,
            command=list(options.command),
            pids=list(options.pids),
            followed=list(target.processes) if target.is_filtered else [],
            is_system_wide=options.is_system_wide,
            events=[
                EventInfo(event.name, event.unit, options.rate.period, options.rate.frequency_hz)
                for event in choice.events
            ],
            rung=rung,
            rung_reason=reason,
            start_realtime_ns=time.time_ns(),
            start_monotonic_ns=time.monotonic_ns(),
            end_monotonic_ns=time.monotonic_ns(),
            losses=Losses(),
            record_ids=attached.record_ids(),
            stack_bytes=chains.stack_bytes,
            notes=[
                *options.notes,
                *choice.notes,
                *target.notes(options.pids),
                *(privilege_notes(options.command[0], target) if workload else ()),
                *(sampler.notes if sampler else []),
                *(spe.notes if spe else []),
                *filter(None, [shrunk_note(wanted, ring_sizes, len(cpus))]),
            ],
            spe=_spe_info(options.spe, spe) if options.spe and spe else None,
            topdown=options.topdown,
            tdprof_version=__version__,
        )
        if signals.received is not None:
            raise TdprofError("interrupted before recording began", status=128 + signals.received)
        run = _Run(
            options,
            target,
            folder,
            manifest,
            attached,
            sampler,
            spe,
            spool,
            workload,
            signals,
            control,
            unwinding,
            walker,
        )
        options.on_pass(1, len(passes))
        run.start()
        attempt.close()
        try:
            output.publish()
        except TdprofError as error:  # the command runs: what it does is not repeated for a name
            kept = f"{error.message}: this capture is {output.keep_name()}"
            run.manifest = replace(run.manifest, notes=[*run.manifest.notes, kept])
        outcome = run.until_stopped()
        first.close()
        for number, groups in enumerate(passes[1:], 2):
            if outcome.failure or signals.received is not None:
                break
            options.on_pass(number, len(passes))
            with (
                Workload(options.command) as workload,
                attach(SamplingTarget([workload.pid], starts_at_exec=True), groups, ring_sizes) as attached,
            ):
                outcome = run.again(workload, attached, _period_control(options))
        return outcome


def _within_rate_limit(options: RecordOptions) -> RecordOptions:
    """The options with a frequency that the kernel admits: where interrupts take too long, it lowers its limit."""
    limit, wanted = read_setting(MAX_SAMPLE_RATE), options.rate.frequency_hz
    if limit is None or limit < 1 or wanted <= limit:
        return options
    note = (
        f"sampled {limit} times a second, not {wanted}: that is all the kernel admits now "
        f"(sudo sysctl kernel.perf_event_max_sample_rate={wanted})"
    )
    return replace(options, rate=Rate(frequency_hz=limit), notes=[*options.notes, note])


def _open_spool(folder: OwnFolder) -> SpoolWriter:
    try:
        return SpoolWriter(folder)
    except OSError as error:
        hint = "name another folder with -o"
        raise TdprofError(f"cannot write into {folder.shown}: {error.strerror}", hint=hint) from error


def _spe_info(options: SpeOptions, spe: SpeEvents) -> SpeInfo:
    events = [
        SpeEventInfo(pmu.name, spe.events[pmu.name].name, list(pmu.cpus), pmu.caps)
        for pmu in find_spe_pmus()
        if pmu.name in spe.events
    ]
    return SpeInfo(options.period, events, has_switches=True, contexts_name_threads=is_in_initial_pid_namespace())


def idle_groups(topdown: TopdownInfo | None, totals: Sequence[Count | None]) -> Iterator[str]:
    """What to say of counter groups that were never on the PMU while there was something to count."""
    for group in topdown.groups if topdown else ():
        counts = [count for count in (totals[row] for row in group.events) if count]
        if any(count.enabled_ns for count in counts) and not any(count.running_ns for count in counts):
            metrics = ", ".join(group.metrics)
            yield (
                f"the counters were never free for {', '.join(group.names)}: {metrics} have no value "
                "(record longer, or with --counters N for smaller groups, or with --passes)"
            )


def _period_control(options: RecordOptions) -> PeriodControl | None:
    """For a Topdown recording at a frequency: each event's own period."""
    if options.topdown is None or not options.rate.frequency_hz:
        return None
    names = {row: name for group in options.topdown.groups for row, name in zip(group.events, group.names, strict=True)}
    return PeriodControl([names[row] for row in range(len(options.events))], options.rate.frequency_hz)


@dataclass(slots=True)
class _Run:
    """The recording while it runs."""

    options: RecordOptions
    target: SamplingTarget
    folder: OwnFolder
    manifest: Manifest
    attached: AttachedEvents
    sampler: bpf_sampler.BpfSampler | None
    spe: SpeEvents | None
    spool: SpoolWriter
    workload: Workload | None
    signals: StopSignals
    control: PeriodControl | None
    unwinding: Unwinding | None
    walker: RingWalker | None
    cpus: CpuFollower | None = None
    is_stopping: bool = False
    snapshot: SnapshotThread | None = None
    replaced: ReplacedMappings = field(default_factory=ReplacedMappings)
    held: HeldPrograms = field(init=False)

    def __post_init__(self) -> None:
        self.held = HeldPrograms(self.manifest.followed)

    def start(self) -> None:
        """Write the first manifest and let the events count.

        Raises:
            TdprofError: the command could not be executed, or the folder could not be written.
        """
        try:
            if self.spe:
                self.folder.subfolder(SPE_FOLDER, make=True).close()
            self._note_clock()
            write_manifest(self.folder, self.manifest)
            if self.workload:
                self.attached.enable()
                self.manifest = replace(self.manifest, start_monotonic_ns=time.monotonic_ns())
                self._watch_cpus()
                self.workload.start()
                if self.unwinding:
                    self.unwinding.add_processes([self.workload.pid])
                return
            if self.unwinding:
                self.unwinding.add_processes(running_pids() if self.options.is_system_wide else self.target.processes)
                self.unwinding.await_tables()
            self.attached.enable()
            if self.spe:
                self.spe.start()
            self.manifest = replace(self.manifest, start_monotonic_ns=time.monotonic_ns())
            self._watch_cpus()
            pids = running_pids() if self.options.is_system_wide else self.target.processes
            self.snapshot = SnapshotThread(pids, self.spool)
        except OSError as error:
            raise TdprofError(f"cannot write into {self.folder.shown}: {error.strerror}") from error

    def _watch_cpus(self) -> None:
        if self.target.is_per_cpu:
            self.cpus = CpuFollower(self.attached, self.manifest.start_monotonic_ns, has_spe=self.spe is not None)

    def again(self, workload: Workload, attached: AttachedEvents, control: PeriodControl | None) -> Outcome:
        """Another run of the command, with other events, into the same capture."""
        self.workload, self.attached, self.control, self.is_stopping = workload, attached, control, False
        ids = [new or old for new, old in zip(attached.record_ids(), self.manifest.record_ids, strict=True)]
        self.manifest = replace(self.manifest, record_ids=ids)
        workload.start()
        if self.unwinding:
            self.unwinding.add_processes([workload.pid])
        return self.until_stopped()

    def until_stopped(self) -> Outcome:
        """Drain until something ends the recording; then stop the events, drain the rest and read the totals."""
        failure: TdprofError | None = None
        try:
            self._loop()
        except OSError as error:
            failure = self._write_failure(error)
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
        if self.spe and self.manifest.spe:
            sampling = self.spe.sampling_counts()
            self.manifest = replace(self.manifest, spe=replace(self.manifest.spe, sampling=sampling))
        if failure is None:
            try:
                # Twice, because each drain empties one of the two tables.
                self._drain()
                self._drain()
                if self.snapshot:
                    self.manifest = replace(self.manifest, notes=[*self.manifest.notes, *self.snapshot.finish()])
            except OSError as error:
                failure = self._write_failure(error)
        exit_status = self.workload.wait() if self.workload else None
        self.manifest = replace(
            self.manifest,
            events=[
                replace(info, total=count.value, enabled_ns=count.enabled_ns, running_ns=count.running_ns)
                if count
                else info
                for info, count in zip(self.manifest.events, totals, strict=True)
            ],
            losses=replace(
                self.manifest.losses,
                samples_ring_full=self.manifest.losses.samples_ring_full + self.attached.lost_samples(),
            ),
            # Of several runs, that of the first that went wrong.
            exit_status=self.manifest.exit_status or exit_status,
            ran_to_end=ran_to_end,
            notes=[
                *self.manifest.notes,
                *idle_groups(self.manifest.topdown, totals),
                *(self.unwinding.notes() if self.unwinding else ()),
                *(self.sampler.lost_copies() if self.sampler else ()),
                *(self.walker.notes() if self.walker else ()),
                *(self.cpus.notes() if self.cpus else []),
                *([failure.message] if failure else []),
            ],
        )
        try:
            write_manifest(self.folder, self.manifest)
        except OSError as error:
            failure = failure or self._write_failure(error)
        return Outcome(self.manifest, failure, self.held)

    def _loop(self) -> None:
        deadline = None if self.options.duration_s is None else time.monotonic() + self.options.duration_s
        takes_turns = any(groups and len(groups) > 1 for groups in self.options.passes)
        interval_ns = TURNS_INTERVAL_NS if takes_turns else DRAIN_INTERVAL_NS
        next_drain = time.monotonic_ns() + interval_ns
        next_check = time.monotonic_ns() + self.control.next_check_ns() if self.control else None
        with self._poller() as (poller, ending):
            rings = {ring.fd for ring in self.attached.rings.values()}
            while self.signals.received is None and ending:
                timeout_ms = float(TICK_MS)
                if deadline is not None:
                    timeout_ms = min(timeout_ms, (deadline - time.monotonic()) * 1000)
                    if timeout_ms <= 0:
                        return
                if self.control and next_check is not None:
                    if time.monotonic_ns() >= next_check:
                        self.attached.set_periods(self.control.correct(list(self.attached.counts())))
                        next_check = time.monotonic_ns() + self.control.next_check_ns()
                    timeout_ms = min(timeout_ms, (next_check - time.monotonic_ns()) / 1e6)
                ready = set()
                for fd, mask in poller.poll(timeout_ms):
                    ready.add(fd)
                    # A ring hangs up when its last task has ended, and would wake us for ever.
                    if fd in ending or mask & (select.POLLHUP | select.POLLERR):
                        poller.unregister(fd)
                ending -= ready
                # First: what was mapped may be gone in a moment.
                records = [ring.look() for ring in self.attached.rings.values()]
                self.held.look(records)
                replaced = self.replaced.look(b"".join(records)) if self.sampler else set()
                if self.unwinding:
                    if self.unwinding.fd in ready:
                        self.unwinding.answer()
                    self.unwinding.add_processes(replaced)
                    self.unwinding.tick()
                if replaced or time.monotonic_ns() >= next_drain or (self.sampler and self.sampler.is_filling()):
                    self._drain()
                    self._follow_cpus(poller)
                    next_drain = time.monotonic_ns() + interval_ns
                    write_manifest(self.folder, self.manifest)
                elif ready or self.spe:  # SPE that ran out of room stands still until it is drained
                    self._drain_rings()
                if ready and ready <= rings:
                    time.sleep(PAUSE_S)

    @contextlib.contextmanager
    def _poller(self) -> Iterator[tuple[select.poll, set[int]]]:
        """What can wake the loop, and the descriptors whose readiness ends it once all have been ready."""
        poller = select.poll()
        poller.register(self.signals, select.POLLIN)
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
            counters = self.sampler.counters()
            self.manifest = replace(
                self.manifest,
                samples_counted=counters["samples"],
                losses=replace(
                    self.manifest.losses,
                    samples_map_full=counters["samples_map_full"],
                    samples_outside_namespace=counters["samples_outside_namespace"],
                    user_stacks_unreadable=counters["user_stacks_unreadable"],
                    kernel_stacks_unreadable=counters["kernel_stacks_unreadable"],
                    stacks_truncated=counters["stacks_truncated"],
                    by_reason={NOT_FOLLOWED: unseen} if (unseen := counters["threads_not_followed"]) else {},
                ),
            )
        self.manifest = replace(self.manifest, end_monotonic_ns=end_ns)

    def _drain_rings(self) -> None:
        self.attached.drain(self.spool, lambda records: self.held.look([records]), self.walker)
        if self.unwinding and self.walker and self.walker.has_questions:
            self.unwinding.answer()  # now: who is asked for may end in a moment
        if self.spe:
            for cpu in self.spe.drain(self.spool):
                if not self.is_stopping:
                    self.spe.enable(cpu)

    def _follow_cpus(self, poller: select.poll) -> None:
        """Once all is drained: open events on CPUs that came (back) online, and let their rings wake the loop, too."""
        new = self.cpus.follow(time.monotonic_ns()) if self.cpus else []
        if new:
            self.manifest = replace(self.manifest, record_ids=self.attached.record_ids())
        for cpu in new:
            poller.register(self.attached.rings[cpu].fd, select.POLLIN)

    def _note_clock(self) -> None:
        pair = self.spe.clock_pair() if self.spe else None
        if pair and self.manifest.spe:
            pairs = [*self.manifest.spe.clock_pairs, list(pair)]
            # However long the recording: the clocks drift apart so slowly that every other pair will do.
            kept = pairs if len(pairs) <= MAX_CLOCK_PAIRS else [*pairs[:-1:2], pairs[-1]]
            self.manifest = replace(self.manifest, spe=replace(self.manifest.spe, clock_pairs=kept))

    def _write_failure(self, error: OSError) -> TdprofError:
        cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror)
        self.spool.release_reserve()
        cures = {errno.ENOSPC: "free some space; ", errno.EDQUOT: "free some space; ", errno.EMFILE: "ulimit -n 1024; "}
        return TdprofError(
            f"recording stopped early: cannot write into {self.folder.shown}: {cause}",
            hint=f"{cures.get(error.errno or 0, '')}tdprof report {self.folder.shown} shows what was kept",
        )
