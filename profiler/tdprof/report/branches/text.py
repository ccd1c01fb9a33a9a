"""Branch stacks for people and machines: from where to where, how often, how often mispredicted, how many cycles."""

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tdprof.model.branches import BranchEnd, BranchReport
from tdprof.report.profile.csv import write_rows

# Narrower tables leave more room to the places.
WIDE_COLUMNS = 110


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
        "entries have no source or no target: it lies where the recording was not allowed": sum(
            int(report.counts["count"][row])
            for row, source in enumerate(report.source)
            if source is None or (report.target is not None and report.target[row] is None)
        ),
    }
    return [*report.notes, *notes, *(f"{count:,} {text}" for text, count in told.items() if count)]


def render_branches_json(report: BranchReport, *, limit: int = 0) -> str:
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
                "rows": [_row_json(report, row, totals) for row in report.order(limit)],
            },
            indent=1,
        )
        + "\n"
    )


def _row_json(report: BranchReport, row: int, totals: Sequence[int]) -> dict[str, Any]:
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


def render_branches_csv(report: BranchReport, *, limit: int = 0) -> Iterator[str]:
    """A row for each row of the report; what is not known is empty."""
    sides = ["from"] if report.target is None else ["from", "to"]
    heading = ["event", *(f"{side}_{name}" for side in sides for name in BranchEnd._fields), "type", "share"]
    heading += ["mispredict", "mispredict_low", "mispredict_high", "mean_cycles", *report.counts]

    def rows() -> Iterator[list[Any]]:
        totals = report.totals().tolist()
        for row in report.order(limit):
            entry = _row_json(report, row, totals)
            places = [(entry[side] or {}).get(name) for side in sides for name in BranchEnd._fields]
            cells = [entry["event"], *places, entry["type"], entry["share"], *entry["mispredict"].values()]
            cells += [entry["mean_cycles"], *(entry[name] for name in report.counts)]
            yield ["" if cell is None else cell for cell in cells]

    return write_rows(heading, rows())


def render_branches(report: BranchReport, console: Console, *, limit: int) -> str:
    """A table, most entries first; the mispredicted share and its interval in percent."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    totals = report.totals().tolist()
    has_events = sum(total > 0 for total in totals) > 1
    if has_events:
        table.add_column("event", overflow="ellipsis")
    for heading in ("share", "branches", "mispredict %", "95 %", "cycles"):
        table.add_column(heading, justify="right", no_wrap=True)
    has_type = report.target is not None and console.width >= WIDE_COLUMNS
    for heading in ["function"] if report.target is None else [*(["type"] if has_type else []), "from", "to"]:
        table.add_column(heading, overflow="ellipsis")
    shown = report.order(limit)
    for row in shown:
        count, event, ratio = int(report.counts["count"][row]), int(report.event[row]), report.mispredict
        is_told = not np.isnan(ratio.value[row])
        cells = [f"{count / max(totals[event], 1):.1%}", f"{count:,}"]
        cells += [f"{100 * ratio.value[row]:.1f}" if is_told else "unknown"]
        cells += [f"{100 * ratio.low[row]:.1f}-{100 * ratio.high[row]:.1f}" if is_told else ""]
        cells += [_cycles(report, row)]
        if report.target is None:
            cells += [_end_text(report.source[row])]
        else:
            cells += [report.type[row] or ""] if has_type else []
            cells += [_end_text(report.source[row]), _end_text(report.target[row])]
        texts = [Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells]
        table.add_row(*([Text(report.events[event])] if has_events else []), *texts)
    with console.capture() as capture:
        console.print(table)
        if len(report.event) > len(shown):
            more = len(report.event) - len(shown)
            console.print(Text(f"and {more:,} more (--limit 0 shows all)"), style="dim")
        console.print()
        for note in branch_notes(report):
            console.print(Text(f"note: {note}"), style="dim")
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _cycles(report: BranchReport, row: int) -> str:
    mean = report.mean_cycles(row)
    is_cut = report.counts["cycles_at_limit"][row] > 0
    return "unknown" if mean is None else f"{'≥' if is_cut else ''}{mean:.1f}"


def _end_text(end: BranchEnd | None) -> str:
    if end is None:
        return "[not recorded]"
    if end.line:
        return f"{end.function} {PurePath(end.file).name}:{end.line}"
    # A function that is not known is named by its address already.
    is_named = not end.function.startswith("[") and end.address is not None
    return f"{end.function} {PurePath(end.module).name}+{end.address:#x}" if is_named else end.function
