"""`tdprof report --branches` and `--by cgroup`: what recordings of perf hold beside samples and stacks."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tdprof.capture.tables import has_table, read_table
from tdprof.cli.loading import open_input
from tdprof.cli.output import print_rendered, standard_output, waiting
from tdprof.errors import TdprofError
from tdprof.pipeline.branches import load_branches
from tdprof.pipeline.symbols import SymbolOptions
from tdprof.profile.cgroups import add_up_cgroups
from tdprof.report.branches.text import render_branches, render_branches_csv, render_branches_json
from tdprof.report.cgroups.text import render_cgroups, render_cgroups_csv, render_cgroups_json


@dataclass(frozen=True, slots=True)
class TableForm:
    """How a table is printed; ``limit`` is the most rows, 0 for all, None for as many as usual."""

    as_json: bool
    as_csv: bool
    limit: int | None
    usual_limit: int
    may_page: bool


def report_branches(capture: Path, symbols: SymbolOptions, form: TableForm, *, by_function: bool) -> None:
    """Print a capture's branch stacks, or those of perf.data.

    Raises:
        TdprofError: no capture, or one without branch stacks.
    """
    with open_input(capture, symbols, keeps_time=False) as opened, waiting(f"reading {capture}") as opened.progress:
        report = load_branches(opened, by_function=by_function)
    _print(
        form,
        lambda limit: [render_branches_json(report, limit=limit)],
        lambda limit: render_branches_csv(report, limit=limit),
        lambda console, limit: render_branches(report, console, limit=limit),
    )


def report_cgroups(capture: Path, form: TableForm) -> None:
    """Print a capture's samples by control group, or those of perf.data.

    Raises:
        TdprofError: no capture, or one whose samples have no control groups.
    """
    with open_input(capture, keeps_time=False) as opened:
        samples = read_table(opened.tables, "samples", ("cgroup",))
        groups = read_table(opened.tables, "cgroups").to_pylist() if has_table(opened.tables, "cgroups") else []
        events = opened.manifest.events
    if not groups and samples["cgroup"].null_count == len(samples):
        raise TdprofError(
            f"the samples of {capture} tell no control group", hint="perf record --all-cgroups, then tdprof import"
        )
    report = add_up_cgroups(events, samples, {row["cgroup"]: row["path"] for row in groups})
    _print(
        form,
        lambda limit: [render_cgroups_json(report, limit=limit)],
        lambda limit: render_cgroups_csv(report, limit=limit),
        lambda console, limit: render_cgroups(report, console, limit=limit),
    )


def _print(
    form: TableForm,
    json: Callable[[int], Iterable[str]],
    csv: Callable[[int], Iterable[str]],
    text: Callable[[Console, int], str],
) -> None:
    if form.as_json or form.as_csv:
        with standard_output():
            sys.stdout.writelines((csv if form.as_csv else json)(form.limit or 0))
        return
    rows = form.usual_limit if form.limit is None else form.limit
    print_rendered(lambda console: text(console, rows), may_page=form.may_page)
