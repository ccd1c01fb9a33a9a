"""`tdprof fleet spe`: latencies of operations on all hosts, as exact quantiles with intervals over hosts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tdprof.cli.fleet import chosen_options, store_argument
from tdprof.cli.form import DEFAULT_LIMIT, Output, output_options, print_result
from tdprof.cli.output import waiting

if TYPE_CHECKING:
    from tdprof.fleet.selection import Chosen

_LATENCIES = {"total": "total_latency", "issue": "issue_latency", "translation": "translation_latency"}


@click.command("spe")
@store_argument
@click.option(
    "--latency",
    type=click.Choice(list(_LATENCIES)),
    default="total",
    help="From dispatch to completion (total, the default), to issue, or of the address's translation.",
)
@output_options(
    json="Print one JSON object, with all functions.",
    csv="Print comma-separated values, a row for each function and quantile.",
    limit=f"The most functions of each kind of core; 0 for all ({DEFAULT_LIMIT}, with --json or --csv all).",
    has_pager=True,
)
@chosen_options
def command(store: str, latency: str, output: Output, chosen: "Callable[[], Chosen]") -> None:
    """Print the latencies of each function's operations, in cycles, that SPE recorded on a store's hosts.

    \b
    operations    share of all operations with this latency, each host by its operations a second
    p50, p90, p99 so many percent of a function's operations took no more cycles: exact, from whole histograms
    95 %          interval of it over hosts, by Woodruff's method: what differs between hosts is in it

    \b
    tdprof fleet spe prod
    tdprof fleet spe prod --since 7d --where core=neoverse-v1 --latency translation
    tdprof fleet spe prod --json | jq '.strata[0].functions[0].quantiles'

    With fewer than 5 hosts the interval is only the chance of sampling these, marked "~".
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.memory import keep_process_small
    from tdprof.fleet.latencies import find_latencies
    from tdprof.fleet.store import Store
    from tdprof.report.fleet.latencies import render_latencies_csv, render_latencies_json, render_latencies_text

    keep_process_small()
    with waiting(f"reading {store}"):
        found, set_aside = find_latencies(Store(store), chosen(), _LATENCIES[latency])
    limit = output.rows(DEFAULT_LIMIT)
    print_result(
        output,
        json=lambda: render_latencies_json(found, set_aside, limit=output.rows()),
        csv=lambda: render_latencies_csv(found, limit=output.rows()),
        text=lambda console: render_latencies_text(found, set_aside, console, limit=limit),
    )
