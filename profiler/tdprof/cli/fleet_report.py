"""`tdprof fleet report`: functions of a fleet, with intervals over its hosts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tdprof.cli.fleet import chosen_options, store_argument
from tdprof.cli.form import DEFAULT_LIMIT, Output, output_options, print_result
from tdprof.cli.output import waiting

if TYPE_CHECKING:
    from tdprof.fleet.selection import Chosen
    from tdprof.fleet.store import Store


@click.command("report")
@store_argument
@click.option(
    "-e", "--event", metavar="EVENT", help="Shares of this event (cycles, or what most recordings have first)."
)
@click.option(
    "--metrics", "has_metrics", is_flag=True, help="Of recordings with --topdown: metrics, of all code and functions."
)
@output_options(
    json="Print one JSON object, with all functions.",
    csv="Print comma-separated values, a row for each function.",
    limit=f"The most functions of each kind of core; 0 for all ({DEFAULT_LIMIT}, with --json or --csv all).",
    has_pager=True,
)
@chosen_options
def command(store: str, event: str | None, has_metrics: bool, output: Output, chosen: "Callable[[], Chosen]") -> None:
    """Print the functions of a store's hosts, highest self share first, for each kind of core by itself.

    \b
    self, total   share of the events a second, over all hosts; a host recorded longer counts no more
    95 %          the interval, with hosts as the sample: what differs between hosts is in it
    hosts         on how many the function was seen
    design effect how many times the variance is that of so many samples of one host

    \b
    tdprof fleet report prod
    tdprof fleet report prod --since 7d --where service=web --where core=neoverse-v1
    tdprof fleet report prod --metrics
    tdprof fleet report prod --json | jq '.strata[0].functions[0]'

    With fewer than 5 hosts of a kind, the interval is only the chance of sampling these, marked "~".
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.memory import keep_process_small
    from tdprof.fleet.report import find_recordings, share_functions
    from tdprof.fleet.store import Store
    from tdprof.report.fleet.csv import render_csv
    from tdprof.report.fleet.json import render_json
    from tdprof.report.fleet.text import render_text

    keep_process_small()
    opened = Store(store)
    if has_metrics:
        _report_metrics(opened, chosen(), output)
        return
    with waiting(f"reading {store}"):
        found = find_recordings(opened, chosen(), event)
        shares = share_functions(opened, found)
    limit = output.rows(DEFAULT_LIMIT)
    print_result(
        output,
        json=lambda: render_json(shares, found.set_aside, limit=output.rows()),
        csv=lambda: render_csv(shares, limit=output.rows()),
        text=lambda console: render_text(shares, found.set_aside, console, limit=limit),
    )


def _report_metrics(store: "Store", chosen: "Chosen", output: Output) -> None:
    from tdprof.catalog.choose import find_by_name
    from tdprof.fleet.metrics import estimate_metrics
    from tdprof.fleet.report import find_recordings
    from tdprof.report.fleet.metrics import render_metrics_csv, render_metrics_json, render_metrics_text

    with waiting(f"reading {store.place}"):
        found = find_recordings(store, chosen, None, each_recording=True)
        metrics = estimate_metrics(store, found.parts.recordings)
    leading = [find_by_name(each.catalog).roots for each in metrics]
    print_result(
        output,
        json=lambda: render_metrics_json(metrics, found.set_aside, limit=output.rows()),
        csv=lambda: render_metrics_csv(metrics, limit=output.rows()),
        text=lambda console: render_metrics_text(
            metrics, leading, found.set_aside, console, limit=output.rows(DEFAULT_LIMIT)
        ),
    )
