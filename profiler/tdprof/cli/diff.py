"""`tdprof diff`: what changed between two captures, and whether a build should fail for it."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tdprof.cli.capture_options import CAPTURE_PATH, find_input, selection_options, symbol_options
from tdprof.cli.form import DEFAULT_LIMIT, Output, output_options
from tdprof.cli.option_groups import Percent
from tdprof.errors import TdprofError
from tdprof.model.choices import DEFAULT_NOISE_PERCENT, Basis, Selection, SymbolOptions

FAIL_ON_HELP = (
    "Exit with 1 if that changed, significantly: [FUNCTION:]QUANTITY>NUMBER[%], with < and a negative NUMBER for a "
    "fall. QUANTITY: total (the first event; of a FUNCTION with what it calls), self (of a FUNCTION alone), an event "
    "or a metric. FUNCTION * is any. Without % in the quantity's units. May be repeated."
)


@click.command("diff")
@click.argument("a", type=CAPTURE_PATH, metavar="A")
@click.argument("b", type=CAPTURE_PATH, metavar="B")
@output_options(
    json="Print one JSON object with all values, intervals and tests.",
    csv="Print comma-separated values, a line for each value.",
    limit=f"The most functions to print; 0 for all ({DEFAULT_LIMIT}, with --json and --csv all).",
    has_pager=True,
)
@click.option("--fail-on", "fail_on", multiple=True, metavar="EXPRESSION", help=FAIL_ON_HELP)
@click.option("-e", "--event", metavar="EVENT", help="The event whose changes lead the table (the first in common).")
@click.option(
    "--by",
    type=click.Choice(["function", "waker"]),
    default="function",
    help="What a row is: function (the default), or waker: who ended sleeps, of record --wakers.",
)
@click.option(
    "--basis",
    type=click.Choice([basis.value for basis in Basis]),
    help="Compare whole runs, or shares (run, if both are of commands that ran to their end).",
)
@click.option(
    "--noise",
    "noise_percent",
    type=Percent(0, 1000),
    default=DEFAULT_NOISE_PERCENT,
    metavar="PERCENT",
    help=f"How much two runs of one program differ on this machine ({DEFAULT_NOISE_PERCENT:g}); see docs/diff.md.",
)
@selection_options
@symbol_options
def command(
    a: Path,
    b: Path,
    output: Output,
    fail_on: Sequence[str],
    event: str | None,
    by: str,
    basis: str | None,
    noise_percent: float,
    selection: Selection,
    symbols: SymbolOptions,
) -> int:
    """Compare capture B with capture A: what each function, and the whole program, takes more or less of.

    \b
    tdprof diff before.capture after.capture
    tdprof diff before.capture after.capture --fail-on 'total>5%' --fail-on 'parse(char const*):self>10%'
    tdprof diff before.capture after.capture --fail-on '*:self>20%' --fail-on 'ipc<-5%'
    tdprof diff before.capture after.capture --by waker --function wait_for_work   who ended its sleeps
    tdprof diff before.capture after.capture --json | jq '.functions[] | select(.self[0].is_significant)'

    The exit status is 0 if no --fail-on holds, 1 if one does, 2 if the captures cannot be compared.
    """
    with status_2():
        older, newer = find_input(a), find_input(b)
        # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
        from tdprof.cli.comparing import Asked, print_comparison

        asked = Asked(fail_on, event, by == "waker", Basis(basis) if basis else None, noise_percent, selection, symbols)
        return print_comparison(older, newer, asked, output)


@contextlib.contextmanager
def status_2() -> Iterator[None]:
    """1 means a regression: whatever keeps from comparing is a 2."""
    try:
        yield
    except TdprofError as error:
        error.status = 2
        raise
