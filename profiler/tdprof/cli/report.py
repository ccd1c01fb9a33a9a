"""`tdprof report`: hotspots by function or source line, why they are slow, and the program's methodology tree."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console

from tdprof.catalog.entries import CPU_CYCLES
from tdprof.cli.form import Output, output_options, print_result
from tdprof.cli.loading import capture_argument, find_event, load_with_findings, open_input, symbol_options
from tdprof.cli.output import PIPE_COLUMNS
from tdprof.errors import TdprofError
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.pipeline.symbols import DEFAULT_SYMBOLS, SymbolOptions
from tdprof.profile.choice import choose_function
from tdprof.profile.hotspots import Hotspots, find_hotspots, unknown_samples
from tdprof.report.findings.csv import metric_csv, tree_csv
from tdprof.report.findings.json import tree_json
from tdprof.report.findings.lines import render_topdown_lines
from tdprof.report.findings.text import render_topdown
from tdprof.report.findings.tree import render_function, render_tree
from tdprof.report.profile.csv import hotspot_csv
from tdprof.report.profile.json import render_json
from tdprof.report.profile.text import render_text

DEFAULT_LIMIT = 40
# Blocks of several lines; the rest is in the table of --limit 0, or one by one in --function.
DEFAULT_TOPDOWN_LIMIT = 12
# Prose in a pipe is wrapped all the same.
PIPE_TEXT_COLUMNS = 160


@dataclass(frozen=True, slots=True)
class _View:
    """Which part of a profile to print; all hotspots by function without any."""

    by_line: bool
    function: str | None
    has_tree: bool


@click.command("report")
@capture_argument
@output_options(
    json="Print one JSON object, with exact counts and all functions.",
    csv="Print comma-separated values, a row for each function or line.",
    limit=f"The most rows, with --by cgroup of each event; 0 for all ({DEFAULT_LIMIT}, with metrics "
    f"{DEFAULT_TOPDOWN_LIMIT}, with --json or --csv all).",
    has_pager=True,
)
@click.option("--lines", "by_line", is_flag=True, help="A row for each source line instead of each function.")
@click.option("--function", metavar="NAME", help="Everything about one function: name, part of it, or MODULE:NAME.")
@click.option("--tree", "has_tree", is_flag=True, help="The whole program's metrics in the methodology's tree.")
@click.option("--spe", "is_spe", is_flag=True, help="Report the capture's SPE records instead of its samples.")
@click.option("--branches", "is_branches", is_flag=True, help="Report the branch stacks of an imported perf record -b.")
@click.option(
    "--by",
    type=click.Choice(["function", "line", "instruction", "source", "address", "page", "cgroup"]),
    help="What a row is. With --spe: function without it. With --branches: function, not each branch. Else: cgroup.",
)
@click.option("--sort", "sort", metavar="EVENT", help="Order by this event's self counts (cycles, or the first event).")
@symbol_options
def command(
    capture: Path,
    output: Output,
    by_line: bool,
    function: str | None,
    has_tree: bool,
    is_spe: bool,
    is_branches: bool,
    by: str | None,
    sort: str | None,
    symbols: SymbolOptions,
) -> None:
    """Print where a capture's samples fell: hotspots, highest self share first.

    \b
    self    share of the samples with the function at the leaf; its own instructions
    ± 95 %  half the width of the interval that sampling alone leaves around it, in points
    total   share of the samples with the function anywhere in the call stack
    Inlined functions count as functions. Names in brackets say why a function is not known.

    \b
    Of a recording with --topdown each hotspot also has: its Stage 1 metrics as a bar, the way down the methodology's
    tree as long as one metric leads by more than the noise, the Stage 2 metrics found there beside the program's, and
    advice. Values have 95 % intervals; those with too few samples are grey and marked "~".
    Where the capture has SPE records, what they measured of each row stands beside it, named SPE.

    \b
    tdprof report                          the newest capture of this folder
    tdprof report my.capture --lines       the source lines that cost most
    tdprof report my.capture --function parse   everything about one function
    tdprof report my.capture --tree        the whole program's metrics
    tdprof report my.capture --json | jq '.functions[0].metrics.backend_bound'
    tdprof report my.capture --spe --by address   cache lines that threads share
    tdprof report my.capture --branches    branches of perf record -b: how often, mispredicted, cycles
    tdprof report my.capture --by cgroup   samples by control group (perf record --all-cgroups)
    """
    imported = {"--branches": is_branches, "--by cgroup": by == "cgroup"}
    _refuse_contradictions(
        {"--lines": by_line, "--function": function is not None, "--tree": has_tree},
        {"--function": function is not None, "--tree": has_tree, "--spe": is_spe, **imported},
        {"--lines": by_line, **imported},
    )
    if by is not None and not is_spe and by != ("function" if is_branches else "cgroup"):
        if is_branches:
            raise TdprofError(f"--branches has no rows by {by}", hint="--by function", status=2)
        raise TdprofError(
            "--by says what a row of an SPE report is",
            hint="add --spe; or --branches with --by function; or alone: --by cgroup, or --lines",
            status=2,
        )
    _refuse_ignored(imported, sort, symbols)
    if is_branches or by == "cgroup":
        # Only now: a recording of perf that has these is rare.
        from tdprof.cli.report_imported import report_branches, report_cgroups

        if is_branches:
            report_branches(capture, symbols, output, by_function=by == "function")
        else:
            report_cgroups(capture, output)
        return
    if is_spe:
        # Only now: SPE's part of the program is not needed for anything else here.
        from tdprof.cli.spe import report_capture

        report_capture(capture, by or ("line" if by_line else "function"), output, symbols)
        return
    with open_input(capture, symbols) as opened:
        profile, findings = load_with_findings(opened, capture)
    names = [event.name for event in profile.events]
    leading = sort or (CPU_CYCLES if CPU_CYCLES in names else None)
    _report(profile, findings, find_event(profile, leading), _View(by_line, function, has_tree), output)


def _refuse_contradictions(*exclusive: dict[str, bool]) -> None:
    for options in exclusive:
        given = [name for name, is_given in options.items() if is_given]
        if len(given) > 1:
            raise TdprofError(f"{' and '.join(given)} exclude each other", hint="give one of them", status=2)


def _refuse_ignored(imported: dict[str, bool], sort: str | None, symbols: SymbolOptions) -> None:
    """Refuse what would change nothing of ``--branches`` or ``--by cgroup``."""
    for view, is_given in imported.items():
        if is_given and sort is not None:
            raise TdprofError(
                f"--sort orders functions and lines by an event; {view} has an order of its own",
                hint="leave --sort out",
                status=2,
            )
    if imported["--by cgroup"] and symbols != DEFAULT_SYMBOLS:
        raise TdprofError(
            "--by cgroup needs no symbols", hint="leave --symfs, --debug-dir and --no-symbol-cache out", status=2
        )


def _report(profile: Profile, findings: Findings | None, event: int, view: _View, output: Output) -> None:
    if profile.topdown is None and (view.has_tree or view.function is not None):
        option = "--tree" if view.has_tree else "--function"
        raise TdprofError(
            f"{option} shows metrics of the PMU, and the capture has none",
            hint="tdprof record --topdown -- CMD" + ("" if view.has_tree else "; or tdprof annotate CAPTURE FUNCTION"),
            status=2,
        )
    hotspots = find_hotspots(profile, by_line=view.by_line, sort_event=event)
    print_result(
        output,
        json=lambda: _json(profile, findings, hotspots, event, view, limit=output.rows()),
        csv=lambda: _csv(profile, findings, hotspots, event, view, limit=output.rows()),
        text=lambda console: _text(profile, findings, hotspots, event, view, output, console),
        pipe_columns=PIPE_COLUMNS if profile.topdown is None else PIPE_TEXT_COLUMNS,
    )


def _json(
    profile: Profile, findings: Findings | None, hotspots: Hotspots, event: int, view: _View, *, limit: int
) -> Iterable[str]:
    unknown = unknown_samples(profile)
    if findings is not None and view.has_tree:
        none = hotspots.rows(slice(0))
        return render_json(profile, none, unknown, findings, more={"tree": tree_json(findings)})
    if view.function is not None:
        shown = _only(hotspots, choose_function(profile, view.function, event).ids)
        return render_json(profile, shown, unknown, findings, is_whole=True)
    return render_json(profile, hotspots.rows(slice(limit or None)), unknown, findings, by_line=view.by_line)


def _csv(
    profile: Profile, findings: Findings | None, hotspots: Hotspots, event: int, view: _View, *, limit: int
) -> Iterable[str]:
    if findings is not None and view.has_tree:
        return tree_csv(findings)
    if findings is not None and view.function is not None:
        chosen = _only(hotspots, choose_function(profile, view.function, event).ids)
        return metric_csv(findings, findings.row_of()[int(chosen.function[0])])
    shown = hotspots.rows(slice(limit or None))
    return hotspot_csv(profile, shown, findings, by_line=view.by_line, sort_event=event)


def _only(hotspots: Hotspots, functions: Iterable[int]) -> Hotspots:
    return hotspots.rows(np.flatnonzero(np.isin(hotspots.function, list(functions))))


def _text(
    profile: Profile,
    findings: Findings | None,
    hotspots: Hotspots,
    event: int,
    view: _View,
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
            limit=output.rows(DEFAULT_LIMIT),
            by_line=view.by_line,
            sort_event=event,
            findings=findings,
        )
    if view.has_tree:
        return render_tree(profile, findings, unknown, console)
    if view.function is not None:
        chosen = choose_function(profile, view.function, event)
        return render_function(profile, findings, chosen, hotspots, console, sort_event=event)
    render = render_topdown_lines if view.by_line else render_topdown
    limit = output.rows(DEFAULT_LIMIT if view.by_line else DEFAULT_TOPDOWN_LIMIT)
    return render(profile, findings, hotspots, unknown, console, limit=limit, sort_event=event)
