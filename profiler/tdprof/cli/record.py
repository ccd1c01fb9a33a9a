"""`tdprof record`: sample a command, processes or the whole system."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tdprof.cli.option_groups import taken
from tdprof.cli.output import CAPTURE_HELP, DEFAULT_OUTPUT, waiting
from tdprof.cli.record_duty import check_duty, duty_option, with_duty
from tdprof.cli.record_sampling import (
    EventOptions,
    StackOptions,
    event_options,
    interval_option,
    sample_options,
    stack_options,
)
from tdprof.cli.record_segments import SegmentOptions, segment_options, stay_small
from tdprof.cli.record_target import TargetOptions, target_options
from tdprof.cli.record_topdown import TopdownOptions, plan_topdown, show_pass, topdown_options
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError

if TYPE_CHECKING:
    from tdprof.capture.manifest import Manifest
    from tdprof.pipeline.plan import SamplingPlan
    from tdprof.recorder.options import RecordOptions
    from tdprof.recorder.spe_options import SpeOptions

# By capture.manifest.Rung.
RUNG_TEXT = {
    "bpf-pmu": "BPF on PMU events",
    "bpf-software": "BPF on a software event",
    "ring-buffer": "perf ring buffers without BPF",
    "perf-data": "the perf tool",
}
_WAITING = "tdprof: recording has ended, waiting for the command to end (Ctrl-C ends it)"


@click.command("record", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="-- CMD [ARG…]", nargs=-1, type=click.UNPROCESSED)
@event_options
@target_options
@interval_option
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help=CAPTURE_HELP)
@sample_options
@topdown_options
@segment_options
@duty_option
@stack_options
@click.option("--with-symbols", is_flag=True, help="Put the symbols into the capture, to read it on another machine.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def command(output: Path | None, duty: str | None, with_symbols: bool, quiet: bool, **typed: Any) -> int:
    """Sample a command, processes (-p) or the system (-a) and keep the call stacks in a capture folder.

    \b
    tdprof record -- ./app --its-option        until the command ends
    tdprof record -e cycles:u,instructions:u -c 1000003 -- ./app
    tdprof record -p 1234 --duration 10        a running process
    tdprof record -a -F 99 --duration 30       everything, gently
    tdprof record -a -- sleep 30               the same with -p, --cgroup: while a command runs
    tdprof record --cgroup system.slice/nginx.service --duration 10
    tdprof record -a -F 99 --switch-output=5m --max-size 2G    on and on
    tdprof record --off-cpu -- ./app           and what it waits for
    tdprof record --off-cpu --wakers -- ./app  and who ends its waits
    tdprof record --topdown -- ./app           and why each function is slow (Arm Neoverse)
    tdprof record --topdown=2 --passes -- ./app
    tdprof record --metrics Branch_Effectiveness -p 1234

    The command's exit status becomes tdprof's. Ctrl-C stops and keeps what was recorded.
    """
    target, events, stacks = taken(TargetOptions, typed), taken(EventOptions, typed), taken(StackOptions, typed)
    segments, topdown = taken(SegmentOptions, typed), taken(TopdownOptions, typed)
    duties = check_duty(duty, topdown, is_system_wide=target.is_whole_system, is_cut=segments.is_wanted)
    topdown.check(
        has_command=target.is_command,
        has_events=events.events is not None and duties is None,
        has_duration=target.duration_s is not None,
        has_spe=events.has_spe,
    )
    target.check()
    _refuse_contradictions(topdown, target, events)
    stacks.check(has_command=target.is_command)
    target.check_duration()
    # Only now, and the rest of the recorder after that: help, and what is typed wrong, are said at once.
    from tdprof.recorder.workload import check_command

    if target.words:
        check_command(target.words[0])
    from tdprof.recorder.perf_event import ready_kernel_for_events

    ready_kernel_for_events()
    plan = plan_topdown(topdown) if topdown.is_wanted and not duties else None
    options = _record_options(target, events, stacks, plan)
    if not quiet:
        options = replace(options, on_pass=show_pass, on_waiting=lambda: say(_WAITING))
    segments.check(
        has_spe=events.has_spe and not (duties and duties.spe),
        has_off_cpu=events.has_off_cpu,
        has_passes=options.topdown is not None and len(options.passes) > 1,
        with_symbols=with_symbols,
    )
    if duties:
        options = with_duty(options, duties, topdown, events.spe_text)
    return _record(options, segments, output, with_symbols=with_symbols, quiet=quiet)


def _record_options(
    target: TargetOptions, events: EventOptions, stacks: StackOptions, plan: "SamplingPlan | None"
) -> "RecordOptions":
    """What was typed, and planned of Topdown, for the recorder.

    Raises:
        TdprofError: some of it cannot be understood.
    """
    from tdprof.recorder.call_graph import CallGraph, parse_call_graph
    from tdprof.recorder.events import parse_events
    from tdprof.recorder.options import USUAL_INTERVAL_NS, RecordOptions, parse_interval
    from tdprof.recorder.runtime_options import perf_maps_note

    variables = stacks.variables()
    way, stack_bytes = (CallGraph.AUTO, 0) if stacks.call_graph is None else parse_call_graph(stacks.call_graph)
    return RecordOptions(
        events=plan.events if plan else parse_events(events.events) if events.events is not None else (),
        rate=events.rate(is_topdown=plan is not None and plan.topdown is not None),
        topdown=plan.topdown if plan else None,
        notes=[*(plan.notes if plan else ()), *([perf_maps_note(variables)] if variables else [])],
        command=target.words if target.is_command else (),
        meanwhile=() if target.is_command else target.words,
        variables=variables,
        pids=target.process_ids(),
        is_system_wide=target.is_system_wide or bool(target.cgroups),
        cgroups=target.cgroups,
        duration_s=target.duration_s,
        asked_interval_ns=USUAL_INTERVAL_NS if events.interval is None else parse_interval(events.interval),
        use_bpf=not stacks.no_bpf,
        call_graph=way,
        has_interpreted=not stacks.no_interpreters,
        stack_bytes=stack_bytes,
        off_cpu_period_ns=events.off_cpu_period_ns(),
        has_wakers=events.has_wakers,
        has_cpus=events.has_cpus,
        spe=_spe_options(events),
    )


def _spe_options(events: EventOptions) -> "SpeOptions | None":
    if events.spe_text is None:
        return None
    from tdprof.recorder.spe_options import parse_spe_options

    return parse_spe_options(events.spe_text)


def _refuse_contradictions(topdown: TopdownOptions, target: TargetOptions, events: EventOptions) -> None:
    if target.cgroups and (topdown.is_wanted or events.has_spe):
        raise TdprofError(
            "neither counter groups nor SPE can be of control groups alone",
            hint="record -a with them; report --where cgroup=NAME shows the samples of one",
            status=2,
        )
    if events.has_off_cpu and topdown.is_wanted:
        raise TdprofError(
            "time off a CPU is not sampled beside counter groups", hint="record twice: with each of them", status=2
        )


def _record(
    options: "RecordOptions", segments: SegmentOptions, output: Path | None, *, with_symbols: bool, quiet: bool
) -> int:
    """Record, and make the capture's tables; the command's exit status."""
    from tdprof.capture.output_folder import OutputFolder
    from tdprof.cli.record_end import RecordEnd, interrupted_once, left_unfinished
    from tdprof.recorder.session import record

    with interrupted_once(), contextlib.ExitStack() as stack:
        if segments.is_wanted:
            from tdprof.recorder.rotation import Segments

            stay_small()
            writer = stack.enter_context(segments.writer(output, quiet=quiet))
            options = replace(options, segments=Segments(segments.length(), writer, segments.most_bytes_of_files()))
            record_into = writer.open_next()
        else:
            path = output or Path(DEFAULT_OUTPUT)
            record_into = stack.enter_context(OutputFolder(path, replaces_older=output is None))
        # Left before the capture is: what it has begun writes there.
        end = stack.enter_context(RecordEnd(quiet=quiet, stays_small=segments.is_wanted))
        if not segments.is_wanted and not options.is_system_wide:  # in whose profile it would be
            options = replace(options, on_begun=end.prepare)
        try:
            outcome = record(options, record_into)
            made = writer.recorded if segments.is_wanted else record_into
            if outcome.failure is not None:
                raise outcome.failure
            with outcome.held:
                if segments.is_wanted:
                    with waiting("writing the tables of the segments before", quiet=quiet):
                        writer.finish()  # while what they hold is held
                manifest = end.finish(made.folder, outcome.held)
        except KeyboardInterrupt as interrupt:
            if segments.is_wanted:
                writer.give_up()
            made = writer.recorded if segments.is_wanted else record_into
            if not made.is_published:
                raise
            raise left_unfinished(made.path, is_segment=segments.is_wanted) from interrupt
        if not quiet:
            _say(manifest, made.path)
        if with_symbols:
            from tdprof.cli.archive import archive_with_progress

            archive_with_progress(made.folder, manifest, quiet=quiet)
    if made.stays_roots:
        say(f"tdprof: {made.path} stays root's, not all of it could be given to who called sudo")
    return manifest.exit_status or 0


def _say(manifest: "Manifest", folder: Path) -> None:
    """The one line about the rung, and what the user should know before trusting the numbers."""
    names = ", ".join(event.name for event in manifest.events)
    if manifest.topdown:
        groups = len(manifest.topdown.groups)
        names = f"{len(manifest.events)} events in {groups} counter group{'s' if groups > 1 else ''}"
    seconds = manifest.duration_ns / 1e9
    say(
        f"tdprof: recorded {names} for {seconds:.1f} s with {RUNG_TEXT[manifest.rung]} ({manifest.rung_reason})"
        f" into {folder}",
    )
    for note in manifest.notes:
        say(f"tdprof: note: {note}")
    say(f"tdprof: see it with: tdprof report {folder}")
