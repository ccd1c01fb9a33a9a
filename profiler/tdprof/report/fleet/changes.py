"""Two sides of a fleet: for people, as JSON and CSV."""

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.model.arrays import I64
from tdprof.model.fleet import FleetChanges
from tdprof.report.columns import Column, as_text, format_table, left_out, names, numbers, prose
from tdprof.report.csv_lines import number_cell, write_rows
from tdprof.report.fleet.json import dump, estimate_json, function_json, number
from tdprof.report.fleet.text import function_text, percent
from tdprof.text import plural, printable

COLUMNS = (
    *("core", "event", "module", "function", "file", "a", "b", "change", "half_width", "p", "q", "is_significant"),
    *("samples_a", "samples_b", "hosts_a", "hosts_b"),
)
_LEGEND = (
    '± is half of the 95 % interval of the change, in points, over hosts. "more" and "less" mark changes beyond '
    "chance: of all that is so marked no more than 5 % is wrong on average."
)


def render_changes_text(
    tables: Sequence[FleetChanges], orders: Sequence[I64], notes: Sequence[str], console: Console, *, limit: int
) -> str:
    """A table for each kind of core, the surest change first."""
    width = console.width
    lines: list[Text] = []
    for note in notes:
        lines += prose(printable(note), width, style="yellow")
    for table, order in zip(tables, orders, strict=True):
        paired = f", {plural(table.paired, 'host', 's')} on both" if table.paired else ""
        hosts = f"{plural(table.hosts_a, 'host', 's')} against {plural(table.hosts_b, 'host', 's')}{paired}"
        lines += [Text(), *prose(f"{printable(table.core)}: {printable(table.event)}, {hosts}", width, style="bold")]
        if not np.isfinite(table.p).any():
            lines += prose("Too few hosts or samples to tell change from chance.", width, style="yellow")
        shown = order[: limit or None]
        columns = [*numbers("A", "B", "change", "±"), Column(), *numbers("q"), *names("module", "function")]
        rows: list[list[str | Text]] = []
        for row in shown.tolist():
            function = table.functions[row]
            cells: list[str | Text] = [percent(table.a.value[row]), percent(table.b.value[row])]
            cells += [f"{100 * table.change[row]:+.2f}", _number(100 * table.half_width[row], ".2f"), _mark(table, row)]
            cells += [_number(table.q[row], ".1g"), Text(printable(function.module), "dim"), function_text(function)]
            rows.append(cells)
        lines += [Text(), *format_table(columns, rows, width), *left_out(len(order) - len(shown), "function", width)]
    return as_text(console, [*lines, Text(), *prose(_LEGEND, width, style="dim")])


def _number(value: float, form: str) -> str:
    return "?" if np.isnan(value) else f"{value:{form}}"


def _mark(table: FleetChanges, row: int) -> Text:
    if not table.is_significant[row]:
        return Text()
    is_more = table.change[row] > 0
    return Text("more" if is_more else "less", "red" if is_more else "green")


def render_changes_json(
    tables: Sequence[FleetChanges], orders: Sequence[I64], notes: Sequence[str], *, limit: int
) -> Iterator[str]:
    """One JSON object."""
    strata = [
        {
            "core": table.core,
            "event": table.event,
            "hosts_a": table.hosts_a,
            "hosts_b": table.hosts_b,
            "hosts_both": table.paired,
            "functions": [
                {
                    **function_json(table.functions[row]),
                    "a": estimate_json(table.a, row),
                    "b": estimate_json(table.b, row),
                    "change": number(table.change[row]),
                    "half_width": number(table.half_width[row]),
                    "p": number(table.p[row]),
                    "q": number(table.q[row]),
                    "is_significant": bool(table.is_significant[row]),
                }
                for row in order[: limit or None].tolist()
            ],
        }
        for table, order in zip(tables, orders, strict=True)
    ]
    yield dump({"notes": list(notes), "strata": strata})


def render_changes_csv(tables: Sequence[FleetChanges], orders: Sequence[I64], *, limit: int) -> Iterator[str]:
    """A line for each function of each kind of core."""
    rows = (
        (
            *(table.core, table.event, function.module, function.name, function.file),
            *(number_cell(each) for each in (table.a.value[row], table.b.value[row], table.change[row])),
            *(number_cell(each) for each in (table.half_width[row], table.p[row], table.q[row])),
            int(table.is_significant[row]),
            *(int(table.a.samples[row]), int(table.b.samples[row]), int(table.a.hosts[row]), int(table.b.hosts[row])),
        )
        for table, order in zip(tables, orders, strict=True)
        for row in order[: limit or None].tolist()
        for function in (table.functions[row],)
    )
    return write_rows(COLUMNS, rows)
