"""How a metric with its doubt reads: value ± half of the 95 % interval; marked where it is not to be acted upon."""

import math
from collections.abc import Mapping

from rich.text import Text

from tdprof.catalog.entries import Catalog
from tdprof.model.findings import Findings, MetricTable, MetricValue
from tdprof.report.columns import prose
from tdprof.text import plural
from tdprof.values import dataclass

# Before what too few samples tell, which a terminal shows grey, too. In front, so that digits stay aligned.
FEW = "~"
_LEGEND = f"± half of the 95 % interval, (a-b) all of it where 0 or 100 % cut it; {FEW} too few samples to act on"

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


def functions_left_out(findings: Findings) -> list[str]:
    """What to say of the functions that are too many to have metrics; nothing where there are none."""
    if not findings.left_out:
        return []
    return [f"{plural(findings.left_out, 'function', 's')} with the smallest shares: no metrics of so many"]


def metrics_of(table: MetricTable, row: int) -> CodeMetrics:
    """One row of a table."""
    known = table.row(row)
    spe = {name: value for name, value in known if value.source == "spe"}
    pmu = {name: value for name, value in known if value.source != "spe"}
    asked = {name for name, source in zip(table.metrics, table.sources, strict=True) if source != "spe"}
    return CodeMetrics({name: value for name, value in spe.items() if name not in asked} | pmu, spe)


def format_metric(value: MetricValue) -> str:
    """Value and doubt, "82.6 ± 3.3": digits as far as the doubt leaves them; "< 0.3" where no sample was seen.

    A share's interval ends where the share does: "68 (35-100)", "0 (0-28)".
    """
    number, half_width = value.value, value.half_width
    if value.is_unseen:
        return f"< {_shown(half_width, half_width)}"
    if math.isnan(half_width):
        return f"{_exact(number)} ± unknown"
    if half_width <= abs(number) * 1e-4:
        return _exact(number)
    if value.units.startswith("percent"):
        low, high = max(number - half_width, 0.0), min(number + half_width, 100.0)
        # An interval that misses the whole altogether says that the counts contradict each other: it is left as it is.
        if low < high and high - low < 2 * half_width * (1 - 1e-9):
            shown = (_shown(each, half_width) for each in (min(max(number, 0.0), 100.0), low, high))
            return "{} ({}-{})".format(*shown)
    return f"{_shown(number, half_width)} ± {_shown(half_width, half_width)}"


def metric_style(value: MetricValue) -> str:
    """Grey for what has too few samples."""
    return "" if value.is_significant else "dim"


def metric_cell(value: MetricValue | None) -> Text:
    """A metric in a table or a line: as `marked_metric`, grey if it is not to be acted upon."""
    if value is None:
        return Text("unknown", style="dim")
    return Text(marked_metric(value), style=metric_style(value))


def marked_metric(value: MetricValue) -> str:
    """The value, with the mark if it is not to be acted upon; "<" says as much itself."""
    return ("" if value.is_significant or value.is_unseen else FEW) + format_metric(value)


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


def doubt_legend(width: int, *, before: str = "", indent: int = 0) -> list[Text]:
    """What the marks of doubt mean, said once wherever metrics stand; behind what else there is to explain."""
    return prose(before + _LEGEND, width, style="dim", indent=indent)


def _shown(number: float, doubt: float) -> str:
    """With the digits that a doubt of this size leaves: two of its own."""
    if not doubt or not math.isfinite(doubt):
        return f"{number:,.4g}"
    return f"{number:z,.{_decimals(doubt, 2)}f}"  # z: no -0


def _exact(number: float) -> str:
    """With three digits, which is as much as anybody reads of a number without doubt."""
    return f"{number:z,.{_decimals(number, 3)}f}" if number and math.isfinite(number) else f"{number:g}"


def _decimals(number: float, digits: int) -> int:
    """How many decimals show so many of a number's digits, six at most."""
    exponent = int(f"{number:.{digits - 1}e}".partition("e")[2])  # of the rounded number: 0.0999 is 0.10
    return min(6, max(0, digits - 1 - exponent))
