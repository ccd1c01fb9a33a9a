"""`tdprof report --branches`: what recordings of perf hold beside samples and stacks."""

from tdprof.cli.capture_options import Input
from tdprof.cli.form import DEFAULT_LIMIT, Output, print_result
from tdprof.cli.loading import open_input, say_losses
from tdprof.cli.output import waiting
from tdprof.model.choices import SymbolOptions
from tdprof.pipeline.branches import load_branches
from tdprof.report.branches import csv as branches_csv
from tdprof.report.branches import json as branches_json
from tdprof.report.branches import text as branches_text


def report_branches(source: Input, symbols: SymbolOptions, output: Output, *, by_function: bool) -> None:
    """Print a capture's branch stacks, or those of perf.data.

    Raises:
        TdprofError: no capture, or one without branch stacks.
    """
    with open_input(source, symbols, keeps_time=False) as opened, waiting(f"reading {source.path}") as opened.progress:
        report = load_branches(opened, by_function=by_function)
        say_losses(opened.manifest.losses)  # of all samples, of which the branches are a part
    print_result(
        output,
        json=lambda: [branches_json.render_json(report, limit=output.rows())],
        csv=lambda: branches_csv.render_csv(report, limit=output.rows()),
        text=lambda console: branches_text.render_text(report, console, limit=output.rows(DEFAULT_LIMIT)),
    )
