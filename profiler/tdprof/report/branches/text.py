"""Branch stacks for people: from where to where, how often, how often mispredicted, how many cycles."""

from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.model.branches import BranchEnd, BranchReport
from tdprof.report.branches.json import branch_notes
from tdprof.report.columns import as_text, format_table, left_out, names, numbers, prose

# Narrower tables leave more room to the places.
WIDE_COLUMNS = 110


def render_text(report: BranchReport, console: Console, *, limit: int) -> str:
    """A table, most entries first; the mispredicted share and its interval in percent."""
    totals = report.totals().tolist()
    has_events = sum(total > 0 for total in totals) > 1
    has_type = report.target is not None and console.width >= WIDE_COLUMNS
    ends = ["function"] if report.target is None else [*(["type"] if has_type else []), "from", "to"]
    columns = [
        *names(*(["event"] if has_events else [])),
        *numbers("share", "branches", "mispredict %", "95 %", "cycles"),
        *names(*ends),
    ]
    shown = report.order(limit)
    rows = []
    for row in shown:
        count, event, ratio = int(report.counts["count"][row]), int(report.event[row]), report.mispredict
        is_told = not np.isnan(ratio.value[row])
        cells = [report.events[event]] if has_events else []
        cells += [f"{count / max(totals[event], 1):.1%}", f"{count:,}"]
        cells += [f"{100 * ratio.value[row]:.1f}" if is_told else "unknown"]
        cells += [f"{100 * ratio.low[row]:.1f}-{100 * ratio.high[row]:.1f}" if is_told else ""]
        cells += [_cycles(report, row)]
        if report.target is None:
            cells += [_end_text(report.source[row])]
        else:
            cells += [report.type[row] or ""] if has_type else []
            cells += [_end_text(report.source[row]), _end_text(report.target[row])]
        rows.append(cells)
    lines = format_table(columns, rows, console.width)
    lines += [*left_out(len(report.event) - len(shown), "", console.width), Text()]
    for note in branch_notes(report):
        lines += prose(f"note: {note}", console.width, style="dim")
    return as_text(console, lines)


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
