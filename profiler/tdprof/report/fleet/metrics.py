"""A fleet's metrics: for people, as JSON and CSV."""

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.model.fleet import FleetMetrics, SetAside
from tdprof.report.columns import as_text, format_table, left_out, names, numbers, prose
from tdprof.report.csv_lines import number_cell, write_rows
from tdprof.report.fleet.json import dump, function_json, number, set_aside_json
from tdprof.report.fleet.text import function_text, notes_lines, percent
from tdprof.text import plural, printable

COLUMNS = ("core", "module", "function", "file", "metric", "value", "half_width", "units", "samples", "hosts")
_MOST_COLUMNS = 4  # metrics beside each function, which a screen has room for: those of Stage 1
_LEGEND = (
    "± is half of the 95 % interval over hosts; none of fewer than 5. Each metric is of the hosts that counted all its "
    "events."
)


def render_metrics_text(
    found: Sequence[FleetMetrics],
    leading: Sequence[Sequence[str]],
    set_aside: SetAside,
    console: Console,
    *,
    limit: int,
) -> str:
    """For each kind of core its metrics, then the leading ones of each function.

    Args:
        leading: for each kind of core, the metrics to show beside functions.
        limit: the most functions; 0 for all.
    """
    width = console.width
    lines = notes_lines(set_aside, width)
    for each, shown in zip(found, leading, strict=True):
        hosts = plural(int(each.hosts.max(initial=0)), "host", "s")
        lines += [*prose(f"{printable(each.core)}: metrics of {hosts}", width, style="bold"), Text()]
        rows: list[list[str | Text]] = [
            [*_cells(each.program[i], each.program_half_width[i]), f"{each.hosts[i]:,}", each.metrics[i], each.units[i]]
            for i in range(len(each.metrics))
            if np.isfinite(each.program[i])
        ]
        lines += [*format_table([*numbers("value", "± 95 %", "hosts"), *names("metric", "of")], rows, width), Text()]
        columns = [each.metrics.index(name) for name in shown if name in each.metrics][:_MOST_COLUMNS]
        headings = numbers("cycles", *(text for i in columns for text in (each.metrics[i], "±")))
        count = len(each.functions) if not limit else min(limit, len(each.functions))
        rows = []
        for row in range(count):
            cells = [cell for i in columns for cell in _cells(each.value[row, i], each.half_width[row, i])]
            function = each.functions[row]
            rows.append([percent(each.share[row]), *cells, printable(function.module), function_text(function)])
        lines += format_table([*headings, *names("module", "function")], rows, width)
        lines += [*left_out(len(each.functions) - count, "function", width), Text()]
    return as_text(console, [*lines, *prose(_LEGEND, width, style="dim")])


def _cells(value: float, half_width: float) -> list[str]:
    if np.isnan(value):
        return ["", ""]
    return [
        f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}",
        "?" if np.isnan(half_width) else f"{half_width:.2g}",
    ]


def render_metrics_json(found: Sequence[FleetMetrics], set_aside: SetAside, *, limit: int) -> Iterator[str]:
    """One JSON object. Null is not known."""
    strata = [
        {
            "core": each.core,
            "catalog": each.catalog,
            "program": {
                name: {
                    "value": number(each.program[i]),
                    "half_width": number(each.program_half_width[i]),
                    "units": each.units[i],
                    "hosts": int(each.hosts[i]),
                }
                for i, name in enumerate(each.metrics)
            },
            "functions": [
                {
                    **function_json(each.functions[row]),
                    "share": number(each.share[row]),
                    "metrics": {
                        name: {
                            "value": number(each.value[row, i]),
                            "half_width": number(each.half_width[row, i]),
                            "samples": int(each.samples[row, i]),
                        }
                        for i, name in enumerate(each.metrics)
                        if np.isfinite(each.value[row, i])
                    },
                }
                for row in range(len(each.functions) if not limit else min(limit, len(each.functions)))
            ],
        }
        for each in found
    ]
    yield dump({**set_aside_json(set_aside), "strata": strata})


def render_metrics_csv(found: Sequence[FleetMetrics], *, limit: int) -> Iterator[str]:
    """A line for each known value, of all code first (no function)."""
    return write_rows(COLUMNS, _rows(found, limit))


def _rows(found: Sequence[FleetMetrics], limit: int) -> Iterator[Sequence[object]]:
    for each in found:
        for i, name in enumerate(each.metrics):
            if np.isfinite(each.program[i]):
                values = number_cell(each.program[i]), number_cell(each.program_half_width[i])
                yield [each.core, "", "", "", name, *values, each.units[i], "", int(each.hosts[i])]
        for row, function in enumerate(each.functions[: limit or None]):
            for i, name in enumerate(each.metrics):
                if np.isfinite(each.value[row, i]):
                    who = each.core, function.module, function.name, function.file, name
                    values = number_cell(each.value[row, i]), number_cell(each.half_width[row, i])
                    yield [*who, *values, each.units[i], int(each.samples[row, i]), int(each.hosts[i])]
