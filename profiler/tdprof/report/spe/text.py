"""SPE operations for people: latencies, where loads were served from, ratios and their intervals."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.model.spe import RatioColumn, SpeReport, mean_latency
from tdprof.report.columns import Column, as_text, format_table, left_out, names, numbers

# Shown as columns of the text: the others are in the JSON.
_TEXT_RATIOS = {
    "branch_misprediction_ratio": "mispredict",
    "l1d_cache_miss_ratio": "L1D miss",
    "dtlb_walk_ratio": "DTLB walk",
}
# Narrower tables leave their columns to the names.
WIDE_COLUMNS = 120


def render_text(report: SpeReport, console: Console, *, limit: int, title: str) -> str:
    """A table, most operations first; shares in percent, latencies in cycles."""
    levels = report.levels_met
    columns = numbers("ops %", "ops", "ld %", "st %", "br %", "mean", "p50", "p90", "p99")
    columns += numbers(*(f"{level} %" for level in levels))
    ratios = _TEXT_RATIOS if console.width >= WIDE_COLUMNS else {}
    columns += numbers(*(f"{heading} %" for heading in ratios.values()))
    columns += numbers("threads") if report.threads is not None else []
    columns += [Column("sharing")] if report.sharing is not None else []
    columns += names(title)
    order = report.order()
    shown = order[: limit or None].tolist()
    lines = format_table(columns, _rows(report, levels, ratios, shown), console.width)
    lines += left_out(len(order) - len(shown) + report.left_out, "row", console.width)
    lines += [
        Text(),
        Text(f"{report.total_operations} operations; shares of loads by level; in brackets 95 % intervals"),
    ]
    if report.weight:
        lines.append(Text(f"each stands for about {report.weight.value:.0f} of the program's ({report.weight.source})"))
    return as_text(console, [*lines, *(Text(f"note: {note}") for note in report.notes)])


def _rows(report: SpeReport, levels: Sequence[str], ratios: Iterable[str], shown: Sequence[int]) -> Iterator[list[str]]:
    mean = mean_latency(report, "total_latency")
    for row in shown:
        count = {name: int(values[row]) for name, values in report.counts.items()}
        cells = [_percent(count["OPERATIONS"], report.total_operations), str(count["OPERATIONS"])]
        cells += [_percent(count[name], count["RETIRED"]) for name in ("LOADS", "STORES", "BRANCHES")]
        cells += [_cycles(mean[row]), *(_cycles(value) for value in report.latencies["total_latency"][row])]
        cells += [_percent(int(report.levels[level][row]), count["LOADS"]) for level in levels]
        cells += [_interval(report.ratios[name], row) for name in ratios]
        if report.threads is not None:
            cells.append(str(report.threads[row]))
        if report.sharing is not None:
            cells.append(report.sharing[row])
        yield [*cells, report.names[row]]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _cycles(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.0f}"


def _interval(ratio: RatioColumn, row: int) -> str:
    if np.isnan(ratio.value[row]):
        return "-"
    return f"{100 * ratio.value[row]:.1f} ({100 * ratio.low[row]:.1f}-{100 * ratio.high[row]:.1f})"
