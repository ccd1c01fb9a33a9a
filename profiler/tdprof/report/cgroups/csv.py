"""Samples by control group as comma-separated values."""

from collections.abc import Iterator

from tdprof.model.cgroups import CgroupReport
from tdprof.report.cgroups.json import row_json, shown_rows
from tdprof.report.csv_lines import write_rows


def render_csv(report: CgroupReport, *, limit: int = 0) -> Iterator[str]:
    """A row for each event and control group, at most ``limit`` of each event (0: all); what is not known is empty."""
    heading = ["event", "cgroup", "path", "share", "half_width", "samples", "weight"]
    rows = (row_json(report, row) for row in shown_rows(report, limit))
    return write_rows(heading, (["" if cell is None else cell for cell in row.values()] for row in rows))
