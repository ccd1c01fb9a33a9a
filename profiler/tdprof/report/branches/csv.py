"""Branch stacks as comma-separated values."""

from collections.abc import Iterator
from typing import Any

from tdprof.model.branches import BranchEnd, BranchReport
from tdprof.report.branches.json import row_json
from tdprof.report.csv_lines import write_rows


def render_csv(report: BranchReport, *, limit: int = 0) -> Iterator[str]:
    """A row for each row of the report; what is not known is empty."""
    sides = ["from"] if report.target is None else ["from", "to"]
    heading = ["event", *(f"{side}_{name}" for side in sides for name in BranchEnd._fields), "type", "share"]
    heading += ["mispredict", "mispredict_low", "mispredict_high", "mean_cycles", *report.counts]

    def rows() -> Iterator[list[Any]]:
        totals = report.totals().tolist()
        for row in report.order(limit):
            entry = row_json(report, row, totals)
            places = [(entry[side] or {}).get(name) for side in sides for name in BranchEnd._fields]
            cells = [entry["event"], *places, entry["type"], entry["share"], *entry["mispredict"].values()]
            cells += [entry["mean_cycles"], *(entry[name] for name in report.counts)]
            yield ["" if cell is None else cell for cell in cells]

    return write_rows(heading, rows())
