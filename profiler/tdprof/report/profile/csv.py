"""Hotspots as comma-separated values."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names, module_names
from tdprof.profile.hotspots import Hotspots, share_half_width
from tdprof.report.csv_lines import number_cell, write_rows
from tdprof.report.findings.csv import metric_cells, metric_heading
from tdprof.text import printable


def hotspot_csv(
    profile: Profile, hotspots: Hotspots, findings: Findings | None, *, by_line: bool, sort_event: int
) -> Iterator[str]:
    """A row for each function or source line: shares, samples, exact counts of each event, metrics and bottleneck."""
    events = [printable(event.name) for event in profile.events]
    table = None if findings is None else findings.lines if by_line else findings.functions
    heading = ["function", "module", "file", "line", "self_share", "self_share_half_width", "total_share", "samples"]
    heading += [f"self_{name}" for name in events] + [f"total_{name}" for name in events]
    if findings is not None and table is not None:
        heading += ([] if by_line else ["bottleneck", "path"]) + metric_heading(table)
    return write_rows(heading, _hotspot_rows(profile, hotspots, findings, by_line=by_line, sort_event=sort_event))


def _hotspot_rows(
    profile: Profile, hotspots: Hotspots, findings: Findings | None, *, by_line: bool, sort_event: int
) -> Iterator[Sequence[Any]]:
    names, modules = function_names(profile), module_names(profile)
    files, mapped_file = [*map(printable, profile.functions.file), ""], [*profile.functions.mapped_file.tolist(), -1]
    total = profile.total_weight().astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        own = hotspots.self_weight[:, sort_event] / total[sort_event] if len(total) else np.zeros(len(hotspots))
        whole = hotspots.inclusive_weight[:, sort_event] / total[sort_event] if len(total) else own
    half_width = share_half_width(own, profile, sort_event)
    row_of = {}
    if findings is not None:
        functions = findings.line_function if by_line else findings.function
        lines = findings.line if by_line else np.zeros(len(functions), np.uint32)
        row_of = {key: row for row, key in enumerate(zip(functions.tolist(), lines.tolist(), strict=True))}
    for index, (function, line) in enumerate(zip(hotspots.function.tolist(), hotspots.line.tolist(), strict=True)):
        cells = [names[function], modules[mapped_file[function]], files[function], line or ""]
        cells += [number_cell(own[index]), number_cell(half_width[index]), number_cell(whole[index])]
        cells += [int(hotspots.self_samples[index].sum())]
        cells += [*hotspots.self_weight[index].tolist(), *hotspots.inclusive_weight[index].tolist()]
        if findings is not None:
            row = row_of.get((function, line if by_line else 0))
            if not by_line:
                diagnosis = findings.diagnoses[row] if row is not None else None
                cells += [diagnosis.bottleneck or "", "/".join(diagnosis.path)] if diagnosis is not None else ["", ""]
            cells += metric_cells(findings.lines if by_line else findings.functions, row)
        yield cells
