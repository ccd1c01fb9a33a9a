"""The report for people: what was measured, what is missing, then the hotspots as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from tdprof.model.choices import Order
from tdprof.model.findings import Findings, MetricTable
from tdprof.model.profile import Profile
from tdprof.profile.frames import module_names
from tdprof.profile.guesses import marked_names
from tdprof.profile.hotspots import Hotspots, UnknownSamples, share_half_width
from tdprof.report.columns import Column, as_text, format_table, labelled, left_out, names, numbers, prose
from tdprof.report.metric_text import doubt_legend, metric_cell
from tdprof.report.summary import asked_for, doubts, event_notes, facts, format_value, no_samples
from tdprof.text import printable

# Events with a row and a column of their own; a screen has room for a dozen.
MOST_EVENTS = 64
# Narrower tables keep their shares and names whole and leave the rest out.
WIDE_COLUMNS = 80
LEAST_SHARE = 0.0005  # what is less is printed as 0.0 %
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
        findings: of SPE records beside the samples; what they measured of each row stands behind the events, and
            above the table what they say otherwise than the samples do.
        limit: the most rows to show; 0 for all.
        sort_event: the event whose shares lead each row, as for ``find_hotspots``.
    """
    width = console.width
    lines = header_lines(profile, unknown, width)
    if findings is not None and findings.disagreements:
        for sentence in map(printable, findings.disagreements):
            lines += prose(sentence, width, style="yellow")
        lines.append(Text())
    if not len(hotspots):
        lines += prose(no_samples(doubts(profile, unknown)), width)
        return as_text(console, lines)
    shown = hotspots.rows(slice(limit or None))
    is_wide = width >= WIDE_COLUMNS
    measured = _spe_columns(shown, findings, by_line=by_line) if findings is not None and is_wide else {}
    lines += _table(profile, shown, measured, by_line=by_line, sort_event=sort_event, width=width)
    if measured:
        lines += doubt_legend(width, before="SPE: ")
    lines += left_out(len(hotspots) - len(shown), "source line" if by_line else "function", width)
    return as_text(console, lines)


def header_lines(profile: Profile, unknown: list[UnknownSamples], width: int) -> list[Text]:
    """What was measured, the events, and what to know about the numbers, with an empty line behind."""
    lines = labelled(facts(profile), width)
    if profile.events:
        lines += [Text(), *_events(profile, width)]
    if told := doubts(profile, unknown):
        lines.append(Text())
        for line in told:
            lines += prose(line, width, style="yellow")
    return [*lines, Text()]


def _events(profile: Profile, width: int) -> list[Text]:
    is_wide = width >= WIDE_COLUMNS
    columns = names("event") + numbers(*(("asked for",) if is_wide else ()), "samples", "in samples", "counted")
    columns += [Column(wraps=True)] if is_wide else []
    samples, weight = profile.total_samples().tolist(), profile.total_weight().tolist()
    rows = []
    for i, event in enumerate(profile.events[:MOST_EVENTS]):
        counted = "unknown" if event.total is None else format_value(event.total, event.unit)
        cells = [f"{samples[i]:,}", format_value(weight[i], event.unit), counted]
        if is_wide:
            cells = [asked_for(event), *cells, ", ".join(event_notes(event, weight[i]))]
        rows.append([printable(event.name), *cells])
    beyond = left_out(len(profile.events) - len(rows), "event", width, hint="--json has all")
    return format_table(columns, rows, width) + beyond


def _table(
    profile: Profile,
    hotspots: Hotspots,
    measured: Mapping[str, Sequence[Text]],
    *,
    by_line: bool,
    sort_event: int,
    width: int,
) -> list[Text]:
    is_wide = width >= WIDE_COLUMNS
    event = profile.events[sort_event]
    others = [i for i in range(min(len(profile.events), MOST_EVENTS)) if i != sort_event and is_wide]
    total = profile.total_weight().astype(np.float64)
    with np.errstate(invalid="ignore"):
        self_share = hotspots.self_weight / total
        inclusive_share = hotspots.inclusive_weight[:, sort_event] / total[sort_event]
    half_width = share_half_width(self_share[:, sort_event], profile, sort_event)

    columns = numbers("self", "± 95 %", "total")
    columns += numbers("samples", printable(event.name)) if is_wide else []
    columns += numbers(*(printable(profile.events[other].name) for other in others))
    columns += numbers(*(f"SPE {heading} %" for heading in measured))
    columns += names(*(["module"] if is_wide else []), *(["line"] if by_line else []))
    columns += names("function")  # last, because names are the longest and a pipe gets them whole

    function_name, modules = marked_names(profile), module_names(profile)
    mapped_file = [*profile.functions.mapped_file.tolist(), -1]
    rows = []
    for row, function in enumerate(hotspots.function.tolist()):
        name = function_name[function]
        cells: list[str | Text] = [
            percent(self_share[row, sort_event]),
            "" if np.isnan(half_width[row]) else f"{half_width[row] * 100:.1f}",
            percent(inclusive_share[row]),
        ]
        if is_wide:
            cells.append(f"{hotspots.self_samples[row, sort_event]:,}")
            cells.append(format_value(int(hotspots.self_weight[row, sort_event]), event.unit))
        cells.extend(percent(self_share[row, other]) for other in others)
        cells.extend(column[row] for column in measured.values())
        if is_wide:
            cells.append(Text(PurePath(modules[mapped_file[function]]).name, "dim"))
        if by_line:
            cells.append(_source_line(profile, function, int(hotspots.line[row])))
        rows.append([*cells, Text(name, "dim" if name.startswith("[") else "")])
    return format_table(columns, rows, width)


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


def _source_line(profile: Profile, function: int, line: int) -> str:
    file = printable(profile.functions.file[function]) if function >= 0 else ""
    return f"{PurePath(file).name or '?'}:{line}" if line else "?"


def rows_beyond_nothing(profile: Profile, hotspots: Hotspots, event: int, order: Order) -> int:
    """How many rows, in their order, do not round to nothing; at least one."""
    weight = hotspots.self_weight if order is Order.SELF else hotspots.inclusive_weight
    whole = float(profile.total_weight()[event])
    share = weight[:, event] / whole if whole else np.ones(len(hotspots))
    return max(1, int(np.count_nonzero(~is_folded(share))))


def is_folded(share: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether shares are printed as 0.0 %."""
    return share < LEAST_SHARE


def percent(share: float) -> str:
    """A share as reports print it; empty where it is not known."""
    return "" if np.isnan(share) else f"{share:.1%}"
