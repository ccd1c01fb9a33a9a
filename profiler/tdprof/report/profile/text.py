"""The report for people: what was measured, what is missing, then the hotspots as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tdprof.model.findings import Findings, MetricTable
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names, module_names
from tdprof.profile.hotspots import Hotspots, UnknownSamples, share_half_width
from tdprof.report.metric_text import doubt_legend, metric_cell
from tdprof.report.summary import asked_for, doubts, event_notes, facts, format_value
from tdprof.text import plural, printable

# Narrower tables keep their shares and names whole and leave the rest out.
WIDE_COLUMNS = 80
# Shares that SPE measures, which fit beside the events; the others are in the JSON and in --spe.
SPE_RATIOS = {
    "branch_misprediction_ratio": "mispredict",
    "l1d_cache_miss_ratio": "L1D miss",
    "ll_cache_read_miss_ratio": "LLC miss",
    "dtlb_walk_ratio": "DTLB walk",
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
    findings: Findings | None = None,
) -> str:
    """The whole report as the console's width and colours allow, without trailing blanks.

    Args:
        findings: of SPE records beside the samples; what they measured of each row stands behind the events.
        limit: the most rows to show; 0 for all.
        sort_event: the event whose shares lead each row, as for ``find_hotspots``.
    """
    wide = console.width >= WIDE_COLUMNS
    with console.capture() as capture:
        console.print(_header(profile))
        if profile.events:
            console.print()
            console.print(_events(profile, wide=wide))
        if told := doubts(profile, unknown):
            console.print()
            for line in told:
                console.print(Text(line), style="yellow")
        console.print()
        if not len(hotspots):
            console.print(Text("No samples: the command ran too briefly, or never ran on a CPU that was measured."))
        else:
            shown = hotspots.rows(slice(limit or None))
            measured = _spe_columns(shown, findings, by_line=by_line) if findings is not None and wide else {}
            console.print(_table(profile, shown, measured, by_line=by_line, sort_event=sort_event, wide=wide))
            if measured:
                for words in doubt_legend(console.width, before="SPE: "):
                    console.print(words)
            if len(hotspots) > len(shown):
                more = plural(len(hotspots) - len(shown), "more source line" if by_line else "more function", "s")
                console.print(Text(f"and {more} (--limit 0 shows all)"), style="dim")
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _header(profile: Profile) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for label, value in facts(profile):
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
            cells = [asked_for(event), *cells, ", ".join(event_notes(event, weight[i]))]
        table.add_row(_one_line(printable(event.name)), *cells)
    return table


def _table(
    profile: Profile,
    hotspots: Hotspots,
    measured: Mapping[str, Sequence[Text]],
    *,
    by_line: bool,
    sort_event: int,
    wide: bool,
) -> Table:
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
    for heading in measured:
        table.add_column(f"SPE {heading} %", justify="right", no_wrap=True)
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
        cells.extend(column[row] for column in measured.values())
        if wide:
            cells.append(_one_line(PurePath(modules[mapped_file[function]]).name, "dim"))
        if by_line:
            cells.append(_one_line(_source_line(profile, function, int(hotspots.line[row]))))
        cells.append(_one_line(name, "dim" if name.startswith("[") else ""))
        table.add_row(*cells)
    return table


def _spe_columns(hotspots: Hotspots, findings: Findings, *, by_line: bool) -> dict[str, list[Text]]:
    """For each ratio that SPE measured, what it is of each row, in percent."""
    table = findings.lines if by_line else findings.functions
    if by_line:
        row_of = {key: row for row, key in enumerate(zip(findings.line_function, findings.line, strict=True))}
        rows = [row_of.get(key) for key in zip(hotspots.function, hotspots.line, strict=True)]
    else:
        known = findings.row_of()
        rows = [known.get(function) for function in hotspots.function.tolist()]
    columns = {}
    for metric, heading in SPE_RATIOS.items():
        column = table.column(metric, "spe")
        if column is None or np.isnan(table.value[:, column]).all():
            continue
        columns[heading] = [Text() if row is None else _percentage(table, row, metric) for row in rows]
    return columns


def _percentage(table: MetricTable, row: int, metric: str) -> Text:
    """A ratio that SPE measured, in percent; blank where it is not known."""
    values = (value for name, value in table.row(row) if (name, value.source) == (metric, "spe"))
    if (value := next(values, None)) is None:
        return Text()
    return metric_cell(replace(value, value=100 * value.value, half_width=100 * value.half_width, units="percent"))


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _source_line(profile: Profile, function: int, line: int) -> str:
    file = printable(profile.functions.file[function]) if function >= 0 else ""
    return f"{PurePath(file).name or '?'}:{line}" if line else "?"


def _percent(share: float) -> str:
    return "" if np.isnan(share) else f"{share:.1%}"
