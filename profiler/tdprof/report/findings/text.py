"""The report of a Topdown recording for people: for each hotspot where its slots go, why, and what to do."""

import math
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.catalog.entries import Catalog
from tdprof.model.events import EventInfo, TopdownInfo
from tdprof.model.findings import Diagnosis, Findings, MetricValue
from tdprof.model.profile import Profile
from tdprof.profile.frames import module_names
from tdprof.profile.guesses import marked_names
from tdprof.profile.hotspots import Hotspots, UnknownSamples, share_half_width
from tdprof.report.columns import as_text, flow, labelled, left_out, prose
from tdprof.report.metric_text import (
    CodeMetrics,
    bar_legend,
    doubt_legend,
    format_metric,
    functions_left_out,
    level_1_bar,
    level_1_name,
    metric_cell,
    metric_style,
    metrics_of,
    short_units,
)
from tdprof.report.summary import doubts, facts, no_samples
from tdprof.text import plural, printable

# Of a group in a hotspot's block; --function shows all.
_MOST_METRICS = 6
_MOST_GROUPS = 3


def render_topdown(
    profile: Profile,
    findings: Findings,
    hotspots: Hotspots,
    unknown: list[UnknownSamples],
    console: Console,
    *,
    limit: int,
    sort_event: int,
) -> str:
    """The whole report as the console's width and colours allow, without trailing blanks.

    Args:
        profile: calibrated, so that each event stands once.
        limit: the most functions to show; 0 for all.
        sort_event: the event whose shares lead each block, as for ``find_hotspots``.
    """
    width = console.width
    lines = [*header_lines(profile, findings, unknown, width), Text(), *_program(findings, width), Text()]
    if not len(hotspots):
        lines += prose(no_samples(doubts(profile, unknown)), width)
    shown = hotspots.rows(slice(limit or None))
    shares, average = FunctionShares(profile, shown, sort_event), metrics_of(findings.program, 0)
    rows = findings.row_of()
    for index, function in enumerate(shown.function.tolist()):
        lines += _block(findings, rows.get(function), average, shares.title(index, function), width)
        lines.append(Text())
    hint = "--limit 0 shows all; --function NAME everything about one"
    lines += left_out(len(hotspots) - len(shown), "function", width, hint=hint)
    return as_text(console, lines)


def header_lines(profile: Profile, findings: Findings, unknown: list[UnknownSamples], width: int) -> list[Text]:
    """What was measured, and what a reader should know before the numbers."""
    said = [*facts(profile), ("core", findings.catalog.title)]
    if profile.topdown is not None:
        said.append(("events", _groups(profile.topdown, profile.events)))
    lines = labelled(said, width)
    told = [
        *doubts(profile, unknown),
        *_idle_groups(profile.topdown, findings),
        *map(printable, findings.disagreements),
        *functions_left_out(findings),
    ]
    if told:
        lines.append(Text())
    for each in told:
        lines += prose(each, width, style="yellow")
    return lines


def _groups(topdown: TopdownInfo, events: Sequence[EventInfo]) -> str:
    count = len({name for group in topdown.groups for name in group.names})
    said = f"{plural(count, 'event', 's')} in {plural(len(topdown.groups), 'group', 's')}"
    if topdown.is_pass_per_group:
        return f"{said}, one run of the command for each"
    seen = [
        event.running_ns / event.enabled_ns for event in events if event.enabled_ns and event.running_ns is not None
    ]
    if len(topdown.groups) == 1 or not seen:
        return said
    return f"{said} that took turns on the counters, each counted {min(seen):.1%} of the time or more"


def _idle_groups(topdown: TopdownInfo | None, findings: Findings) -> list[str]:
    """The metrics that were asked for and could not be measured."""
    if topdown is None:
        return []
    asked = {metric for group in topdown.groups for metric in group.metrics}
    missing = [name for name in findings.catalog.metrics if name in asked and findings.program.column(name) is None]
    return [f"not measured, for their counters never ran: {', '.join(missing)}"] if missing else []


def _program(findings: Findings, width: int) -> list[Text]:
    own = metrics_of(findings.program, 0)
    return [
        *level_1_lines(findings.catalog, own, Text("the whole program", style="bold"), width),
        *path_lines(own, findings.program_diagnosis, width),
        *doubt_legend(width, before=f"{bar_legend(findings.catalog)}; ", indent=2),
    ]


class FunctionShares:
    """Titles of hotspots: share, name, module."""

    def __init__(self, profile: Profile, hotspots: Hotspots, event: int) -> None:
        total = float(profile.total_weight()[event]) if profile.events else math.nan
        with np.errstate(invalid="ignore", divide="ignore"):
            self._own = hotspots.self_weight[:, event] / total
            self._inclusive = hotspots.inclusive_weight[:, event] / total
        self._half_width = share_half_width(self._own, profile, event)
        self._names, self._modules = marked_names(profile), module_names(profile)
        self._mapped_file = [*profile.functions.mapped_file.tolist(), -1]

    def title(self, index: int, function: int) -> Text:
        name, module = self._names[function], PurePath(self._modules[self._mapped_file[function]]).name
        doubt = self._half_width[index]
        share = f"{self._own[index]:6.1%}" + ("" if math.isnan(doubt) else f" ± {doubt * 100:.1f}")
        return Text.assemble(
            (share, "bold"),
            "  ",
            (name, "dim bold" if name.startswith("[") else "bold"),
            (f"  {module}" if module else "", "dim"),
            (f"  with callees {self._inclusive[index]:.1%}", "dim"),
        )


def _block(findings: Findings, row: int | None, average: CodeMetrics, title: Text, width: int) -> list[Text]:
    if row is None:
        return [title]
    own, diagnosis = metrics_of(findings.functions, row), findings.diagnoses[row]
    lines = level_1_lines(findings.catalog, own, title, width)
    lines += path_lines(own, diagnosis, width)
    for group in _leads_to(findings.catalog, diagnosis):
        lines += _group_lines(findings.catalog, group, own, average, width)
    return lines + advice_lines(diagnosis, width)


def advice_lines(diagnosis: Diagnosis, width: int) -> list[Text]:
    """What to do, wrapped to the width."""
    if not diagnosis.advice:
        return []
    return prose(f"-> {' '.join(diagnosis.advice.split())}", width, style="green", indent=2)


def _leads_to(catalog: Catalog, diagnosis: Diagnosis) -> list[str]:
    """The groups below the end of the path; farther ones belong to what was left behind on the way."""
    children = catalog.tree.get(diagnosis.path[-1], ()) if diagnosis.path else ()
    near = [group for group in diagnosis.groups if group in children]
    return (near or list(diagnosis.groups))[:_MOST_GROUPS]


def level_1_lines(catalog: Catalog, own: CodeMetrics, title: Text, width: int) -> list[Text]:
    """Title, bar and level-1 metrics of a piece of code; or that it has too few samples for them."""
    roots = [(name, own.values.get(name)) for name in catalog.roots]
    if not any(value is not None and value.is_significant for _, value in roots):
        samples = max((value.samples for _, value in roots if value is not None), default=0)
        few = f"{plural(samples, 'sample', 's')} of its scarcest event: too few to say why"
        reason = few if samples else "Stage 1 is not known: no samples of its own, or not measured"
        return [title, Text(f"  {reason}", style="dim")]
    items = [level_1_bar(catalog, own.values, min(60, max(24, width // 4)))]
    for name, value in roots:
        units = short_units(value.units) if value is not None else ""
        items.append(Text.assemble(f"{level_1_name(name)} ", metric_cell(value), units))
    return [title, *flow(items, width, indent=2)]


def path_lines(own: CodeMetrics, diagnosis: Diagnosis, width: int) -> list[Text]:
    """The way down the tree, each metric with its value and what it is a share of."""
    items: list[Text] = []
    for name in diagnosis.path:
        value = own.values[name]
        items.append(Text.assemble("> " if items else "", (name, "bold"), f" {format_metric(value)} {value.units}"))
    return flow(items, width, indent=2, separator=" ")


def _group_lines(catalog: Catalog, group: str, own: CodeMetrics, average: CodeMetrics, width: int) -> list[Text]:
    """A group's metrics beside the program's, those farthest from it first."""
    members = [name for name in catalog.groups[group].metrics if name in own.values]
    if not members:
        return []
    members.sort(key=lambda name: -_distance(own.values[name], average.values.get(name)))
    items = [Text(f"{catalog.groups[group].title}:", style="underline")]
    for name in members[:_MOST_METRICS]:
        value = own.values[name]
        source = "SPE " if value.source == "spe" else ""
        item = Text.assemble(
            (f"{name} {source}", metric_style(value)), metric_cell(value), _spaced(short_units(value.units))
        )
        beside = [f"program {format_metric(average.values[name])}"] if name in average.values else []
        if name in own.spe and value.source != "spe":
            beside.append(f"SPE {format_metric(own.spe[name])}")
        items.append(item.append(f" ({', '.join(beside)})" if beside else "", style="dim"))
    if len(members) > _MOST_METRICS:
        items.append(Text(f"and {len(members) - _MOST_METRICS} more (--function)", style="dim"))
    return flow(items, width, indent=2, hanging=2)


def _spaced(units: str) -> str:
    return units if units in ("%", "") else f" {units}"


def _distance(value: MetricValue, average: MetricValue | None) -> float:
    """How far a value is from the program's, in halves of their intervals; nothing that is noise comes first."""
    if average is None or not value.is_significant:
        return -1.0
    doubt = math.hypot(value.half_width, 0.0 if math.isnan(average.half_width) else average.half_width)
    return abs(value.value - average.value) / doubt if doubt else 0.0
