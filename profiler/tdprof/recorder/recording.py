"""A recording that has begun, carried out: events opened, run once or several times, and put into a spool."""

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tdprof import __version__
from tdprof.capture.manifest import Host, Manifest, SpeEventInfo, SpeInfo
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.spool import SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.losses import Losses
from tdprof.native.library import load_native
from tdprof.recorder.cgroups import ChosenCgroups
from tdprof.recorder.duty import start_timers
from tdprof.recorder.following import choose_target, with_newer_threads
from tdprof.recorder.host import describe_host, is_in_initial_pid_namespace
from tdprof.recorder.ladder import BpfAttempt
from tdprof.recorder.locked_memory import RingSizes
from tdprof.recorder.opening import OpenedEvents, Opener
from tdprof.recorder.options import NO_INTERVALS, USUAL_INTERVAL_NS, Outcome, RecordOptions
from tdprof.recorder.periods import PeriodControl
from tdprof.recorder.run import Run
from tdprof.recorder.sampling import Sampling, start_sampling
from tdprof.recorder.session import Beginning
from tdprof.recorder.targets import SamplingTarget
from tdprof.recorder.workload import Workload
from tdprof.recorder.write_errors import cannot_begin

if TYPE_CHECKING:
    from tdprof.recorder.rotation import Rotation
    from tdprof.recorder.spe import SpeEvents
    from tdprof.recorder.turns import Turns


def carry_out(begun: Beginning, output: OutputFolder, stack: contextlib.ExitStack) -> Outcome:
    """Open events and record.

    Args:
        begun: what there is already.
        output: published once recording has begun.
        stack: what is opened is closed with it.

    Raises:
        TdprofError: nothing could be recorded.
    """
    options, attempt, chosen = begun.options, begun.attempt, begun.chosen
    host = describe_host()  # before the programs are waited for
    load_native()
    control = _period_control(options)
    sampling = start_sampling(options, begun.choice, attempt, begun.cgroups, begun.tables, control, stack)
    target = choose_target(options, begun.workload, sampling.sampler, begun.choice.events, chosen)
    _check_off_cpu(options, target)
    opener = Opener(options, sampling, begun.cpus)
    target, opened = opener.open_settled(target, lambda target: with_newer_threads(target, options.pids))
    begun.first.enter_context(opened.attached)
    stack.enter_context(opened.spe or contextlib.nullcontext())
    turns = _turns(options, opener, target, opened, stack)
    spool = stack.enter_context(_open_spool(begun.folder, options))
    manifest = _first_manifest(options, host, sampling, target, chosen, opened, turns)
    run = Run(
        options,
        target,
        begun.folder,
        manifest,
        opened.attached,
        sampling.sampler,
        None if options.duty.spe else opened.spe,
        spool,
        begun.workload,
        begun.meanwhile,
        begun.signals,
        control,
        sampling.unwinding,
        sampling.walker,
        sampling.cgroups.names(),
        chosen,
        _rotation(options, sampling, stack),
        turns,
    )
    stack.callback(lambda: run.spool.close())
    stack.callback(run.urgency.close)
    _begin(run, sampling, attempt, output)
    begun.only_now.close()
    outcome = run.until_stopped()
    begun.first.close()
    return _run_again(run, outcome, opener, opened.sizes)


def _begin(run: Run, sampling: Sampling, attempt: BpfAttempt, output: OutputFolder) -> None:
    """Let the events count, once the kernel can walk stacks, and give the capture its name.

    Raises:
        TdprofError: what is recorded could not be started.
        InterruptedError: a signal asked to stop before.
    """
    if run.signals.received is not None:
        raise InterruptedError
    run.options.on_pass(1, len(run.options.passes))
    run.prepare()
    # A command is not deep in calls at once; with a fixed period many samples may come at once.
    sampling.await_walk(is_deep=not (run.options.command and run.options.rate.frequency_hz))
    run.start()
    attempt.close()
    _publish(output, run)
    run.options.on_begun()


def _turns(
    options: RecordOptions, opener: Opener, target: SamplingTarget, opened: OpenedEvents, stack: contextlib.ExitStack
) -> "Turns | None":
    """What takes turns, all of it off; SPE, which was opened to see that it can be, is closed."""
    timers = start_timers(options.duty, time.monotonic_ns(), time.time_ns())
    if not timers:
        return None
    if options.duty.spe and opened.spe:
        opened.spe.close()

    def open_spe(first_number: int) -> "SpeEvents":
        assert options.spe
        return opener.open_spe(options.spe, target, opened.sizes, first_number)

    from tdprof.recorder.turns import Turns

    turns = Turns(timers, opened.attached, open_spe)
    stack.callback(turns.close)
    return turns


def _check_off_cpu(options: RecordOptions, target: SamplingTarget) -> None:
    if options.off_cpu_period_ns and not target.is_per_cpu:
        raise TdprofError(
            "time off a CPU cannot be sampled of these processes alone: the PMU has no counters left to tell them "
            "from others",
            hint="sample fewer events (-e cpu-clock), or record -a",
        )


def _publish(output: OutputFolder, run: Run) -> None:
    """Give the capture its name; where that fails the recording goes on under the one that it was made with."""
    try:
        output.publish()
    except TdprofError as error:  # the command runs: what it does is not repeated for a name
        kept = f"{error.message}: this capture is {output.keep_name()}"
        run.manifest = replace(run.manifest, notes=[*run.manifest.notes, kept])


def _rotation(options: RecordOptions, sampling: Sampling, stack: contextlib.ExitStack) -> "Rotation | None":
    """What cuts the recording, if it is to be cut."""
    if options.segments is None or sampling.sampler is None:
        return None
    if options.segments.length.bytes:
        # A segment is much more than what is copied while it is prepared, of which the next has a part, too.
        sampling.sampler.limit_copies(options.segments.length.bytes // 2)
    from tdprof.recorder.rotation import Rotation

    rotation = Rotation(options.segments, options.interval_ns / 1e9)
    stack.callback(rotation.close)
    return rotation


def _run_again(run: Run, outcome: Outcome, opener: Opener, sizes: RingSizes) -> Outcome:
    """Run the command once more for each pass after the first, unless something stops it."""
    passes = run.options.passes
    for number, groups in enumerate(passes[1:], 2):
        if outcome.failure or run.signals.received is not None:
            break
        run.options.on_pass(number, len(passes))
        with (
            Workload(run.options.command, run.options.variables) as workload,
            opener.attach(SamplingTarget([workload.pid], starts_at_exec=True), groups, sizes) as attached,
        ):
            outcome = run.again(workload, attached, _period_control(run.options))
    return outcome


def _first_manifest(
    options: RecordOptions,
    host: Host,
    sampling: Sampling,
    target: SamplingTarget,
    chosen: ChosenCgroups | None,
    opened: OpenedEvents,
    turns: "Turns | None",
) -> Manifest:
    """What the capture says of itself before anything has counted."""
    choice, sampler, spe = sampling.choice, sampling.sampler, opened.spe
    return Manifest(
        host=host,
        command=list(options.command),
        meanwhile=list(options.meanwhile),
        pids=list(options.pids),
        followed=list(target.processes) if opened.attached.is_told_per_cpu else [],
        is_system_wide=options.is_system_wide,
        has_cgroups=sampling.cgroups.is_told,
        cgroups=list(chosen.paths) if chosen else [],
        events=[
            EventInfo(event.name, event.unit, 0, options.duty.topdown_hz)
            if row in options.duty.topdown_rows
            else EventInfo(event.name, event.unit, options.rate.period, options.rate.frequency_hz)
            for row, event in enumerate(choice.events)
        ]
        + ([EventInfo(OFF_CPU, Unit.NANOSECONDS, options.off_cpu_period_ns)] if options.off_cpu_period_ns else []),
        rung=sampling.rung,
        rung_reason=sampling.reason,
        start_realtime_ns=time.time_ns(),
        start_monotonic_ns=time.monotonic_ns(),
        end_monotonic_ns=time.monotonic_ns(),
        losses=Losses(),
        record_ids=opened.attached.record_ids(),
        has_thread_times=options.off_cpu_period_ns > 0,
        has_wakers=options.has_wakers,
        has_cpus=options.has_cpus or sampler is None,
        stack_bytes=opened.attached.stack_bytes,
        notes=[
            *options.notes,
            *choice.notes,
            *sampling.cgroups.notes,
            *target.notes(options.pids),
            *(sampler.notes if sampler else []),
            *sampling.notes,
            *(spe.notes if spe else []),
            *opened.notes,
            *([NO_INTERVALS] if options.asked_interval_ns != USUAL_INTERVAL_NS and sampler is None else []),
        ],
        spe=_spe_info(spe) if spe else None,
        topdown=options.topdown,
        duty=[timer.info(0) for timer in turns.timers] if turns else [],
        interval_ns=options.interval_ns,
        tdprof_version=__version__,
    )


def _open_spool(folder: OwnFolder, options: RecordOptions) -> SpoolWriter:
    try:
        return SpoolWriter(folder, options.segments.most_bytes_of_files if options.segments else None)
    except OSError as error:
        raise cannot_begin(folder, error) from error


def _spe_info(spe: "SpeEvents") -> SpeInfo:
    from tdprof.recorder.spe_options import find_spe_pmus

    events = [
        SpeEventInfo(pmu.name, spe.events[pmu.name].name, list(pmu.cpus), pmu.caps)
        for pmu in find_spe_pmus()
        if pmu.name in spe.events
    ]
    return SpeInfo(spe.period, events, has_switches=True, contexts_name_threads=is_in_initial_pid_namespace())


def _period_control(options: RecordOptions) -> PeriodControl | None:
    """For a Topdown recording at a frequency: each event's own period."""
    frequency_hz = options.duty.topdown_hz or options.rate.frequency_hz
    if options.topdown is None or not frequency_hz:
        return None
    names = {row: name for group in options.topdown.groups for row, name in zip(group.events, group.names, strict=True)}
    return PeriodControl([names.get(row) for row in range(len(options.events))], frequency_hz)
