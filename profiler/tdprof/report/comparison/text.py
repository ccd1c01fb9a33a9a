"""Two captures beside each other, for people and for machines."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tdprof.model.events import Unit
from tdprof.model.profile import Profile
from tdprof.profile.compare import Basis, Changes, Comparison, Match
from tdprof.profile.compare.conditions import Breach
from tdprof.report.profile.csv import write_rows
from tdprof.report.summary import doubts, facts, format_value
from tdprof.text import plural, printable

WIDE_COLUMNS = 100
_TOO_FEW = "too few"
# Half of the interval of a change as a part of A; beyond it A is no base for percentages.
_MOST_DOUBT = 3.0
_CSV_COLUMNS = (
    *("function", "function_a", "module", "match", "kind", "quantity", "source", "units"),
    *("a", "b", "low", "high", "p", "is_significant"),
)


def render_text(
    comparison: Comparison,
    sides: Sequence[tuple[str, Profile]],
    console: Console,
    *,
    limit: int,
    event: int,
) -> str:
    """The comparison as the console's width and colours allow.

    Args:
        sides: the name and the profile of A's capture and of B's.
        limit: the most functions to show; 0 for all.
        event: the column of the changes whose amounts lead.
    """
    with console.capture() as capture:
        console.print(_header(sides))
        for line in [*_explanation(comparison, event), *_doubts(comparison, sides)]:
            console.print(Text(line), style="yellow" if line.startswith(("A: ", "B: ", "A, B: ", "note: ")) else "")
        if comparison.program.quantities:
            console.print()
            console.print(_program(comparison, limit))
            if unchanged := _unchanged_metrics(comparison):
                console.print(
                    Text(f"and {plural(unchanged, 'metric', 's')} of the program without a change"), style="dim"
                )
        console.print()
        order = _order(comparison, event)
        if not len(order):
            console.print(Text("Neither capture has samples."))
        else:
            shown = order[: limit or None]
            console.print(_functions(comparison, shown, event, wide=console.width >= WIDE_COLUMNS))
            if len(order) > len(shown):
                more = plural(len(order) - len(shown), "more function", "s")
                console.print(Text(f"and {more} (--limit 0 shows all)"), style="dim")
        metrics = _metrics(comparison, limit)
        if metrics is not None:
            console.print()
            console.print(metrics)
        console.print()
        console.print(Text(_matches(comparison)))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _header(sides: Sequence[tuple[str, Profile]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for style in ("bold", "", "", ""):
        grid.add_column(style=style, overflow="ellipsis", no_wrap=True)
    for label, (name, profile) in zip("AB", sides, strict=True):
        told = dict(facts(profile))
        grid.add_row(label, Text(printable(name)), Text(told["measured"]), Text(told["command"]))
    return grid


def _explanation(comparison: Comparison, event: int) -> Iterator[str]:
    if comparison.basis is Basis.RUN:
        yield "Compared: what each whole run took."
    else:
        yield "Compared: shares of the samples, in points, since not both are runs of a command to its end."
    factor = float(comparison.common_factor[event])
    if abs(factor - 1) >= 0.005:
        cause = "another speed of the machine" if comparison.basis is Basis.RUN else "the others' changes"
        yield (
            f"Most functions changed alike, by {factor - 1:+.1%}: that is put down to {cause}, "
            "and functions are judged beside it."
        )
    yield (
        "± is half of the 95 % interval. A word behind it marks a change beyond chance: all "
        f"{comparison.tests:,} tests together mark anything by mistake in no more than 5 % of comparisons. "
        f'"{_TOO_FEW}" stands where the samples do not suffice to compare.'
    )


def _doubts(comparison: Comparison, sides: Sequence[tuple[str, Profile]]) -> Iterator[str]:
    for note in comparison.notes:
        yield f"note: {printable(note)}"
    told = [doubts(profile, []) for _, profile in sides]
    for doubt in dict.fromkeys([*told[0], *told[1]]):
        yield f"{', '.join(label for label, lines in zip('AB', told, strict=True) if doubt in lines)}: {doubt}"


def _order(comparison: Comparison, event: int) -> list[int]:
    """Rows: significant ones first, then the largest difference; then what takes most, and names."""
    changes = comparison.self_changes
    tables = (changes.is_significant, comparison.inclusive_changes.is_significant)
    is_marked: list[bool] = [any(row) for row in np.concatenate(tables, axis=1).tolist()]
    difference = np.abs(changes.b[:, event] - changes.a[:, event])
    size = changes.b[:, event]
    names = comparison.functions.names
    return sorted(range(len(names)), key=lambda row: (not is_marked[row], -difference[row], -size[row], names[row]))


def _program(comparison: Comparison, limit: int) -> Table:
    """The events' amounts, and the metrics that changed, the surest first."""
    table = _plain_table()
    for heading in ("A", "B", "change", "±", ""):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    table.add_column("whole program", overflow="ellipsis")
    changes = comparison.program
    events = [i for i, quantity in enumerate(changes.quantities) if quantity.source == "samples"]
    marked = [i for i in np.flatnonzero(changes.is_significant[0]).tolist() if i not in events]
    for column in [*events, *sorted(marked, key=lambda i: float(changes.p[0, i]))[: limit or None]]:
        quantity = changes.quantities[column]
        source = f" ({quantity.source})" if quantity.source == "spe" else ""
        table.add_row(*_cells(comparison.program, 0, column), Text(printable(quantity.name) + source))
    return table


def _unchanged_metrics(comparison: Comparison) -> int:
    changes = comparison.program
    pairs = zip(changes.quantities, changes.is_significant[0].tolist(), strict=True)
    return sum(quantity.source != "samples" and not is_marked for quantity, is_marked in pairs)


def _functions(comparison: Comparison, rows: Sequence[int], event: int, *, wide: bool) -> Table:
    name = printable(comparison.self_changes.quantities[event].name)
    table = _plain_table()
    for heading in (f"{name} A", "B", "change", "±"):
        table.add_column(Text(heading), justify="right", no_wrap=True)
    table.add_column("")
    has_shares = wide and comparison.basis is Basis.RUN
    for heading in (*(("share A", "B") if has_shares else ()), *(("total",) if wide else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    if wide:
        table.add_column("module", overflow="ellipsis")
    table.add_column("function", overflow="ellipsis")
    functions = comparison.functions
    for row in rows:
        cells = _cells(comparison.self_changes, row, event)
        if has_shares:
            cells += [Text(f"{share[row, event]:.1f}%") for share in (comparison.share_a, comparison.share_b)]
        if wide:
            inclusive = _cells(comparison.inclusive_changes, row, event)
            total = Text(f"{inclusive[2]} {inclusive[4]}".rstrip(), style=inclusive[4].style)
            cells += [total, _one_line(PurePath(functions.modules[row]).name, "dim")]
        shown = functions.names[row]
        if functions.match[row] is Match.RENAMED:
            shown += f" (was {functions.names_a[row]})"
        elif functions.match[row] in (Match.MOVED, Match.INLINED, Match.CLONE):
            shown += f" ({functions.match[row]})"
        table.add_row(*cells, _one_line(shown, "dim" if shown.startswith("[") else ""))
    return table


def _metrics(comparison: Comparison, limit: int) -> Table | None:
    """The functions' metrics that changed significantly, the surest first."""
    changes = comparison.self_changes
    columns = [i for i, quantity in enumerate(changes.quantities) if quantity.source != "samples"]
    marked = [
        (changes.p[row, i], row, i) for i in columns for row in np.flatnonzero(changes.is_significant[:, i]).tolist()
    ]
    if not marked:
        return None
    table = _plain_table()
    for heading in ("A", "B", "change", "±"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("", "metric", "function"):
        table.add_column(heading, overflow="ellipsis")
    for _, row, column in sorted(marked)[: limit or None]:
        quantity = changes.quantities[column]
        name = _one_line(comparison.functions.names[row])
        table.add_row(*_cells(changes, row, column), _one_line(f"{quantity.name} ({quantity.source})"), name)
    return table


def _cells(changes: Changes, row: int, column: int) -> list[Text]:
    """A, B, the change, half its interval, and what it is, where it is significant."""
    quantity = changes.quantities[column]
    a, b = float(changes.a[row, column]), float(changes.b[row, column])
    half = float(changes.high[row, column] - changes.low[row, column]) / 2
    is_amount, is_significant = quantity.units in list(Unit), bool(changes.is_significant[row, column])
    if quantity.source == "samples" and np.isnan(changes.p[row, column]) and (a or b):
        change, error = _TOO_FEW, ""
    elif is_amount and a and half > _MOST_DOUBT * a:
        # As a part of so little any change is vast, and its error, too.
        change, error = (f"{b / a:,.0f} times" if is_significant else _TOO_FEW), ""
    elif is_amount and a:
        change, error = f"{(b - a) / a:+.1%}", f"{half / a:.1%}"
    elif is_amount or not (a or b):
        change, error = "", ""
    else:
        digits = _decimals(half)
        change, error = f"{b - a:+.{digits}f}", f"{half:.{digits}f}"
    mark = ""
    if is_significant:
        mark = ("more" if b > a else "less") if a and b else ("new" if b else "gone")
    style = {"more": "bold red", "new": "bold red", "less": "bold green", "gone": "bold green"}.get(mark, "")
    values = [_value(value, quantity.units, _decimals(half) if a or b else 0) for value in (a, b)]
    unknown = np.isnan(a) or np.isnan(b)
    tail = ["unknown", ""] if unknown else [change, "" if np.isnan(half) else error]
    return [Text(value) for value in values] + [Text(tail[0], style), Text(tail[1]), Text(mark, style)]


def _value(value: float, units: str, decimals: int) -> str:
    if np.isnan(value):
        return "?"
    return format_value(round(value), Unit(units)) if units in list(Unit) else f"{value:.{decimals}f}"


def _decimals(error: float) -> int:
    """As many as show two digits of an error; two where it is not known."""
    return 2 if np.isnan(error) or error <= 0 else min(max(1 - math.floor(math.log10(error)), 0), 9)


def _matches(comparison: Comparison) -> str:
    counts = {match: comparison.functions.match.count(match) for match in Match}
    only = {match: counts.pop(match) for match in (Match.ONLY_A, Match.ONLY_B)}
    parts = [f"{count:,} {match}" for match, count in counts.items() if count and match is not Match.SAME]
    found = f"{plural(sum(counts.values()), 'function', 's')} in both" + (f" ({', '.join(parts)})" if parts else "")
    return f"{found}, {only[Match.ONLY_A]:,} only in A, {only[Match.ONLY_B]:,} only in B"


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")


def _one_line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def describe_breach(breach: Breach) -> str:
    """A sentence on a change that a condition forbids."""
    change = f"{(breach.b - breach.a) / abs(breach.a):+.1%}, " if breach.a else ""
    values = " to ".join(_value(value, breach.units, 3) for value in (breach.a, breach.b))
    units = "" if breach.units in list(Unit) else f" {breach.units}"
    return f"'{breach.condition}': {printable(breach.what)} went from {values}{units} ({change}p = {breach.p:.2g})"


def render_json(
    comparison: Comparison, sides: Sequence[tuple[str, Profile]], breaches: Sequence[Breach], *, event: int, limit: int
) -> Iterator[str]:
    """Pieces of one JSON object; unknown values are null, each entry of ``functions`` has a line of its own."""
    header: dict[str, Any] = {
        "captures": [
            {
                "path": printable(name),
                "command": [printable(word) for word in profile.command],
                "duration_ns": profile.duration_ns,
                "losses": asdict(profile.losses),
                "notes": list(profile.notes),
            }
            for name, profile in sides
        ],
        "basis": comparison.basis,
        "confidence": 0.95,
        "tests": comparison.tests,
        "common_factor": {
            quantity.name: float(factor)
            for quantity, factor in zip(comparison.inclusive_changes.quantities, comparison.common_factor, strict=True)
        },
        "notes": list(comparison.notes),
        "breaches": [asdict(breach) for breach in breaches],
        "program": _entries(comparison.program, 0),
    }
    yield json.dumps(header, indent=2).removesuffix("\n}") + ',\n  "functions": ['
    separator = "\n    "
    for row in _order(comparison, event)[: limit or None]:
        yield separator + json.dumps(_function(comparison, row))
        separator = ",\n    "
    yield "\n  ]\n}\n"


def _function(comparison: Comparison, row: int) -> dict[str, Any]:
    functions, events = comparison.functions, comparison.inclusive_changes.quantities
    entries = _entries(comparison.self_changes, row)
    names = [event.name for event in events]
    return {
        "name": functions.names[row] if functions.match[row] is not Match.ONLY_A else None,
        "name_a": functions.names_a[row] or None,
        "module": functions.modules[row] or None,
        "match": functions.match[row],
        "share_a": dict(zip(names, comparison.share_a[row].tolist(), strict=True)),
        "share_b": dict(zip(names, comparison.share_b[row].tolist(), strict=True)),
        "self": [entry for entry in entries if entry["source"] == "samples"],
        "total": _entries(comparison.inclusive_changes, row),
        "metrics": [entry for entry in entries if entry["source"] != "samples"],
    }


def _entries(changes: Changes, row: int) -> list[dict[str, Any]]:
    """The values of a row; those that neither capture has are left out."""
    known = ~(np.isnan(changes.a[row]) & np.isnan(changes.b[row]))
    return [
        {
            "quantity": quantity.name,
            "source": quantity.source,
            "units": quantity.units,
            **{name: _number(getattr(changes, name)[row, column]) for name in ("a", "b", "low", "high", "p")},
            "is_significant": bool(changes.is_significant[row, column]),
        }
        for column, quantity in enumerate(changes.quantities)
        if known[column]
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def render_csv(comparison: Comparison, *, event: int, limit: int) -> Iterator[str]:
    """A line for each value of the program (no function) and of each function; unknown values are empty."""
    return write_rows(_CSV_COLUMNS, _csv_rows(comparison, _order(comparison, event)[: limit or None]))


def _csv_rows(comparison: Comparison, rows: Sequence[int]) -> Iterator[Sequence[object]]:
    functions = comparison.functions
    yield from _csv_values(("", "", "", ""), "program", comparison.program, 0)
    for row in rows:
        name = functions.names[row] if functions.match[row] is not Match.ONLY_A else ""
        who = (name, functions.names_a[row], functions.modules[row], str(functions.match[row]))
        yield from _csv_values(who, "self", comparison.self_changes, row)
        yield from _csv_values(who, "total", comparison.inclusive_changes, row)


def _csv_values(who: Sequence[str], kind: str, changes: Changes, row: int) -> Iterator[Sequence[object]]:
    for entry in _entries(changes, row):
        shown = kind if entry["source"] == "samples" or kind == "program" else "metric"
        values = [entry[name] for name in ("quantity", "source", "units", "a", "b", "low", "high", "p")]
        yield [*who, shown, *values, int(entry["is_significant"])]
