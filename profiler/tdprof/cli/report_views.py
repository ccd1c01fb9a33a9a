"""What `tdprof report` prints of a profile: hotspots, groups of samples, call trees, one function, the methodology.

Each view loads what it needs when it is asked for: together they take a tenth of a report's start.
"""

from collections.abc import Iterable

import numpy as np
from rich.console import Console

from tdprof.cli.form import DEFAULT_LIMIT, DEFAULT_TOPDOWN_LIMIT, Output, print_result
from tdprof.cli.output import PIPE_COLUMNS
from tdprof.model.choices import GroupKind, Order
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.profile.choice import choose_function
from tdprof.profile.hotspots import Hotspots, find_hotspots, unknown_samples
from tdprof.report.profile.text import render_text, rows_beyond_nothing
from tdprof.values import dataclass

# Prose in a pipe is wrapped all the same.
PIPE_TEXT_COLUMNS = 160


@dataclass(frozen=True, slots=True)
class View:
    """Which part of a profile to print; all hotspots by function without any.

    Attributes:
        by_line: source lines instead of functions.
        function: the one function that is wanted.
        has_tree: the methodology's tree; who calls whom where there are no metrics, or around the function.
        group: processes, threads, commands or modules instead of functions.
        order: what hotspots are ordered by.
        event: the event that leads.
    """

    by_line: bool
    function: str | None
    has_tree: bool
    group: GroupKind | None
    order: Order
    event: int


def print_view(profile: Profile, findings: Findings | None, view: View, output: Output) -> None:
    """Print a profile, or the part of it that the view asks for.

    Raises:
        TdprofError: it has no such function.
    """
    event = view.event
    if view.group is not None:
        _print_groups(profile, view.group, event, output)
        return
    if view.has_tree and (profile.topdown is None or view.function is not None):
        _print_calls(profile, view.function, event, output)
        return
    hotspots = find_hotspots(profile, by_line=view.by_line, sort_event=event, order=view.order)
    print_result(
        output,
        json=lambda: _json(profile, findings, hotspots, event, view, limit=output.rows()),
        csv=lambda: _csv(profile, findings, hotspots, event, view, limit=output.rows()),
        text=lambda console: _text(profile, findings, hotspots, event, view, output, console),
        pipe_columns=PIPE_COLUMNS if profile.topdown is None else PIPE_TEXT_COLUMNS,
    )


def _json(
    profile: Profile, findings: Findings | None, hotspots: Hotspots, event: int, view: View, *, limit: int
) -> Iterable[str]:
    from tdprof.report.findings.json import tree_json
    from tdprof.report.profile.json import render_json

    unknown = unknown_samples(profile)
    if findings is not None and view.has_tree:
        none = hotspots.rows(slice(0))
        return render_json(profile, none, unknown, findings, more={"tree": tree_json(findings)})
    if view.function is not None:
        shown = _only(hotspots, choose_function(profile, view.function, event).ids)
        return render_json(profile, shown, unknown, findings, is_whole=True)
    return render_json(profile, hotspots.rows(slice(limit or None)), unknown, findings, by_line=view.by_line)


def _csv(
    profile: Profile, findings: Findings | None, hotspots: Hotspots, event: int, view: View, *, limit: int
) -> Iterable[str]:
    from tdprof.report.findings.csv import metric_csv, tree_csv
    from tdprof.report.profile.csv import hotspot_csv

    if findings is not None and view.has_tree:
        return tree_csv(findings)
    if findings is not None and view.function is not None:
        chosen = _only(hotspots, choose_function(profile, view.function, event).ids)
        return metric_csv(findings, findings.row_of().get(int(chosen.function[0])))
    shown = hotspots.rows(slice(limit or None))
    return hotspot_csv(profile, shown, findings, by_line=view.by_line, sort_event=event)


def _only(hotspots: Hotspots, functions: Iterable[int]) -> Hotspots:
    return hotspots.rows(np.flatnonzero(np.isin(hotspots.function, list(functions))))


def _text(
    profile: Profile,
    findings: Findings | None,
    hotspots: Hotspots,
    event: int,
    view: View,
    output: Output,
    console: Console,
) -> str:
    unknown = unknown_samples(profile)
    if findings is None or profile.topdown is None:
        return render_text(
            profile,
            hotspots,
            unknown,
            console,
            limit=output.rows(min(DEFAULT_LIMIT, rows_beyond_nothing(profile, hotspots, event, view.order))),
            by_line=view.by_line,
            sort_event=event,
            findings=findings,
        )
    from tdprof.report.findings.lines import render_topdown_lines
    from tdprof.report.findings.text import render_topdown
    from tdprof.report.findings.tree import render_function, render_tree

    if view.has_tree:
        return render_tree(profile, findings, unknown, console)
    if view.function is not None:
        chosen = choose_function(profile, view.function, event)
        return render_function(profile, findings, chosen, hotspots, console, sort_event=event)
    render = render_topdown_lines if view.by_line else render_topdown
    limit = output.rows(DEFAULT_LIMIT if view.by_line else DEFAULT_TOPDOWN_LIMIT)
    return render(profile, findings, hotspots, unknown, console, limit=limit, sort_event=event)


def _print_groups(profile: Profile, kind: GroupKind, event: int, output: Output) -> None:
    from tdprof.profile.groups import group_samples
    from tdprof.report.groups import csv as groups_csv
    from tdprof.report.groups import json as groups_json
    from tdprof.report.groups import text as groups_text

    groups = group_samples(profile, kind, event)
    print_result(
        output,
        json=lambda: [groups_json.render_json(profile, groups, limit=output.rows())],
        csv=lambda: groups_csv.render_csv(profile, groups, limit=output.rows()),
        text=lambda console: groups_text.render_text(
            profile, groups, unknown_samples(profile), console, limit=output.limit, usual=DEFAULT_LIMIT
        ),
    )


def _print_calls(profile: Profile, function: str | None, event: int, output: Output) -> None:
    """Who calls whom; of a function its callers and its callees."""
    from tdprof.profile.call_lines import call_lines, callees, callers
    from tdprof.report.calls import csv as calls_csv
    from tdprof.report.calls import json as calls_json
    from tdprof.report.calls import text as calls_text

    if function is None:
        trees = {"calls": call_lines(profile, event)}
    else:
        ids = choose_function(profile, function, event).ids
        trees = {"callers": callers(profile, event, ids), "callees": callees(profile, event, ids)}
    print_result(
        output,
        json=lambda: [calls_json.render_json(profile, trees, event, limit=output.rows())],
        csv=lambda: calls_csv.render_csv(profile, trees, event, limit=output.rows()),
        text=lambda console: calls_text.render_text(
            profile, trees, unknown_samples(profile), console, event=event, limit=output.limit, usual=DEFAULT_LIMIT
        ),
    )
