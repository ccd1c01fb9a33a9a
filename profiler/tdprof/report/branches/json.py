"""Branch stacks for machines: one JSON object."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdprof.model.branches import BranchEnd, BranchReport


def branch_notes(report: BranchReport) -> list[str]:
    """The report's notes, and what its own numbers do not say."""
    sums = {name: int(values.sum()) for name, values in report.counts.items()}
    untold = sums["count"] - sums["mispredicted"] - sums["predicted"]
    notes = [
        "only branches that were taken are recorded: mispredicted ones that were not taken are missing in the ratio",
        "its 95 % interval has one observation for each sample at most: a row's samples are at least those of its most "
        "frequent branch",
    ]
    told = {
        "entries do not tell whether they were predicted: they are in no ratio": untold,
        "entries have as many cycles as the field holds, or more: means with ≥ are too low": sums["cycles_at_limit"],
        "entries were speculated on a wrong path and never completed": sums["wrong_path"],
        "entries have no source or no target: it lies where the recording was not allowed": int(
            report.counts["count"][~report.is_whole].sum()
        ),
    }
    return [*report.notes, *notes, *(f"{count:,} {text}" for text, count in told.items() if count)]


def render_json(report: BranchReport, *, limit: int = 0) -> str:
    """One JSON object; what is not known is null."""
    totals = report.totals().tolist()
    return (
        json.dumps(
            {
                "events": [
                    {"name": name, "branches": total} for name, total in zip(report.events, totals, strict=True)
                ],
                "confidence": 0.95,
                "notes": branch_notes(report),
                "rows": [row_json(report, row, totals) for row in report.order(limit)],
            },
            indent=1,
        )
        + "\n"
    )


def row_json(report: BranchReport, row: int, totals: Sequence[int]) -> dict[str, Any]:
    """A row with its keys; what is not known is None."""
    count, event, ratio = int(report.counts["count"][row]), int(report.event[row]), report.mispredict
    ends = {"from": report.source[row]} | ({} if report.target is None else {"to": report.target[row]})
    return {
        "event": report.events[event],
        **{name: None if end is None else _end_json(end) for name, end in ends.items()},
        "type": report.type[row],
        "share": count / max(totals[event], 1),
        "mispredict": {
            name: None if np.isnan(values[row]) else float(values[row])
            for name, values in (("value", ratio.value), ("low", ratio.low), ("high", ratio.high))
        },
        "mean_cycles": report.mean_cycles(row),
        **{name: int(values[row]) for name, values in report.counts.items()},
    }


def _end_json(end: BranchEnd) -> dict[str, Any]:
    return {**end._asdict(), "module": end.module or None, "file": end.file or None, "line": end.line or None}
