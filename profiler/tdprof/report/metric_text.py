"""How a metric with its doubt reads: value ± half of the 95 % interval; grey where it is not to be acted upon."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from tdprof.catalog.entries import Catalog
from tdprof.findings import MetricTable, MetricValue

# Marks in plain text what a terminal shows grey.
FEW = "?"

# Stage 1 in the bar; two metrics of one core never share a letter. Colours tell apart for the colour-blind, too.
_LETTERS = {
    "frontend_bound": ("f", "cyan"),
    "frontend_stalled_cycles": ("f", "cyan"),
    "backend_bound": ("b", "red"),
    "backend_stalled_cycles": ("b", "red"),
    "bad_speculation": ("s", "yellow"),
    "retiring": ("r", "green"),
}
_SHORT = {"bad_speculation": "speculation"}

# A part of the bar is drawn where it is known to so many points.
_DRAWN_POINTS = 10.0


@dataclass(frozen=True, slots=True)
class CodeMetrics:
    """Known metrics of one piece of code by name.

    Attributes:
        values: the PMU's; SPE's only of metrics that the recording did not ask the PMU for.
        spe: SPE's.
    """

    values: Mapping[str, MetricValue]
    spe: Mapping[str, MetricValue]


def metrics_of(table: MetricTable, row: int) -> CodeMetrics:
    """One row of a table."""
    known = table.row(row)
    spe = {name: value for name, value in known if value.source == "spe"}
    pmu = {name: value for name, value in known if value.source != "spe"}
    asked = {name for name, source in zip(table.metrics, table.sources, strict=True) if source != "spe"}
    return CodeMetrics({name: value for name, value in spe.items() if name not in asked} | pmu, spe)


def format_metric(value: MetricValue) -> str:
    """ "82.6 ± 3.3": digits as far as the doubt leaves them; "< 0.3" where no sample of the event was seen."""
    half_width = value.half_width
    if value.is_unseen:
        return f"< {_shown(half_width, half_width)}"
    if math.isnan(half_width):
        return f"{_shown(value.value, abs(value.value) / 100)} ± unknown"
    if half_width <= abs(value.value) * 1e-4:
        return _shown(value.value, abs(value.value) / 100)
    return f"{_shown(value.value, half_width)} ± {_shown(half_width, half_width)}"


def metric_style(value: MetricValue) -> str:
    """Grey for what has too few samples."""
    return "" if value.is_significant else "dim"


def metric_cell(value: MetricValue | None) -> Text:
    """A metric in a table or a line: the value, greyed and marked if it is not to be acted upon."""
    if value is None:
        return Text("unknown", style="dim")
    return Text(format_metric(value) + ("" if value.is_significant else FEW), style=metric_style(value))


def short_units(units: str) -> str:
    """What stands behind a number: "%" for percentages, the unit's word for rates, nothing for ratios."""
    if units.startswith("percent"):
        return "%"
    return "" if units.startswith("per ") else units


def level_1_name(metric: str) -> str:
    """A level-1 metric in a word."""
    short = metric.removesuffix("_bound").removesuffix("_stalled_cycles")
    return _SHORT.get(short, short)


def level_1_bar(catalog: Catalog, values: Mapping[str, MetricValue], width: int) -> Text:
    """The level-1 metrics as a bar: a letter and colour for each, "?" for what is not known well enough."""
    bar = Text()
    drawn = 0
    parts = {
        name: max(0.0, value.value)
        for name in catalog.roots
        if (value := values.get(name)) is not None and value.half_width <= _DRAWN_POINTS
    }
    whole = max(100.0, sum(parts.values()))
    reached = 0.0
    for name, part in parts.items():
        reached += part
        cells = round(reached / whole * width) - drawn
        letter, colour = _LETTERS.get(name, (name[0], ""))
        bar.append(letter * cells, style=colour)
        drawn += cells
    is_whole = len(parts) == len(catalog.roots)
    return bar.append(("." if is_whole else "?") * (width - drawn), style="dim")


def bar_legend(catalog: Catalog) -> str:
    """What the letters of the bar stand for."""
    return ", ".join(f"{_LETTERS.get(name, (name[0], ''))[0]} {level_1_name(name)}" for name in catalog.roots)


def flow(items: Sequence[Text], width: int, *, indent: int, hanging: int = 0, separator: str = "  ") -> list[Text]:
    """Items side by side on as many lines as the width asks for; an item is broken only if no line holds it.

    Args:
        indent, hanging: blanks before the first line, and before the others on top of these.
    """
    lines: list[Text] = []

    def put(item: Text, between: str, *, is_new_line: bool = False) -> None:
        if lines and not is_new_line and lines[-1].cell_len + len(between) + item.cell_len <= width:
            lines[-1].append(between).append_text(item)
        else:
            lines.append(Text(" " * (indent + (hanging if lines else 0))).append_text(item))

    for item in items:
        is_long = indent + hanging + item.cell_len > width
        for number, part in enumerate(item.split(" ") if is_long else [item]):
            put(part, " " if number else separator, is_new_line=is_long and not number)
    return lines


def aligned(rows: Sequence[Sequence[Text]], width: int, *, left: Sequence[int] = (0,)) -> list[Text]:
    """Rows as columns, the first row as headings. Numbers stay whole: what does not fit is cut at the line's end.

    Args:
        left: the columns of words; the others stand to the right.
    """
    widths = [max(row[column].cell_len for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        line = Text(style="bold" if not number else "", no_wrap=True)
        for column, cell in enumerate(row):
            padded = cell.copy()
            if column in left:
                padded.pad_right(widths[column] - cell.cell_len)
            else:
                padded.pad_left(widths[column] - cell.cell_len)
            line.append("  " if column else "").append_text(padded)
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


def _shown(number: float, doubt: float) -> str:
    """With the digits that a doubt of this size leaves: two of its own."""
    if not doubt or not math.isfinite(doubt):
        return f"{number:,.4g}"
    decimals = min(6, max(0, 1 - math.floor(math.log10(doubt))))
    return f"{number:z,.{decimals}f}"  # z: no -0
