"""`tdprof report --branches` and `--by cgroup`: what recordings of perf hold beside samples and stacks."""

from pathlib import Path

from tdprof.capture.tables import has_table, read_table
from tdprof.cli.form import DEFAULT_LIMIT, Output, print_result
from tdprof.cli.loading import open_input
from tdprof.cli.output import waiting
from tdprof.errors import TdprofError
from tdprof.model.choices import SymbolOptions
from tdprof.pipeline.branches import load_branches
from tdprof.profile.cgroups import add_up_cgroups
from tdprof.report.branches import csv as branches_csv
from tdprof.report.branches import json as branches_json
from tdprof.report.branches import text as branches_text
from tdprof.report.cgroups import csv as cgroups_csv
from tdprof.report.cgroups import json as cgroups_json
from tdprof.report.cgroups import text as cgroups_text


def report_branches(capture: Path, symbols: SymbolOptions, output: Output, *, by_function: bool) -> None:
    """Print a capture's branch stacks, or those of perf.data.

    Raises:
        TdprofError: no capture, or one without branch stacks.
    """
    with open_input(capture, symbols, keeps_time=False) as opened, waiting(f"reading {capture}") as opened.progress:
        report = load_branches(opened, by_function=by_function)
    print_result(
        output,
        json=lambda: [branches_json.render_json(report, limit=output.rows())],
        csv=lambda: branches_csv.render_csv(report, limit=output.rows()),
        text=lambda console: branches_text.render_text(report, console, limit=output.rows(DEFAULT_LIMIT)),
    )


def report_cgroups(capture: Path, output: Output) -> None:
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
    print_result(
        output,
        json=lambda: [cgroups_json.render_json(report, limit=output.rows())],
        csv=lambda: cgroups_csv.render_csv(report, limit=output.rows()),
        text=lambda console: cgroups_text.render_text(report, console, limit=output.rows(DEFAULT_LIMIT)),
    )
