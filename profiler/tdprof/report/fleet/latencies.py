"""Latencies of a fleet's operations: for people, as JSON and CSV."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from tdprof.model.fleet import FleetLatencies, SetAside
from tdprof.report.columns import as_text, format_table, left_out, names, numbers, prose
from tdprof.report.csv_lines import number_cell, write_rows
from tdprof.report.fleet.json import dump, function_json, number, set_aside_json
from tdprof.report.fleet.text import FEW_HOSTS, WIDE_COLUMNS, function_text, notes_lines, percent
from tdprof.text import plural, printable

COLUMNS = (
    *("core", "latency", "module", "function", "file", "operations", "records", "hosts", "quantile", "cycles"),
    *("low", "high", "is_saturated", "design_effect", "is_between_hosts"),
)
_LEGEND = (
    "Quantiles are exact; the interval behind each is its 95 % interval over hosts: what another fleet of such hosts "
    "would show. ≥: the counter stops there."
)


def render_latencies_text(found: Sequence[FleetLatencies], set_aside: SetAside, console: Console, *, limit: int) -> str:
    """A table for each kind of core, the function with the most operations first."""
    width = console.width
    lines = notes_lines(set_aside, width)
    for each in found:
        about = ", ".join(
            [
                plural(len(each.hosts), "host", "s"),
                plural(each.recordings, "recording", "s"),
                plural(int(each.records.sum()), "SPE record", "s"),
            ]
        )
        latency = each.latency.replace("_", " ")
        lines += [*prose(f"{printable(each.core)}: {latency} in cycles, {about}", width, style="bold"), Text()]
        shown = len(each.functions) if not limit else min(limit, len(each.functions))
        lines += _table(each, shown, width)
        lines += [*left_out(len(each.functions) - shown, "function", width), Text()]
    lines += prose(_LEGEND, width, style="dim")
    if any(not each.is_between.all() for each in found):
        lines += prose(FEW_HOSTS, width, style="dim")
    return as_text(console, lines)


def _table(found: FleetLatencies, shown: int, width: int) -> list[Text]:
    is_wide = width >= WIDE_COLUMNS
    quantiles = [heading for share in found.shares for heading in (f"p{100 * share:g}", "95 %")]
    columns = numbers("operations", *quantiles, "records", "hosts")
    columns += names(*(("module",) if is_wide else ()), "function")
    rows: list[list[str | Text]] = []
    for row, function in enumerate(found.functions[:shown]):
        cells: list[str | Text] = [percent(found.operations[row])]
        for column in range(len(found.shares)):
            cells += [_cycles(found, float(found.value[row, column])), _interval(found, row, column)]
        cells += [f"{found.records[row]:,}", f"{found.hosts_seen[row]:,}"]
        rows.append([*cells, *([Text(printable(function.module), "dim")] if is_wide else []), function_text(function)])
    return format_table(columns, rows, width)


def _cycles(found: FleetLatencies, cycles: float) -> str:
    return f"≥{cycles:,.0f}" if cycles >= found.saturated_cycles else f"{cycles:,.0f}"


def _interval(found: FleetLatencies, row: int, column: int) -> str:
    low, high = float(found.low[row, column]), float(found.high[row, column])
    if math.isnan(low):
        return "?"
    end = "" if math.isinf(high) else _cycles(found, high)
    return f"{'' if found.is_between[row] else '~'}{_cycles(found, low)}-{end}"


def render_latencies_json(found: Sequence[FleetLatencies], set_aside: SetAside, *, limit: int) -> Iterator[str]:
    """One JSON object. Of an interval null is an end that is not known, or that there is none."""
    strata = [
        {
            "core": each.core,
            "latency": each.latency,
            "unit": "cycles",
            "hosts": len(each.hosts),
            "recordings": each.recordings,
            "records": int(each.records.sum()),
            "functions": [
                {
                    **function_json(function),
                    "operations": number(each.operations[row]),
                    "records": int(each.records[row]),
                    "hosts": int(each.hosts_seen[row]),
                    "is_between_hosts": bool(each.is_between[row]),
                    "quantiles": [
                        {
                            "quantile": share,
                            "cycles": number(each.value[row, column]),
                            "low": number(each.low[row, column]),
                            "high": number(each.high[row, column]),
                            "is_saturated": bool(each.value[row, column] >= each.saturated_cycles),
                            "design_effect": number(each.design_effect[row, column]),
                        }
                        for column, share in enumerate(each.shares)
                    ],
                }
                for row, function in enumerate(each.functions[: limit or None])
            ],
        }
        for each in found
    ]
    yield dump({**set_aside_json(set_aside), "strata": strata})


def render_latencies_csv(found: Sequence[FleetLatencies], *, limit: int) -> Iterator[str]:
    """A line for each function and quantile of each kind of core."""
    return write_rows(COLUMNS, _rows(found, limit))


def _rows(found: Sequence[FleetLatencies], limit: int) -> Iterator[Sequence[object]]:
    for each in found:
        for row, function in enumerate(each.functions[: limit or None]):
            for column, share in enumerate(each.shares):
                value, high = each.value[row, column], float(each.high[row, column])
                yield [
                    *(each.core, each.latency, function.module, function.name, function.file),
                    *(number_cell(each.operations[row]), int(each.records[row]), int(each.hosts_seen[row]), share),
                    *(
                        number_cell(value),
                        number_cell(each.low[row, column]),
                        number_cell(math.nan if math.isinf(high) else high),
                    ),
                    *(int(value >= each.saturated_cycles), number_cell(each.design_effect[row, column])),
                    int(each.is_between[row]),
                ]
