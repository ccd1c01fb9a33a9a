"""What `tdprof stat` counted for people: as the methodology tree."""

from collections.abc import Sequence

from tdprof.catalog.entries import CPU_CYCLES, INST_RETIRED, Catalog
from tdprof.catalog.tree import tree_nodes
from tdprof.model.findings import Diagnosis
from tdprof.model.measurement import Measured, Measurement
from tdprof.report.columns import format_columns
from tdprof.values import dataclass

# Hardware events shown beside the software ones; the rest speak through the metrics and stand in --json and --csv.
_SHOWN_EVENTS = (CPU_CYCLES, INST_RETIRED)


# Decimals by the word that a unit starts with; the errors of counting hide more.
_DECIMALS = {"percent": 1, "MPKI": 2, "ms": 2, "": 0}


@dataclass(frozen=True, slots=True)
class MetricSelection:
    """Which metrics to show.

    Attributes:
        is_guided: show Stage 1, and of Stage 2 only the groups that the bottleneck leads to.
        stage: only this stage; None for both.
    """

    catalog: Catalog
    is_guided: bool
    stage: int | None = None


def format_events(
    measurement: Measurement, selection: MetricSelection | None, *, only_counted: bool = False
) -> list[str]:
    """The events that are shown beside the metrics.

    Args:
        only_counted: leave out events that have no count, which a report every second need not repeat.
    """
    hidden = selection.catalog.events.keys() - set(_SHOWN_EVENTS) if selection else set()
    rows = [
        [_number(event), event.units, name, _spread(event), _share(event)]
        for name, event in measurement.events.items()
        if name not in hidden and not (only_counted and event.reason)
    ]
    return format_columns(rows, right=(0,), indent="  ")


def format_metrics(
    measurement: Measurement, selection: MetricSelection, diagnosis: Diagnosis, advice: Sequence[str]
) -> list[str]:
    """Stage 1 as the tree, then groups of Stage 2.

    Args:
        advice: what to say of the diagnosis' path, a line each.
    """
    lines = _stage_1(measurement, selection.catalog, diagnosis, advice) if selection.stage != 2 else []
    return lines + (_stage_2(measurement, selection, diagnosis) if selection.stage != 1 else [])


def _stage_1(measurement: Measurement, catalog: Catalog, diagnosis: Diagnosis, advice: Sequence[str]) -> list[str]:
    """The tree's metrics, indented by depth, the largest of each level marked; then what that means."""
    depths = {row.name: row.depth for row in tree_nodes(catalog) if not row.is_group}
    # A metric of Stage 1 that no node leads to still has its line.
    depths |= {name: 0 for name, metric in catalog.metrics.items() if metric.stage == 1 and name not in depths}
    rows = [
        [
            "  " * depth + name,
            *_cells(measurement.metrics[name]),
            "<-- largest" if name in diagnosis.path else "",
        ]
        for name, depth in depths.items()
        if name in measurement.metrics
    ]
    if not rows:
        return []
    lines = ["", "Stage 1: Topdown analysis", *format_columns(rows, right=(1,), indent="  ")]
    return [*lines, "", *(f"  {line}" for line in advice)] if advice else lines


def _stage_2(measurement: Measurement, selection: MetricSelection, diagnosis: Diagnosis) -> list[str]:
    """Group by group; guided, only those that the bottleneck leads to, with advice."""
    catalog = selection.catalog
    heading = "Stage 2: exploration"
    groups = [group for group in catalog.groups.values() if group.stage != 1]
    if selection.is_guided and diagnosis.groups:
        groups = [catalog.groups[name] for name in diagnosis.groups]
        heading += (
            f", from {diagnosis.path[-1]}; beside each metric, what a high value means (--stage all: every group)"
        )
    lines: list[str] = []
    for group in groups:
        rows = []
        for name in group.metrics:
            value = measurement.metrics.get(name)
            # Without a way down there is no choice of groups; what has no value would bury what has one.
            if value is not None and (value.is_known or not selection.is_guided or diagnosis.groups):
                advice = catalog.metrics[name].advice if selection.is_guided and value.is_known else ""
                rows.append([name, *_cells(value), advice])
        if rows:
            lines += ["", f"  {group.title}: {group.description}", *format_columns(rows, right=(1,), indent="    ")]
    return ["", heading, *lines] if lines else []


def _cells(value: Measured) -> list[str]:
    """Value, units, spread, and how much of the time it was counted."""
    return [_number(value), value.units, _spread(value), _share(value)]


def _number(value: Measured) -> str:
    return f"{value.value:,.{_decimals(value.units)}f}" if value.is_known else "-"


def _decimals(units: str) -> int:
    return _DECIMALS.get(units.split(" ")[0], 3)


def _spread(value: Measured) -> str:
    if value.standard_deviation is None:
        return ""
    return f"± {value.standard_deviation:,.{max(1, _decimals(value.units))}f}"


def _share(value: Measured) -> str:
    if value.reason:
        return f"({value.reason})"
    return "" if value.running_percent > 99.95 else f"({value.running_percent:.1f}% of the time)"
