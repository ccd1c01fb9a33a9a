"""SPE data for people and machines: operations, latencies, where loads were served from, ratios and their intervals."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tdprof.model.spe import LATENCIES, RatioColumn, SpeReport, mean_latency
from tdprof.report.profile.csv import write_rows

_QUANTILE_NAMES = ("p50", "p90", "p99")
# Shown as columns of the text: the others are in the JSON.
_TEXT_RATIOS = ("branch_misprediction_ratio", "l1d_cache_miss_ratio", "dtlb_walk_ratio")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def render_json(report: SpeReport, *, limit: int = 0) -> str:
    """One JSON object: all rows (or `limit` of them) with exact counts, quantiles, ratios and their 95 % intervals."""
    means = {name: mean_latency(report, name) for name in LATENCIES}
    rows = []
    for row in report.order()[: limit or None].tolist():
        entry: dict[str, Any] = {
            "name": report.names[row],
            "counts": {name.lower(): int(values[row]) for name, values in report.counts.items()},
            "loads_by_level": {level: int(values[row]) for level, values in report.levels.items()},
            "latency_cycles": {
                name: {"mean": _number(means[name][row])}
                | {
                    label: _number(value)
                    for label, value in zip(_QUANTILE_NAMES, report.latencies[name][row], strict=True)
                }
                for name in LATENCIES
            },
            "ratios": {
                name: {
                    "value": _number(ratio.value[row]),
                    "low": _number(ratio.low[row]),
                    "high": _number(ratio.high[row]),
                }
                for name, ratio in report.ratios.items()
            },
        }
        if report.threads is not None:
            entry["threads"] = int(report.threads[row])
        if report.sharing is not None:
            entry["sharing"] = report.sharing[row] or None
        rows.append(entry)
    whole = {
        "operations": report.total_operations,
        "weight": dataclasses.asdict(report.weight) if report.weight else None,
        "confidence": 0.95,
        "notes": list(report.notes),
        "rows": rows,
    }
    return json.dumps(whole, indent=1) + "\n"


def render_csv(report: SpeReport, *, limit: int = 0) -> Iterator[str]:
    """A row for each row of the report: exact counts, loads by level, latencies in cycles, ratios and their bounds."""
    columns: dict[str, NDArray[Any]] = {name.lower(): values for name, values in report.counts.items()}
    columns |= {f"loads_from_{level}": values for level, values in report.levels.items()}
    for name in LATENCIES:
        columns[f"{name}_mean"] = mean_latency(report, name)
        columns |= {f"{name}_{label}": report.latencies[name][:, i] for i, label in enumerate(_QUANTILE_NAMES)}
    for name, ratio in report.ratios.items():
        columns |= {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}
    if report.threads is not None:
        columns["threads"] = report.threads
    order = report.order()[: limit or None]
    sharing = [] if report.sharing is None else ["sharing"]

    def rows() -> Iterator[list[Any]]:
        for row in order.tolist():
            cells = [values[row].item() for values in columns.values()]
            yield [
                report.names[row],
                *("" if cell != cell else cell for cell in cells),  # NaN is unknown
                *([] if report.sharing is None else [report.sharing[row]]),
            ]

    return write_rows(["name", *columns, *sharing], rows())


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _cycles(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.0f}"


def _interval(ratio: RatioColumn, row: int) -> str:
    if np.isnan(ratio.value[row]):
        return "-"
    return f"{100 * ratio.value[row]:.1f} ({100 * ratio.low[row]:.1f}-{100 * ratio.high[row]:.1f})"


def render_text(report: SpeReport, console: Console, *, limit: int, title: str) -> str:
    """A table, most operations first; shares in percent, latencies in cycles."""
    levels = [level for level, values in report.levels.items() if values.any()]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("ops %", "ops", "ld %", "st %", "br %", "mean", "p50", "p90", "p99"):
        table.add_column(heading, justify="right", no_wrap=True)
    for level in levels:
        table.add_column(f"{level} %", justify="right", no_wrap=True)
    for heading in ("mispredict %", "L1D miss %", "DTLB walk %"):
        table.add_column(heading, justify="right", no_wrap=True)
    if report.threads is not None:
        table.add_column("threads", justify="right", no_wrap=True)
    if report.sharing is not None:
        table.add_column("sharing", no_wrap=True)
    table.add_column(title, no_wrap=True)
    mean = mean_latency(report, "total_latency")
    order = report.order()
    for row in order[: limit or None].tolist():
        count = {name: int(values[row]) for name, values in report.counts.items()}
        cells = [_percent(count["OPERATIONS"], report.total_operations), str(count["OPERATIONS"])]
        cells += [_percent(count[name], count["RETIRED"]) for name in ("LOADS", "STORES", "BRANCHES")]
        cells += [_cycles(mean[row]), *(_cycles(value) for value in report.latencies["total_latency"][row])]
        cells += [_percent(int(report.levels[level][row]), count["LOADS"]) for level in levels]
        cells += [_interval(report.ratios[name], row) for name in _TEXT_RATIOS]
        if report.threads is not None:
            cells.append(str(report.threads[row]))
        if report.sharing is not None:
            cells.append(report.sharing[row])
        table.add_row(*cells, escape(report.names[row]))
    with console.capture() as capture:
        console.print(table)
    lines = capture.get()
    if limit and len(order) > limit:
        lines += f"… and {len(order) - limit} more rows: --limit 0 prints all\n"
    lines += f"\n{report.total_operations} operations; shares of loads by level; in brackets 95 % intervals\n"
    if report.weight:
        lines += f"each stands for about {report.weight.value:.0f} of the program's ({report.weight.source})\n"
    return lines + "".join(f"note: {note}\n" for note in report.notes)
