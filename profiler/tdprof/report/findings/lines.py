"""Source lines of a Topdown recording for people: share and level-1 metrics of each."""

from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names
from tdprof.profile.hotspots import Hotspots, UnknownSamples, share_half_width
from tdprof.report.columns import Column, as_text, format_table, left_out, numbers
from tdprof.report.findings.text import header_lines
from tdprof.report.metric_text import (
    CodeMetrics,
    bar_legend,
    doubt_legend,
    level_1_bar,
    level_1_name,
    metric_cell,
    metrics_of,
)
from tdprof.text import printable

# Below this the columns of single metrics leave no room for names.
_WIDE_COLUMNS = 120
_NOTHING = CodeMetrics({}, {})


def render_topdown_lines(
    profile: Profile,
    findings: Findings,
    lines: Hotspots,
    unknown: list[UnknownSamples],
    console: Console,
    *,
    limit: int,
    sort_event: int,
) -> str:
    """A row for each source line, highest self share first; arguments as `topdown_text.render_topdown`."""
    shown = lines.rows(slice(limit or None))
    is_wide = console.width >= _WIDE_COLUMNS
    width = min(40, max(16, console.width // 6))
    roots = findings.catalog.roots if is_wide else ()
    columns = [*numbers("self", "± 95 %", "total"), Column("stage 1")]
    columns += [*numbers(*map(level_1_name, roots)), Column("line"), Column("function")]
    rows = []
    total = float(profile.total_weight()[sort_event]) if profile.events else np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        own, inclusive = shown.self_weight[:, sort_event] / total, shown.inclusive_weight[:, sort_event] / total
    doubt = share_half_width(own, profile, sort_event) * 100
    keys = zip(findings.line_function.tolist(), findings.line.tolist(), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    names = function_names(profile)
    for index, (function, line) in enumerate(zip(shown.function.tolist(), shown.line.tolist(), strict=True)):
        row = row_of.get((function, line))
        metrics = _NOTHING if row is None else metrics_of(findings.lines, row)
        is_known = any(name in metrics.values for name in findings.catalog.roots)
        file = PurePath(printable(profile.functions.file[function])).name if function >= 0 else ""
        cells = [
            Text(f"{own[index]:.1%}"),
            Text(f"{doubt[index]:.1f}"),
            Text(f"{inclusive[index]:.1%}"),
            level_1_bar(findings.catalog, metrics.values, width) if is_known else Text("too few", style="dim"),
            *(metric_cell(metrics.values.get(name)) for name in roots),
            Text(f"{file or '?'}:{line}" if line else "?"),
            Text(names[function]),
        ]
        rows.append(cells)
    head = [
        *header_lines(profile, findings, unknown, console.width),
        Text(),
        *doubt_legend(console.width, before=f"{bar_legend(findings.catalog)}; "),
        Text(),
    ]
    table = format_table(columns, rows, console.width)
    return as_text(console, [*head, *table, *left_out(len(lines) - len(shown), "source line", console.width)])
