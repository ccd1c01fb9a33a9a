"""One recording from start to end: attached, and run once or several times. Leaves a spool that holds everything."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from tdprof import __version__
from tdprof.capture.manifest import Host, Manifest, SpeEventInfo, SpeInfo
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.spool import SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.limits import unlimited_descriptors
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.losses import Losses
from tdprof.recorder.cgroups import CgroupNaming, ChosenCgroups, chosen_cgroups
from tdprof.recorder.duty import start_timers
from tdprof.recorder.first_files import files_of_command
from tdprof.recorder.following import choose_target, with_newer_threads
from tdprof.recorder.host import (
    MAX_SAMPLE_RATE,
    describe_host,
    is_in_initial_pid_namespace,
    online_cpus,
    read_setting,
)
from tdprof.recorder.ladder import BpfAttempt, choose_events
from tdprof.recorder.locked_memory import RingSizes
from tdprof.recorder.opening import OpenedEvents, Opener
from tdprof.recorder.options import NO_INTERVALS, USUAL_INTERVAL_NS, Outcome, RecordOptions
from tdprof.recorder.periods import PeriodControl
from tdprof.recorder.rotation import Rotation
from tdprof.recorder.run import Run
from tdprof.recorder.sampling import Sampling, begin_load, start_sampling
from tdprof.recorder.spe import SpeEvents
from tdprof.recorder.spe_options import find_spe_pmus
from tdprof.recorder.stop_signals import StopSignals
from tdprof.recorder.targets import Rate, SamplingTarget, tasks_of
from tdprof.recorder.turns import Turns
from tdprof.recorder.workload import Workload
from tdprof.recorder.write_errors import cannot_begin


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
        named_threads = len(tasks_of(options.pids)[1])
        choice = choose_events(options.events)
        signals, beginning = _hear_signals(stack)
        folder = output.make()
        first, workload, meanwhile = _hold(options, stack)
        cpus = online_cpus()
        chosen = stack.enter_context(chosen_cgroups(options.cgroups)) if options.cgroups else None
        cgroups = CgroupNaming.choose(chosen, is_wanted=options.is_system_wide)
        files = files_of_command(options.command) if options.command else []
        attempt = begin_load(options, choice, cgroups, files, cpus=len(cpus), named_threads=named_threads)
        stack.callback(attempt.close)
        control = _period_control(options)
        sampling = start_sampling(options, choice, attempt, cgroups, files, control, stack)
        target = choose_target(options, workload, sampling.sampler, choice.events, chosen)
        _check_off_cpu(options, target)
        opener = Opener(options, sampling, cpus)
        target, opened = opener.open_settled(target, lambda target: with_newer_threads(target, options.pids))
        first.enter_context(opened.attached)
        stack.enter_context(opened.spe or contextlib.nullcontext())
        turns = _turns(options, opener, target, opened, stack)
        spool = stack.enter_context(_open_spool(folder, options))
        manifest = _first_manifest(options, describe_host(), sampling, target, chosen, opened, turns)
        run = Run(
            options,
            target,
            folder,
            manifest,
            opened.attached,
            sampling.sampler,
            None if options.duty.spe else opened.spe,
            spool,
            workload,
            meanwhile,
            signals,
            control,
            sampling.unwinding,
            sampling.walker,
            sampling.cgroups.names(),
            chosen,
            _rotation(options, sampling, stack),
            turns,
        )
        stack.callback(lambda: run.spool.close())
        _begin(run, sampling, attempt, output)
        beginning.close()
        outcome = run.until_stopped()
        first.close()
        return _run_again(run, outcome, opener, opened.sizes)


def _hold(
    options: RecordOptions, stack: contextlib.ExitStack
) -> tuple[contextlib.ExitStack, Workload | None, Workload | None]:
    """What to close after the first run; the command that is recorded, or the one while which others are."""
    first = stack.enter_context(contextlib.ExitStack())
    workload = first.enter_context(Workload(options.command, options.variables)) if options.command else None
    meanwhile = first.enter_context(Workload(options.meanwhile)) if options.meanwhile else None
    first.enter_context(unlimited_descriptors())  # for what is opened from here on; the commands are forked already
    return first, workload, meanwhile


def _hear_signals(stack: contextlib.ExitStack) -> tuple[StopSignals, contextlib.ExitStack]:
    """Signals that end the recording, and what is to be closed once it has begun."""
    signals = stack.enter_context(StopSignals())
    beginning = stack.enter_context(contextlib.ExitStack())
    beginning.enter_context(_interrupted_by(signals))
    return signals, beginning


@contextlib.contextmanager
def _interrupted_by(signals: StopSignals) -> Iterator[None]:
    """Failures are put down to a signal that came: in a terminal it ends the command as well, which is then missed."""
    try:
        yield
    except (TdprofError, OSError) as error:
        if signals.received is None:
            raise
        raise TdprofError("interrupted before recording began", status=128 + signals.received) from error


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
) -> Turns | None:
    """What takes turns, all of it off; SPE, which was opened to see that it can be, is closed."""
    timers = start_timers(options.duty, time.monotonic_ns(), time.time_ns())
    if not timers:
        return None
    if options.duty.spe and opened.spe:
        opened.spe.close()

    def open_spe(first_number: int) -> SpeEvents:
        assert options.spe
        return opener.open_spe(options.spe, target, opened.sizes, first_number)

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


def _rotation(options: RecordOptions, sampling: Sampling, stack: contextlib.ExitStack) -> Rotation | None:
    """Raises TdprofError: the recording is to be cut, and cannot be."""
    if options.segments is None:
        return None
    if sampling.sampler is None:
        raise TdprofError(
            f"only the BPF programs can cut a recording, and they are not used here: {sampling.reason}",
            hint="tdprof doctor says what they need; record without --switch-output",
        )
    if options.segments.length.bytes:
        # A segment is much more than what is copied while it is prepared, of which the next has a part, too.
        sampling.sampler.limit_copies(options.segments.length.bytes // 2)
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
    turns: Turns | None,
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


def _open_spool(folder: OwnFolder, options: RecordOptions) -> SpoolWriter:
    try:
        return SpoolWriter(folder, options.segments.most_bytes_of_files if options.segments else None)
    except OSError as error:
        raise cannot_begin(folder, error) from error


def _spe_info(spe: SpeEvents) -> SpeInfo:
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
