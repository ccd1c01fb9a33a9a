"""`tdprof fleet compact`: a store's days put together and added up."""

import json

import click

from tdprof.cli.fleet import asked_again, store_argument
from tdprof.cli.form import Output, output_options, print_plain
from tdprof.cli.output import waiting
from tdprof.text import plural


@click.command("compact")
@store_argument
@output_options(json="Print one JSON object.", csv="Print comma-separated values.")
def command(store: str, output: Output) -> None:
    """Put each host's recordings of a day into one file, and add days up: one, two, four and so on together.

    \b
    tdprof fleet compact prod

    Answers stay the same and take a few files for a month of many hosts. What is added later is read beside it; run
    this once a day, or as often as reports ought to be fast. It may run while captures are added, and may be killed.
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.memory import keep_process_small
    from tdprof.fleet.compact import compact_store
    from tdprof.fleet.store import Store
    from tdprof.report.csv_lines import write_rows

    keep_process_small()
    with waiting(f"reading {store}") as progress:
        done = asked_again(lambda: compact_store(Store(store), progress))
    told = {"joined": done.joined, "spans": done.spans, "removed": done.removed}
    print_plain(
        output.form,
        json=lambda: [json.dumps(told, indent=1) + "\n"],
        csv=lambda: write_rows(list(told), [list(told.values())]),
        text=lambda: [
            f"{plural(done.joined, 'file', 's')} put together; sums of {plural(done.spans, 'span', 's')} of days "
            f"written, {plural(done.removed, 'file', 's')} of older sums removed\n"
        ],
    )
