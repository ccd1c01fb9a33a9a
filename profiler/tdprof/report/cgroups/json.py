"""Samples by control group for machines: one JSON object."""

import json
from typing import Any

import numpy as np

from tdprof.model.cgroups import CgroupReport
from tdprof.text import printable


def render_json(report: CgroupReport, *, limit: int = 0) -> str:
    """One JSON object, at most ``limit`` rows of each event (0: all); what is not known is null."""
    rows = [row_json(report, row) for row in shown_rows(report, limit)]
    return json.dumps({"confidence": 0.95, "rows": rows}, indent=1) + "\n"


def shown_rows(report: CgroupReport, limit: int) -> list[int]:
    """Row numbers, at most ``limit`` of each event (0: all)."""
    of_event = [[row for row, of in enumerate(report.event) if of == event] for event in sorted({*report.event})]
    return [row for rows in of_event for row in rows[: limit or None]]


def row_json(report: CgroupReport, row: int) -> dict[str, Any]:
    """A row with its keys; what is not known is None."""
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
