"""`tdprof fleet diff`: what differs between two parts of a fleet."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tdprof.cli.diff import status_2
from tdprof.cli.fleet import chosen_options, store_argument
from tdprof.cli.form import DEFAULT_LIMIT, Output, output_options, print_result
from tdprof.cli.output import waiting
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError

if TYPE_CHECKING:
    from tdprof.fleet.changes import SideCounts
    from tdprof.fleet.selection import Chosen
    from tdprof.fleet.store import Store

_FAIL_ON_HELP = (
    "Exit with 1 if that changed, beyond chance: FUNCTION:self>NUMBER% or FUNCTION:total>NUMBER%, with < and a "
    "negative NUMBER for a fall; without % in points of share. FUNCTION * is any. May be repeated."
)


@click.command("diff")
@store_argument
@click.option(
    "--a", "a", multiple=True, required=True, metavar="NAME=VALUE", help="Side A, as --where. May be repeated."
)
@click.option("--b", "b", multiple=True, required=True, metavar="NAME=VALUE", help="Side B.")
@click.option("--total", "by_total", is_flag=True, help="Compare what functions take with all that they call.")
@click.option("--fail-on", "fail_on", multiple=True, metavar="EXPRESSION", help=_FAIL_ON_HELP)
@click.option(
    "-e", "--event", metavar="EVENT", help="Shares of this event (cycles, or what most recordings have first)."
)
@output_options(
    json="Print one JSON object, with all functions.",
    csv="Print comma-separated values, a row for each function.",
    limit=f"The most functions of each kind of core; 0 for all ({DEFAULT_LIMIT}, with --json or --csv all).",
    has_pager=True,
)
@chosen_options
def command(
    store: str,
    a: Sequence[str],
    b: Sequence[str],
    by_total: bool,
    fail_on: Sequence[str],
    event: str | None,
    output: Output,
    chosen: "Callable[[], Chosen]",
) -> int:
    """Compare side B of a store with side A: which functions take more or less, with hosts as the sample.

    \b
    tdprof fleet diff prod --a version=1.2 --b version=1.3
    tdprof fleet diff prod --a version=1.2 --b version=1.3 --since 2d --fail-on 'parse:self>10%'
    tdprof fleet diff prod --a build=BUILD-ID --b build=BUILD-ID --json

    Hosts are compared with hosts of the same kind of core. Where a side is on one kind alone and the other on another,
    nothing is compared: the difference could be the cores'. A host that is on both sides is compared with itself.

    The exit status is 0 if no --fail-on holds, 1 if one does, 2 if the sides cannot be compared.
    """
    with status_2():
        # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
        from tdprof.cli.memory import keep_process_small
        from tdprof.fleet.changes import (
            compare_sides,
            find_fleet_breaches,
            order_changes,
            pair_cores,
            with_discoveries,
        )
        from tdprof.fleet.selection import parse_where
        from tdprof.fleet.store import Store
        from tdprof.profile.compare.conditions import parse_condition
        from tdprof.report.comparison.text import describe_breach
        from tdprof.report.fleet.changes import render_changes_csv, render_changes_json, render_changes_text

        keep_process_small()
        conditions = [parse_condition(text) for text in fail_on]
        sides = [chosen().and_also([parse_where(text) for text in side]) for side in (a, b)]
        opened = Store(store)
        with waiting(f"reading {store}"):
            (of_a, of_b), notes = _count(opened, sides, event)
            pairs, left_out = pair_cores(of_a, of_b)
            own = with_discoveries([compare_sides(one, two, is_self=True) for one, two in pairs])
            total = with_discoveries([compare_sides(one, two, is_self=False) for one, two in pairs])
        breaches = find_fleet_breaches(own, total, conditions)
    tables = total if by_total else own
    orders, told = [order_changes(table) for table in tables], [*notes, *left_out]
    limit = output.rows(DEFAULT_LIMIT)
    print_result(
        output,
        json=lambda: render_changes_json(tables, orders, told, limit=output.rows()),
        csv=lambda: render_changes_csv(tables, orders, limit=output.rows()),
        text=lambda console: render_changes_text(tables, orders, told, console, limit=limit),
    )
    for breach in breaches:
        say(f"tdprof: --fail-on {describe_breach(breach)}")
    return 1 if breaches else 0


def _count(
    store: "Store", sides: "Sequence[Chosen]", event: str | None
) -> "tuple[list[list[SideCounts]], Sequence[str]]":
    """The functions of both sides, by kind of core, and what is not in them.

    Raises:
        TdprofError: a side has nothing, or a recording is on both.
    """
    from tdprof.fleet.changes import SideCounts
    from tdprof.fleet.read import count_sides
    from tdprof.fleet.report import find_recordings

    # What is on both sides is known where both are read alike.
    is_each = any(side.has_builds for side in sides)
    found = [find_recordings(store, side, event, each_recording=is_each) for side in sides]
    if found[0].event != found[1].event:
        found = [find_recordings(store, side, found[0].event, each_recording=is_each) for side in sides]
    recorded = [side.parts.identities() for side in found]
    if both := recorded[0] & recorded[1]:
        raise TdprofError(f"{len(both)} recordings are on both sides", hint="--a and --b that exclude each other")
    of_sides = count_sides(store, [(side.parts, side.strata) for side in found])
    counted = [
        [SideCounts(stratum, counts) for stratum, counts in zip(side.strata, of_side, strict=True)]
        for side, of_side in zip(found, of_sides, strict=True)
    ]
    return counted, list(dict.fromkeys([*found[0].set_aside.notes, *found[1].set_aside.notes]))
