"""`tdprof fleet check`: what a store has, and what is wrong with it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tdprof.cli.fleet import asked_again, store_argument
from tdprof.cli.form import Output, output_options, print_plain
from tdprof.cli.output import waiting
from tdprof.text import few, plural, printable

if TYPE_CHECKING:
    from tdprof.fleet.check import StoreState


@click.command("check")
@store_argument
@click.option("--prune", is_flag=True, help="Remove what nothing reads: what killed writers left, older roll-ups.")
@click.option("--keep", metavar="TIME", help="Remove recordings that began before: 90d, 2026-11-22.")
@output_options(json="Print one JSON object.", csv="Print comma-separated values: a row for each thing that is wrong.")
def command(store: str, prune: bool, keep: str | None, output: Output) -> int:
    """Read all of a store and say what it has: recordings, hosts, and what is missing, set aside, double or old.

    \b
    tdprof fleet check prod
    tdprof fleet check prod --prune --keep 90d

    The exit status is 1 if answers do not hold all that was added: captures were set aside, or roll-ups are damaged.
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.memory import keep_process_small
    from tdprof.fleet.check import check_store
    from tdprof.fleet.selection import parse_time
    from tdprof.fleet.store import Store
    from tdprof.report.csv_lines import write_rows

    keep_process_small()
    before = ""
    if keep is not None:
        moment = parse_time(keep, datetime.now(UTC)) // 1_000_000_000
        before = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")
    with waiting(f"reading {store}"):
        state = asked_again(lambda: check_store(Store(store), prune=prune, before=before))
    print_plain(
        output.form,
        json=lambda: [_json(state)],
        csv=lambda: write_rows(("kind", "what", "why"), _rows(state)),
        text=lambda: _text(state),
    )
    return 0 if state.is_whole else 1


def _rows(state: "StoreState") -> Iterator[tuple[str, str, str]]:
    yield from (("set aside", *each.shown) for each in state.rejected)
    yield from (("damaged", printable(each), "") for each in state.damaged)
    yield from (("without what cannot be read", *each.shown) for each in state.incomplete)
    yield from (("without its SPE data", printable(each), "") for each in state.no_spe)
    yield from (("left over", printable(each), "") for each in state.left_over)


def _json(state: "StoreState") -> str:
    told = {
        "recordings": state.recordings,
        "hosts": state.hosts,
        "silent": sorted(state.silent),
        "rejected": [each.told for each in state.rejected],
        "damaged": [*map(printable, state.damaged)],
        "incomplete": [each.told for each in state.incomplete],
        "without_spe": [*map(printable, state.no_spe)],
        "left_over": [*map(printable, state.left_over)],
        "removed": state.removed,
    }
    return json.dumps(told, indent=1) + "\n"


def _text(state: "StoreState") -> Iterator[str]:
    yield f"{plural(state.recordings, 'recording', 's')} of {plural(len(state.hosts), 'host', 's')}\n"
    if state.removed:
        yield f"{state.removed:,} removed\n"
    if silent := state.silent:
        last = max(state.hosts.values())
        yield f"nothing on the last day ({last}) of {plural(len(silent), 'host', 's')}: {few(sorted(silent))}\n"
    for kind, what, why in _rows(state):
        yield f"{kind}: {what}{f': {why}' if why else ''}\n"
    if state.left_over:
        yield "  try: tdprof fleet check --prune, while nothing is being added\n"
