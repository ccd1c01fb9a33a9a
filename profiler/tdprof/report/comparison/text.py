"""Two captures beside each other for people."""

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.model.choices import Basis
from tdprof.model.events import Unit
from tdprof.model.profile import Profile
from tdprof.profile.compare import Changes, Comparison, Match
from tdprof.profile.compare.conditions import Breach
from tdprof.report.columns import Column, as_text, format_table, left_out, names, numbers, prose
from tdprof.report.comparison.rows import order_functions
from tdprof.report.summary import doubts, facts, format_value, what_was_recorded
from tdprof.text import plural, printable

WIDE_COLUMNS = 100
_TOO_FEW = "too few"


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
    width = console.width
    lines = _header(sides, width)
    for line in [*_explanation(comparison, event), *_doubts(comparison, sides)]:
        lines += prose(line, width, style="yellow" if line.startswith(("A: ", "B: ", "A, B: ", "note: ")) else "")
    if comparison.program.quantities:
        lines += [Text(), *_program(comparison, limit, width)]
        if unchanged := _unchanged_metrics(comparison):
            lines += prose(
                f"and {plural(unchanged, 'metric', 's')} of the program without a change", width, style="dim"
            )
    lines.append(Text())
    order = order_functions(comparison, event)
    if not len(order):
        lines += prose("Neither capture has samples.", width)
    else:
        shown = order[: limit or None]
        lines += _functions(comparison, shown, event, width)
        lines += left_out(len(order) - len(shown), "function", width)
    if metrics := _metrics(comparison, limit, width):
        lines += [Text(), *metrics]
    return as_text(console, [*lines, Text(), *prose(_matches(comparison), width)])


def _header(sides: Sequence[tuple[str, Profile]], width: int) -> list[Text]:
    rows: list[list[str | Text]] = []
    for label, (name, profile) in zip("AB", sides, strict=True):
        rows.append(
            [
                Text(label, style="bold"),
                printable(name),
                dict(facts(profile))["measured"],
                what_was_recorded(profile)[1],
            ]
        )
    return format_table([Column(), *names("", "", "")], rows, width)[1:]


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
    too_few = f'"{_TOO_FEW}" stands where the samples do not suffice to compare'
    if not comparison.tests:
        yield f"{too_few}: that is everywhere."
        return
    yield (
        "± is half of the 95 % interval. A word behind it marks a change beyond chance: all tests together "
        f"({comparison.tests:,}) mark anything by mistake in no more than 5 % of comparisons. {too_few}."
    )


def _doubts(comparison: Comparison, sides: Sequence[tuple[str, Profile]]) -> Iterator[str]:
    for note in comparison.notes:
        yield f"note: {printable(note)}"
    told = [doubts(profile, []) for _, profile in sides]
    for doubt in dict.fromkeys([*told[0], *told[1]]):
        yield f"{', '.join(label for label, lines in zip('AB', told, strict=True) if doubt in lines)}: {doubt}"


def _program(comparison: Comparison, limit: int, width: int) -> list[Text]:
    """The events' amounts, and the metrics that changed, the surest first."""
    changes = comparison.program
    events = [i for i, quantity in enumerate(changes.quantities) if quantity.source == "samples"]
    marked = [i for i in np.flatnonzero(changes.is_significant[0]).tolist() if i not in events]
    rows: list[list[str | Text]] = []
    for column in [*events, *sorted(marked, key=lambda i: float(changes.p[0, i]))[: limit or None]]:
        quantity = changes.quantities[column]
        source = f" ({quantity.source})" if quantity.source == "spe" else ""
        rows.append([*_cells(comparison.program, 0, column), Text(printable(quantity.name) + source)])
    return format_table([*numbers("A", "B", "change", "±"), Column(), *names("whole program")], rows, width)


def _unchanged_metrics(comparison: Comparison) -> int:
    changes = comparison.program
    pairs = zip(changes.quantities, changes.is_significant[0].tolist(), strict=True)
    return sum(quantity.source != "samples" and not is_marked for quantity, is_marked in pairs)


def _functions(comparison: Comparison, shown: Sequence[int], event: int, width: int) -> list[Text]:
    is_wide = width >= WIDE_COLUMNS
    has_shares = is_wide and comparison.basis is Basis.RUN
    columns = numbers(f"{printable(comparison.self_changes.quantities[event].name)} A", "B", "change", "±")
    columns += [Column(), *numbers(*(("share A", "B") if has_shares else ()), *(("total",) if is_wide else ()))]
    columns += names(*(("module",) if is_wide else ()), "function")
    functions = comparison.functions
    rows: list[list[str | Text]] = []
    for row in shown:
        cells = _cells(comparison.self_changes, row, event)
        if has_shares:
            cells += [Text(f"{share[row, event]:.1f}%") for share in (comparison.share_a, comparison.share_b)]
        if is_wide:
            inclusive = _cells(comparison.inclusive_changes, row, event)
            total = Text(f"{inclusive[2]} {inclusive[4]}".rstrip(), style=inclusive[4].style)
            cells += [total, Text(printable(PurePath(functions.modules[row]).name), "dim")]
        name = functions.names[row]
        if functions.match[row] is Match.RENAMED:
            name += f" (was {functions.names_a[row]})"
        elif functions.match[row] in (Match.MOVED, Match.INLINED, Match.CLONE):
            name += f" ({functions.match[row]})"
        rows.append([*cells, Text(printable(name), "dim" if name.startswith("[") else "")])
    return format_table(columns, rows, width)


def _metrics(comparison: Comparison, limit: int, width: int) -> list[Text]:
    """The functions' metrics that changed significantly, the surest first; empty if none did."""
    changes = comparison.self_changes
    columns = [i for i, quantity in enumerate(changes.quantities) if quantity.source != "samples"]
    marked = [
        (changes.p[row, i], row, i) for i in columns for row in np.flatnonzero(changes.is_significant[:, i]).tolist()
    ]
    if not marked:
        return []
    rows: list[list[str | Text]] = []
    for _, row, column in sorted(marked)[: limit or None]:
        quantity = changes.quantities[column]
        name = printable(comparison.functions.names[row])
        rows.append([*_cells(changes, row, column), printable(f"{quantity.name} ({quantity.source})"), name])
    return format_table([*numbers("A", "B", "change", "±"), Column(), *names("metric", "function")], rows, width)


def _cells(changes: Changes, row: int, column: int) -> list[Text]:
    """A, B, the change, half its interval, and what it is, where it is significant."""
    quantity = changes.quantities[column]
    a, b = float(changes.a[row, column]), float(changes.b[row, column])
    half = float(changes.high[row, column] - changes.low[row, column]) / 2
    is_amount, is_significant = quantity.units in list(Unit), bool(changes.is_significant[row, column])
    if quantity.source == "samples" and np.isnan(changes.p[row, column]) and (a or b):
        change, error = _TOO_FEW, ""
    elif changes.is_vague(row, column):
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


def describe_breach(breach: Breach) -> str:
    """A sentence on a change that a condition forbids."""
    change = f"{(breach.b - breach.a) / abs(breach.a):+.1%}, " if breach.a else ""
    values = " to ".join(_value(value, breach.units, 3) for value in (breach.a, breach.b))
    units = "" if breach.units in list(Unit) else f" {breach.units}"
    return f"'{breach.condition}': {printable(breach.what)} went from {values}{units} ({change}p = {breach.p:.2g})"
