"""The report for people: what was measured, what is missing, then the hotspots as a table."""

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tdprof.frames import function_names, module_names, printable
from tdprof.model import EventInfo, Losses, Unit, Unknown
from tdprof.profile import Profile
from tdprof.report.hotspots import Hotspots, UnknownSamples, share_half_width

# Narrower tables keep their shares and names whole and leave the rest out.
WIDE_COLUMNS = 80

LOSSES = {
    "samples_map_full": "samples lost: the table in the kernel was full (sample less often: -F)",
    "samples_ring_full": "samples lost: the ring buffer was full (sample less often: -F)",
    "samples_outside_namespace": "samples of processes outside the recorder's pid namespace",
    "user_stacks_unreadable": "samples without their user call stack: it could not be read",
    "kernel_stacks_unreadable": "samples without their kernel call stack: it could not be read",
    "stack_id_collisions": "samples without a call stack: two stacks shared one slot",
    "stacks_truncated": "call stacks cut off at the kernel's limit (sysctl kernel.perf_event_max_stack)",
    "side_band_records_lost": "records of mappings and threads lost: symbols may be wrong or missing",
    "throttled": "times the kernel paused an event for interrupting too often",
    "bytes_damaged": "bytes of the capture could not be read",
}

REASONS = {
    None: "no call stack",
    Unknown.NO_MAPPING: "no mapping covers the address",
    Unknown.NO_FILE: "the mapped file cannot be read here (--symfs DIR, or tdprof archive where it was recorded)",
    Unknown.WRONG_BUILD_ID: "the file was replaced since the recording (--symfs DIR with the recorded one)",
    Unknown.STRIPPED: "the file has no symbols (install its -dbgsym or -debuginfo package, or set DEBUGINFOD_URLS)",
    Unknown.NO_SYMBOL: "no symbol of the file covers the address",
    Unknown.DAMAGED: "the file's symbol data is damaged (install the file again)",
    Unknown.NO_PERF_MAP: "run-time code that no /tmp/perf-PID.map names (python -X perf, node --perf-basic-prof)",
    Unknown.HIDDEN_KERNEL: "kernel symbols were hidden when recording (sysctl kernel.kptr_restrict)",
}


def render_text(
    profile: Profile,
    hotspots: Hotspots,
    unknown: list[UnknownSamples],
    console: Console,
    *,
    limit: int,
    by_line: bool,
    sort_event: int,
) -> str:
    """The whole report as the console's width and colours allow, without trailing blanks.

    Args:
        limit: the most rows to show; 0 for all.
        sort_event: the event whose shares lead each row, as for ``find_hotspots``.
    """
    wide = console.width >= WIDE_COLUMNS
    with console.capture() as capture:
        console.print(_header(profile))
        if profile.events:
            console.print()
            console.print(_events(profile, wide=wide))
        doubts = [*map(printable, profile.notes), *_losses(profile.losses), *_unknown(profile, unknown)]
        if doubts:
            console.print()
            for line in doubts:
                console.print(Text(line), style="yellow")
        console.print()
        if not len(hotspots):
            console.print(Text("No samples: the command ran too briefly, or never ran on a CPU that was measured."))
        else:
            shown = hotspots.rows(slice(limit or None))
            console.print(_table(profile, shown, by_line=by_line, sort_event=sort_event, wide=wide))
            if len(hotspots) > len(shown):
                more = _plural(len(hotspots) - len(shown), "more source line" if by_line else "more function", "s")
                console.print(Text(f"and {more} (--limit 0 shows all)"), style="dim")
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _header(profile: Profile) -> Table:
    pid, tid = profile.samples.pid, profile.samples.tid
    measured = format_value(profile.duration_ns, Unit.NANOSECONDS)
    if profile.start_realtime_ns:  # perf.data seldom says when it was recorded
        with contextlib.suppress(OverflowError, ValueError, OSError):  # a date that no calendar has
            started = datetime.fromtimestamp(profile.start_realtime_ns // 1_000_000_000, UTC)
            measured += f" from {started:%Y-%m-%d %H:%M:%S} UTC"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    rung = f"{profile.rung} ({profile.rung_reason})" if profile.rung_reason else profile.rung
    for label, value in (
        ("command", printable(shlex.join(profile.command)) or "(none: processes or CPUs were measured)"),
        ("measured", measured),
        ("sampled", f"{_plural(len(np.unique(pid)), 'process', 'es')}, {_plural(len(np.unique(tid)), 'thread', 's')}"),
        ("rung", rung),
    ):
        grid.add_row(label, Text(value))
    return grid


def _events(profile: Profile, *, wide: bool) -> Table:
    table = _plain_table()
    table.add_column("event", overflow="ellipsis")
    for heading in (*(("asked for",) if wide else ()), "samples", "in samples", "counted"):
        table.add_column(heading, justify="right", no_wrap=True)
    if wide:
        table.add_column(overflow="ellipsis")
    samples, weight = profile.total_samples().tolist(), profile.total_weight().tolist()
    for i, event in enumerate(profile.events):
        counted = "unknown" if event.total is None else format_value(event.total, event.unit)
        cells = [f"{samples[i]:,}", format_value(weight[i], event.unit), counted]
        if wide:
            cells = [_asked_for(event), *cells, ", ".join(_event_notes(event, weight[i]))]
        table.add_row(_one_line(printable(event.name)), *cells)
    return table


def _asked_for(event: EventInfo) -> str:
    if event.frequency_hz:
        return f"{event.frequency_hz:,} Hz"
    return f"every {format_value(event.period, event.unit)}" if event.period else ""


def _event_notes(event: EventInfo, weight: int) -> Iterator[str]:
    if event.total:
        yield f"samples stand for {weight / event.total:.1%} of it"
    if event.enabled_ns and event.running_ns is not None and event.running_ns < event.enabled_ns:
        yield f"counted {event.running_ns / event.enabled_ns:.1%} of the time"


def _losses(losses: Losses) -> Iterator[str]:
    for each in fields(losses):
        if each.name == "by_reason":
            continue
        if count := getattr(losses, each.name):
            yield f"{count:,} {LOSSES[each.name]}"
    for reason, count in losses.by_reason.items():
        yield f"{count:,} lost: {printable(reason)}"


def _unknown(profile: Profile, unknown: list[UnknownSamples]) -> Iterator[str]:
    total = int(profile.samples.count.sum())
    for each in unknown:
        samples = _plural(each.samples, "sample", "s")
        yield f"{samples} ({each.samples / total:.1%}) in no known function: {REASONS[each.reason]}"


def _table(profile: Profile, hotspots: Hotspots, *, by_line: bool, sort_event: int, wide: bool) -> Table:
    event = profile.events[sort_event]
    others = [i for i in range(len(profile.events)) if i != sort_event and wide]
    total = profile.total_weight().astype(np.float64)
    with np.errstate(invalid="ignore"):
        self_share = hotspots.self_weight / total
        inclusive_share = hotspots.inclusive_weight[:, sort_event] / total[sort_event]
    half_width = share_half_width(self_share[:, sort_event], profile, sort_event)

    table = _plain_table()
    headings = ["self", "± 95 %", "total"]
    if wide:
        headings += ["samples", event.name]
    for heading in (*headings, *(profile.events[other].name for other in others)):
        table.add_column(Text(printable(heading)), justify="right", no_wrap=True)
    if wide:
        table.add_column("module", overflow="ellipsis")
    if by_line:
        table.add_column("line", overflow="ellipsis")
    # Last, because names are the longest and a pipe gets them whole.
    table.add_column("function", overflow="ellipsis")

    names, modules = function_names(profile), module_names(profile)
    mapped_file = [*profile.functions.mapped_file.tolist(), -1]
    for row, function in enumerate(hotspots.function.tolist()):
        name = names[function]
        cells: list[str | Text] = [
            _percent(self_share[row, sort_event]),
            "" if np.isnan(half_width[row]) else f"{half_width[row] * 100:.1f}",
            _percent(inclusive_share[row]),
        ]
        if wide:
            cells.append(f"{hotspots.self_samples[row, sort_event]:,}")
            cells.append(format_value(int(hotspots.self_weight[row, sort_event]), event.unit))
        cells.extend(_percent(self_share[row, other]) for other in others)
        if wide:
            cells.append(_one_line(PurePath(modules[mapped_file[function]]).name, "dim"))
        if by_line:
            cells.append(_one_line(_source_line(profile, function, int(hotspots.line[row]))))
        cells.append(_one_line(name, "dim" if name.startswith("[") else ""))
        table.add_row(*cells)
    return table


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _source_line(profile: Profile, function: int, line: int) -> str:
    file = printable(profile.functions.file[function]) if function >= 0 else ""
    return f"{PurePath(file).name or '?'}:{line}" if line else "?"


def _percent(share: float) -> str:
    return "" if np.isnan(share) else f"{share:.1%}"


def _plural(count: int, noun: str, ending: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def format_value(value: int, unit: Unit) -> str:
    """A count or duration with four significant digits and the unit's prefix; small counts exactly."""
    steps: tuple[tuple[float, str], ...]
    match unit:
        case Unit.NANOSECONDS:
            steps = ((1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1, " ns"))
        case Unit.BYTES:
            steps = ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B"))
        case Unit.COUNT:
            steps = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1, ""))
    scale, suffix = next((step for step in steps if value >= step[0]), steps[-1])
    if scale == 1:
        return f"{value:,}{suffix}"
    scaled = value / scale
    return f"{scaled:,.{max(0, 3 - len(str(int(scaled))) + 1)}f}{suffix}"
