"""`tdprof report`: hotspots by function or source line."""

import os
import sys
from pathlib import Path

import click
from rich.console import Console

from tdprof.cli.loading import capture_argument, find_event, load_with_progress, symbol_options
from tdprof.cli.output import standard_output
from tdprof.errors import TdprofError
from tdprof.pipeline import SymbolOptions
from tdprof.report.hotspots import find_hotspots, unknown_samples
from tdprof.report.json import render_json
from tdprof.report.text import render_text

DEFAULT_LIMIT = 40
# Wide enough for any name: what reads a pipe does its own cutting.
PIPE_COLUMNS = 100_000


@click.command("report")
@capture_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with exact counts and all functions.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"The most rows to print; 0 for all ({DEFAULT_LIMIT}, with --json all).",
)
@click.option("--lines", "by_line", is_flag=True, help="A row for each source line instead of each function.")
@click.option("--spe", "is_spe", is_flag=True, help="Report the capture's SPE records instead of its samples.")
@click.option(
    "--by",
    type=click.Choice(["function", "line", "instruction", "source", "address", "page"]),
    help="With --spe: what a row is (function).",
)
@click.option("--sort", "sort", metavar="EVENT", help="Order by this event's self counts (the first event).")
@symbol_options
def command(
    capture: Path,
    as_json: bool,
    limit: int | None,
    by_line: bool,
    is_spe: bool,
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
    tdprof report                          the newest capture of this folder
    tdprof report my.capture --lines       the source lines that cost most
    tdprof report my.capture --json | jq '.functions[0]'
    tdprof report my.capture --spe --by address   cache lines that threads share
    """
    if by is not None and not is_spe:
        raise TdprofError("--by says what a row of an SPE report is", hint="add --spe; or use --lines", status=2)
    if is_spe:
        # Only now: SPE's part of the program is not needed for anything else here.
        from tdprof.cli.spe import report_capture

        report_capture(capture, by or ("line" if by_line else "function"), as_json=as_json, limit=limit)
        return
    profile = load_with_progress(capture, symbols)
    sort_event = find_event(profile, sort)
    hotspots = find_hotspots(profile, by_line=by_line, sort_event=sort_event)
    unknown = unknown_samples(profile)
    with standard_output():
        if as_json:
            sys.stdout.writelines(render_json(profile, hotspots.rows(slice(limit or None)), unknown))
            return
        fits_width = sys.stdout.isatty() or "COLUMNS" in os.environ
        console = Console(width=None if fits_width else PIPE_COLUMNS)
        rows = DEFAULT_LIMIT if limit is None else limit
        text = render_text(profile, hotspots, unknown, console, limit=rows, by_line=by_line, sort_event=sort_event)
        sys.stdout.write(text)
