"""`tdprof record`: sample a command, processes or the whole system."""

import contextlib
import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tdprof.cli.output import CAPTURE_HELP, DEFAULT_OUTPUT, waiting
from tdprof.cli.record_duty import check_duty, duty_option, with_duty
from tdprof.cli.record_segments import SegmentOptions, segment_options
from tdprof.cli.record_topdown import DEFAULT_HZ as TOPDOWN_HZ
from tdprof.cli.record_topdown import TopdownOptions, plan_topdown, show_pass, topdown_options
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError

if TYPE_CHECKING:
    from tdprof.capture.manifest import Manifest
    from tdprof.recorder.options import RecordOptions
    from tdprof.recorder.targets import Rate

DEFAULT_HZ = 999
DEFAULT_OFF_CPU = "10ms"
# By capture.manifest.Rung.
RUNG_TEXT = {
    "bpf-pmu": "BPF on PMU events",
    "bpf-software": "BPF on a software event",
    "ring-buffer": "perf ring buffers without BPF",
    "perf-data": "the perf tool",
}

EVENT_HELP = (
    "Events to sample: cpu-clock, page-faults, cycles, instructions, r1b (a raw code), "
    "armv8_pmuv3_0/l1d_cache_refill/ (a sysfs name); with :u or :k only user space or the kernel. "
    "Default: cycles, or cpu-clock where no PMU interrupts."
)
SPE_HELP = (
    "Also record Arm SPE: load, store, branch, min_latency=N, period=N, rate=BYTES, jitter=0, event=MASK, "
    "inv_event=MASK, pa, u or k, joined by commas; without options every kind of operation, as often as 64 MB a second "
    "(rate=64M) allow."
)
WAKERS_HELP = (
    "Of each sample of sleep also who woke the thread, with its call stack: report --by waker, and exports have both. "
    "Implies --off-cpu."
)
OFF_CPU_HELP = (
    "Also sample the time in which threads are on no CPU: one sample for each PERIOD of it that a thread adds up, such "
    f"as 500us, 10ms or 1s ({DEFAULT_OFF_CPU}). As root, where BPF works."
)
CALL_GRAPH_HELP = (
    "How user call stacks are taken: auto (by the programs' unwind tables: in the kernel where BPF works, else from "
    "BYTES of the stack that are copied), dwarf (the same), fp (along frame pointers) or no (only where the sample was "
    "taken). "
    "Default: auto, with as many BYTES as the rate leaves room for."
)


def _pids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise TdprofError(f"-p takes process IDs, not '{text}'", hint="tdprof record -p 1234,5678", status=2) from error


_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_LEAST_OFF_CPU_NS, _MOST_OFF_CPU_NS = 10_000, 4_000_000_000  # bpf/settings.h has 32 bits for it


def _off_cpu_period(text: str) -> int:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s)", text)
    period_ns = round(float(match[1]) * _UNITS_NS[match[2]]) if match else 0
    if not _LEAST_OFF_CPU_NS <= period_ns <= _MOST_OFF_CPU_NS:
        raise TdprofError(
            f"--off-cpu takes a time from 10us to 4s, not '{text}'", hint=f"--off-cpu={DEFAULT_OFF_CPU}", status=2
        )
    return period_ns


def _rate(frequency_hz: int | None, period: int | None, default_hz: int) -> "Rate":
    from tdprof.recorder.targets import Rate

    if frequency_hz is not None and period is not None:
        raise TdprofError("-F and -c exclude each other", hint="give one of them", status=2)
    return Rate(period=period) if period is not None else Rate(frequency_hz=frequency_hz or default_hz)


@click.command("record")
@click.argument("words", metavar="-- CMD [ARG…]", nargs=-1, type=click.UNPROCESSED)
@click.option("-e", "--event", "events", metavar="EVENT,…", help=EVENT_HELP)
@click.option(
    "-F",
    "--freq",
    "frequency_hz",
    type=click.IntRange(1, 2**31),
    metavar="HZ",
    help=f"Samples of each event a second and CPU ({DEFAULT_HZ}; with --topdown {TOPDOWN_HZ}).",
)
@click.option(
    "-c",
    "--count",
    "period",
    type=click.IntRange(1, 2**63 - 1),
    metavar="PERIOD",
    help="A sample every PERIOD events; nanoseconds for cpu-clock.",
)
@click.option("-p", "--pid", "pids", default="", metavar="PID,…", help="Record running processes.")
@click.option("-a", "--all-cpus", "is_system_wide", is_flag=True, help="Record the whole system.")
@click.option(
    "--cgroup",
    "cgroups",
    multiple=True,
    metavar="PATH",
    help="Record what runs in this control group or below it, now and later: its folder, or its path below the "
    "hierarchy's root. May be repeated.",
)
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop after that time; the command goes on without being sampled.",
)
@click.option(
    "--interval",
    metavar="TIME",
    help="How finely the capture knows time where samples are added up in the kernel: 0.1s to 60s (0.9s).",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help=CAPTURE_HELP)
@click.option("--spe", "spe_text", is_flag=False, flag_value="", metavar="[=OPTION,…]", help=SPE_HELP)
@click.option("--off-cpu", "off_cpu", is_flag=False, flag_value=DEFAULT_OFF_CPU, metavar="[=PERIOD]", help=OFF_CPU_HELP)
@click.option("--wakers", "has_wakers", is_flag=True, help=WAKERS_HELP)
@click.option(
    "--sample-cpu",
    "has_cpus",
    is_flag=True,
    help="Samples say on which CPU they were taken: report --by cpu. The kernel's sums are then of one CPU each, and "
    "the capture is larger; without BPF samples always say it.",
)
@topdown_options
@segment_options
@duty_option
@click.option("--call-graph", metavar="auto|fp|dwarf[,BYTES]|no", help=CALL_GRAPH_HELP)
@click.option(
    "--no-interpreters",
    is_flag=True,
    help="No functions of Python programs, and JVMs are not asked for the names of theirs.",
)
@click.option(
    "--perf-maps",
    "has_perf_maps",
    is_flag=True,
    help="Set what makes Java, Node and .NET name the code they make in the command's environment; with --no-bpf "
    "and --no-interpreters also Python.",
)
@click.option("--no-bpf", is_flag=True, help="Use perf ring buffers even where BPF works.")
@click.option("--with-symbols", is_flag=True, help="Put the symbols into the capture, to read it on another machine.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def command(
    words: Sequence[str],
    events: str | None,
    frequency_hz: int | None,
    period: int | None,
    pids: str,
    is_system_wide: bool,
    cgroups: Sequence[str],
    duration_s: float | None,
    interval: str | None,
    output: Path | None,
    spe_text: str | None,
    off_cpu: str | None,
    has_wakers: bool,
    has_cpus: bool,
    duty: str | None,
    call_graph: str | None,
    no_interpreters: bool,
    has_perf_maps: bool,
    no_bpf: bool,
    with_symbols: bool,
    quiet: bool,
    **about_more: Any,
) -> int:
    """Sample a command, processes (-p) or the system (-a) and keep the call stacks in a capture folder.

    \b
    tdprof record -- ./app --its-option        until the command ends
    tdprof record -e cycles:u,instructions:u -c 1000003 -- ./app
    tdprof record -p 1234 --duration 10        a running process
    tdprof record -a -F 99 --duration 30       everything, gently
    tdprof record --cgroup system.slice/nginx.service --duration 10
    tdprof record -a -F 99 --switch-output=5m --max-size 2G    on and on
    tdprof record --off-cpu -- ./app           and what it waits for
    tdprof record --off-cpu --wakers -- ./app  and who ends its waits
    tdprof record --topdown -- ./app           and why each function is slow (Arm Neoverse)
    tdprof record --topdown=2 --passes -- ./app
    tdprof record --metrics Branch_Effectiveness -p 1234

    The command's exit status becomes tdprof's. Ctrl-C stops and keeps what was recorded.
    """
    segments = SegmentOptions.taken_from(about_more)
    topdown = TopdownOptions(**about_more)
    duties = check_duty(
        duty,
        topdown,
        is_system_wide=is_system_wide and not (words or pids or cgroups),
        is_cut=segments.is_wanted,
    )
    topdown.check(
        has_command=bool(words),
        has_events=events is not None and duties is None,
        has_duration=duration_s is not None,
        has_spe=spe_text is not None,
    )
    _check_target(words, pids, cgroups, is_system_wide=is_system_wide)
    if has_wakers and off_cpu is None:
        off_cpu = DEFAULT_OFF_CPU
    _refuse_contradictions(topdown, cgroups, off_cpu, has_spe=spe_text is not None)
    if has_perf_maps and not words:
        raise TdprofError(
            "--perf-maps sets the environment of a command; processes that run have theirs",
            hint="tdprof record --perf-maps -- CMD",
            status=2,
        )
    if duration_s is not None and not math.isfinite(duration_s):
        raise TdprofError(f"--duration takes a number of seconds, not {duration_s}", hint="--duration 10", status=2)
    # Only now, and the rest of the recorder after that: help, and what is typed wrong, are said at once.
    from tdprof.recorder.workload import check_command

    if words:
        check_command(words[0])
    from tdprof.recorder.call_graph import CallGraph, parse_call_graph
    from tdprof.recorder.events import parse_events
    from tdprof.recorder.options import USUAL_INTERVAL_NS, RecordOptions, parse_interval
    from tdprof.recorder.runtime_options import perf_maps_note, with_perf_maps
    from tdprof.recorder.spe import parse_spe_options

    plan = plan_topdown(topdown) if topdown.is_wanted and not duties else None
    variables = with_perf_maps(os.environ, has_python=no_bpf or no_interpreters) if has_perf_maps else {}
    way, stack_bytes = (CallGraph.AUTO, 0) if call_graph is None else parse_call_graph(call_graph)
    is_planned = plan is not None and plan.topdown is not None
    options = RecordOptions(
        events=plan.events if plan else parse_events(events) if events is not None else (),
        rate=_rate(frequency_hz, period, TOPDOWN_HZ if is_planned else DEFAULT_HZ),
        topdown=plan.topdown if plan else None,
        notes=[*(plan.notes if plan else ()), *([perf_maps_note(variables)] if variables else [])],
        on_pass=(lambda _number, _total: None) if quiet else show_pass,
        command=words,
        variables=variables,
        pids=_pids(pids) if pids else (),
        is_system_wide=is_system_wide or bool(cgroups),
        cgroups=cgroups,
        duration_s=duration_s,
        asked_interval_ns=USUAL_INTERVAL_NS if interval is None else parse_interval(interval),
        use_bpf=not no_bpf,
        call_graph=way,
        has_interpreted=not no_interpreters,
        stack_bytes=stack_bytes,
        off_cpu_period_ns=_off_cpu_period(off_cpu) if off_cpu is not None else 0,
        has_wakers=has_wakers,
        has_cpus=has_cpus,
        spe=None if spe_text is None else parse_spe_options(spe_text),
    )
    segments.check(
        has_spe=spe_text is not None and not (duties and duties.spe),
        has_off_cpu=off_cpu is not None,
        has_passes=is_planned and len(options.passes) > 1,
        with_symbols=with_symbols,
    )
    if duties:
        options = with_duty(options, duties, topdown, spe_text)
    return _record(options, segments, output, with_symbols=with_symbols, quiet=quiet)


def _check_target(words: Sequence[str], pids: str, cgroups: Sequence[str], *, is_system_wide: bool) -> None:
    if (bool(words) + bool(pids) + (is_system_wide or bool(cgroups))) == 1:
        return
    is_missing = not (words or pids or is_system_wide or cgroups)
    what = "nothing to record" if is_missing else "a command, -p and -a or --cgroup exclude each other"
    raise TdprofError(what, hint="tdprof record -- CMD, tdprof record -p PID, or tdprof record -a", status=2)


def _refuse_contradictions(
    topdown: TopdownOptions, cgroups: Sequence[str], off_cpu: str | None, *, has_spe: bool
) -> None:
    if cgroups and (topdown.is_wanted or has_spe):
        raise TdprofError(
            "neither counter groups nor SPE can be of control groups alone",
            hint="record -a with them; report --where cgroup=NAME shows the samples of one",
            status=2,
        )
    if off_cpu is not None and topdown.is_wanted:
        raise TdprofError(
            "time off a CPU is not sampled beside counter groups", hint="record twice: with each of them", status=2
        )


def _record(
    options: "RecordOptions", segments: SegmentOptions, output: Path | None, *, with_symbols: bool, quiet: bool
) -> int:
    """Record, and make the capture's tables; the command's exit status."""
    from tdprof.capture.output_folder import OutputFolder
    from tdprof.recorder.session import record

    with contextlib.ExitStack() as stack:
        if segments.is_wanted:
            from tdprof.recorder.rotation import Segments

            writer = stack.enter_context(segments.writer(output, quiet=quiet))
            options = replace(options, segments=Segments(segments.length(), writer))
            record_into = writer.open_next()
        else:
            path = output or Path(DEFAULT_OUTPUT)
            record_into = stack.enter_context(OutputFolder(path, replaces_older=output is None))
        outcome = record(options, record_into)
        made = writer.recorded if segments.is_wanted else record_into
        # Only now: the process that samples stays small and starts fast without NumPy and Arrow.
        from tdprof.cli.memory import keep_process_small
        from tdprof.pipeline.finish import finish_capture

        keep_process_small()
        if outcome.failure is not None:
            raise outcome.failure
        with outcome.held, waiting("writing the capture's tables", quiet=quiet):
            if segments.is_wanted:
                writer.finish()  # while what they hold is held
            manifest = finish_capture(made.folder, outcome.held)
        if not quiet:
            _say(manifest, made.path)
        if with_symbols:
            from tdprof.cli.archive import archive_with_progress

            archive_with_progress(made.folder, quiet=quiet)
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
