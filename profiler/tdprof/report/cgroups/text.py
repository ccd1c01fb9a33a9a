"""Samples by control group, for people and machines."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tdprof.model.cgroups import CgroupReport
from tdprof.report.profile.csv import write_rows
from tdprof.report.summary import format_value
from tdprof.text import printable


def _shown(report: CgroupReport, limit: int) -> list[int]:
    """Row numbers, at most ``limit`` of each event (0: all)."""
    of_event = [[row for row, of in enumerate(report.event) if of == event] for event in sorted({*report.event})]
    return [row for rows in of_event for row in rows[: limit or None]]


def _row_json(report: CgroupReport, row: int) -> dict[str, Any]:
    path = report.path[row]
    return {
        "event": printable(report.events[report.event[row]].name),
        "cgroup": report.cgroup[row],
        "path": None if path is None else printable(path),
        "share": None if np.isnan(report.share[row]) else float(report.share[row]),
        "half_width": None if np.isnan(report.half_width[row]) else float(report.half_width[row]),
        "samples": int(report.count[row]),
        "weight": int(report.weight[row]),
    }


def render_cgroups_json(report: CgroupReport, *, limit: int = 0) -> str:
    """One JSON object, at most ``limit`` rows of each event (0: all); what is not known is null."""
    rows = [_row_json(report, row) for row in _shown(report, limit)]
    return json.dumps({"confidence": 0.95, "rows": rows}, indent=1) + "\n"


def render_cgroups_csv(report: CgroupReport, *, limit: int = 0) -> Iterator[str]:
    """A row for each event and control group, at most ``limit`` of each event (0: all); what is not known is empty."""
    heading = ["event", "cgroup", "path", "share", "half_width", "samples", "weight"]
    rows = (_row_json(report, row) for row in _shown(report, limit))
    return write_rows(heading, (["" if cell is None else cell for cell in row.values()] for row in rows))


def render_cgroups(report: CgroupReport, console: Console, *, limit: int) -> str:
    """A table, event by event, most weight first; at most ``limit`` rows of each event (0: all)."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("event", overflow="ellipsis")
    for heading in ("share", "± 95 %", "samples", "in samples"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("cgroup", overflow="ellipsis")
    shown = _shown(report, limit)
    for number in shown:
        row, unit = _row_json(report, number), report.events[report.event[number]].unit
        shares = [row["share"], row["half_width"]]
        table.add_row(
            *(
                Text(cell, no_wrap=True, overflow="ellipsis")
                for cell in (
                    row["event"],
                    "" if shares[0] is None else f"{shares[0]:.1%}",
                    "" if shares[1] is None else f"{100 * shares[1]:.1f}",
                    f"{row['samples']:,}",
                    format_value(row["weight"], unit),
                    _name(row),
                )
            )
        )
    with console.capture() as capture:
        console.print(table)
        if more := len(report.event) - len(shown):
            console.print(Text(f"and {more:,} more (--limit 0 shows all)"), style="dim")
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _name(row: Mapping[str, Any]) -> str:
    if row["path"] is not None:
        return str(row["path"])
    return "[not recorded]" if row["cgroup"] is None else f"[no path] {row['cgroup']}"
