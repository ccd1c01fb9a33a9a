"""One recording from start to end: attached, and run once or several times. Leaves a spool that holds everything."""

import contextlib
import time
from dataclasses import replace

from tdprof import __version__
from tdprof.capture.manifest import Manifest, SpeEventInfo, SpeInfo
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.spool import SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.events import EventInfo
from tdprof.model.losses import Losses
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.bpf import sampler as bpf_sampler
from tdprof.recorder.bpf.unwind_arrays import OF_A_MACHINE
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.cgroups import CgroupNaming, chosen_cgroups
from tdprof.recorder.chain_source import ChainSource
from tdprof.recorder.first_files import files_of_command
from tdprof.recorder.following import choose_target, privilege_notes
from tdprof.recorder.host import (
    MAX_SAMPLE_RATE,
    describe_host,
    is_in_initial_pid_namespace,
    online_cpus,
    read_setting,
)
from tdprof.recorder.ladder import BpfAttempt, choose_events
from tdprof.recorder.locked_memory import RingRefusedError, RingSizes, fit, locked_memory_budget, shrunk_note
from tdprof.recorder.options import Outcome, RecordOptions
from tdprof.recorder.periods import PeriodControl
from tdprof.recorder.ring_walk import RingWalker, can_walk, copied_bytes
from tdprof.recorder.run import Run
from tdprof.recorder.spe import SpeEvents, find_spe_pmus
from tdprof.recorder.stop_signals import StopSignals
from tdprof.recorder.targets import Rate, SamplingTarget, processes_of, threads_of
from tdprof.recorder.unwinding import Unwinding, start_unwinding
from tdprof.recorder.workload import Workload, check_command
from tdprof.unwind.tables import TableCache

SPARE_THREADS = 1024  # that a process may start while it is being looked at


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
        chosen = stack.enter_context(chosen_cgroups(options.cgroups)) if options.cgroups else None
        cgroups = CgroupNaming.choose(chosen, is_wanted=options.is_system_wide)
        attempt = BpfAttempt(choice.events, sizes, options.call_graph, cgroups.settings, is_wanted=options.use_bpf)
        stack.callback(attempt.close)
        host = describe_host()
        sampler, rung, reason = attempt.finish(choice)
        if sampler:
            stack.enter_context(sampler)
        cgroups = cgroups.on_rung(has_bpf=sampler is not None)
        walker = RingWalker() if sampler is None and can_walk(options.call_graph, together, options.rate) else None
        unwinding = None
        if sampler:
            unwinding = start_unwinding(sampler, has_interpreted=options.has_interpreted)
        elif walker:
            unwinding = Unwinding(walker, None, TableCache())
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
        is_leaf_only = options.call_graph is CallGraph.NONE
        chains = ChainSource(suitable if walker else 0, is_leaf_only=is_leaf_only, has_cgroups=cgroups.is_told)

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
                has_cgroups=cgroups.is_told,
                call_graph=chains,
            )

        target = choose_target(options, workload, sampler, choice.events, chosen)
        wanted = RingSizes.wanted(has_spe=options.spe is not None)
        ring_sizes = fit(wanted, len(cpus), locked_memory_budget(len(cpus)))
        while True:
            try:
                with contextlib.ExitStack() as opening:
                    attached = opening.enter_context(attach(target, passes[0], ring_sizes))
                    spe = (
                        SpeEvents(
                            find_spe_pmus(),
                            options.spe,
                            target,
                            cpus,
                            ring_sizes,
                            has_counters=options.topdown is None,
                        )
                        if options.spe
                        else None
                    )
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
            has_cgroups=cgroups.is_told,
            cgroups=list(chosen.paths) if chosen else [],
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
                *cgroups.notes,
                *target.notes(options.pids),
                *(privilege_notes(options.command[0], target) if workload else ()),
                *(sampler.notes if sampler else []),
                *(spe.notes if spe else []),
                *filter(None, [shrunk_note(wanted, ring_sizes, len(cpus))]),
            ],
            spe=_spe_info(spe) if spe else None,
            topdown=options.topdown,
            tdprof_version=__version__,
        )
        if signals.received is not None:
            raise TdprofError("interrupted before recording began", status=128 + signals.received)
        run = Run(
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
            cgroups.names(),
            chosen,
        )
        options.on_pass(1, len(passes))
        rate_hz = options.rate.frequency_hz * len(cpus) * together
        if sampler and not (options.command and rate_hz and sampler.can_begin(rate_hz)):
            sampler.await_walk()
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


def _spe_info(spe: SpeEvents) -> SpeInfo:
    events = [
        SpeEventInfo(pmu.name, spe.events[pmu.name].name, list(pmu.cpus), pmu.caps)
        for pmu in find_spe_pmus()
        if pmu.name in spe.events
    ]
    return SpeInfo(spe.period, events, has_switches=True, contexts_name_threads=is_in_initial_pid_namespace())


def _period_control(options: RecordOptions) -> PeriodControl | None:
    """For a Topdown recording at a frequency: each event's own period."""
    if options.topdown is None or not options.rate.frequency_hz:
        return None
    names = {row: name for group in options.topdown.groups for row, name in zip(group.events, group.names, strict=True)}
    return PeriodControl([names[row] for row in range(len(options.events))], options.rate.frequency_hz)
