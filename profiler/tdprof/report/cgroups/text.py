"""Samples by control group for people."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from tdprof.model.cgroups import CgroupReport
from tdprof.report.cgroups.json import row_json, shown_rows
from tdprof.report.columns import as_text, format_table, left_out, names, numbers
from tdprof.report.summary import format_value


def render_text(report: CgroupReport, console: Console, *, limit: int) -> str:
    """A table, event by event, most weight first; at most ``limit`` rows of each event (0: all)."""
    columns = [*names("event"), *numbers("share", "± 95 %", "samples", "in samples"), *names("cgroup")]
    shown = shown_rows(report, limit)
    lines = format_table(columns, (_cells(report, row) for row in shown), console.width)
    return as_text(console, [*lines, *left_out(len(report.event) - len(shown), "", console.width)])


def _cells(report: CgroupReport, number: int) -> list[str]:
    row, unit = row_json(report, number), report.events[report.event[number]].unit
    share, half_width = row["share"], row["half_width"]
    return [
        row["event"],
        "" if share is None else f"{share:.1%}",
        "" if half_width is None else f"{100 * half_width:.1f}",
        f"{row['samples']:,}",
        format_value(row["weight"], unit),
        _name(row),
    ]


def _name(row: Mapping[str, Any]) -> str:
    if row["path"] is not None:
        return str(row["path"])
    return "[not recorded]" if row["cgroup"] is None else f"[no path] {row['cgroup']}"
