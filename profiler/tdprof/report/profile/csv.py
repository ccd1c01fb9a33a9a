"""Tables of the report as comma-separated values: shares are fractions, unknown is empty."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tdprof.catalog.tree import tree_lines
from tdprof.model.findings import Findings, MetricTable, MetricValue
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names, module_names
from tdprof.profile.hotspots import Hotspots, share_half_width
from tdprof.report.metric_text import metrics_of
from tdprof.text import printable


def write_rows(heading: Sequence[str], rows: Iterator[Sequence[Any]]) -> Iterator[str]:
    """Lines of CSV (RFC 4180, but for plain line feeds)."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in (heading, *rows):
        writer.writerow(row)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def hotspot_csv(
    profile: Profile, hotspots: Hotspots, findings: Findings | None, *, by_line: bool, sort_event: int
) -> Iterator[str]:
    """A row for each function or source line: shares, samples, exact counts of each event, metrics and bottleneck."""
    events = [printable(event.name) for event in profile.events]
    table = None if findings is None else findings.lines if by_line else findings.functions
    heading = ["function", "module", "file", "line", "self_share", "self_share_half_width", "total_share", "samples"]
    heading += [f"self_{name}" for name in events] + [f"total_{name}" for name in events]
    if findings is not None and table is not None:
        heading += ([] if by_line else ["bottleneck", "path"]) + _metric_heading(table)
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
        cells += [_number(own[index]), _number(half_width[index]), _number(whole[index])]
        cells += [int(hotspots.self_samples[index].sum())]
        cells += [*hotspots.self_weight[index].tolist(), *hotspots.inclusive_weight[index].tolist()]
        if findings is not None:
            row = row_of.get((function, line if by_line else 0))
            if not by_line:
                diagnosis = findings.diagnoses[row] if row is not None else None
                cells += [diagnosis.bottleneck or "", "/".join(diagnosis.path)] if diagnosis is not None else ["", ""]
            cells += _metric_cells(findings.lines if by_line else findings.functions, row)
        yield cells


def tree_csv(findings: Findings) -> Iterator[str]:
    """A row for each node of the program's tree."""
    heading = ["name", "kind", "depth", "value", "half_width", "units", "source", "samples", "significant"]
    values = metrics_of(findings.program, 0).values

    def rows() -> Iterator[Sequence[Any]]:
        for line in tree_lines(findings.catalog):
            value = values.get(line.name)
            kind = "group" if line.is_group else "metric"
            yield [line.name, kind, line.depth, *(_value_cells(value) if value else [""] * 6)]

    return write_rows(heading, rows())


def metric_csv(findings: Findings, row: int) -> Iterator[str]:
    """A row for each metric of one function, of itself, with its callees, and of the program."""
    scopes = (("itself", findings.functions, row), ("with callees", findings.inclusive, row))
    heading = ["metric", "scope", "value", "half_width", "units", "source", "samples", "significant"]

    def rows() -> Iterator[Sequence[Any]]:
        for scope, table, index in (*scopes, ("program", findings.program, 0)):
            for name, value in table.row(index):
                yield [name, scope, *_value_cells(value)]

    return write_rows(heading, rows())


def _value_cells(value: MetricValue) -> list[Any]:
    number = "" if value.is_unseen else _number(value.value)
    flag = str(value.is_significant).lower()
    return [number, _number(value.half_width), value.units, value.source, value.samples, flag]


def _metric_heading(table: MetricTable) -> list[str]:
    keys = [
        name if source == "pmu" else f"{source}_{name}"
        for name, source in zip(table.metrics, table.sources, strict=True)
    ]
    return [f"{key}{part}" for key in keys for part in ("", "_half_width", "_significant")]


def _metric_cells(table: MetricTable, row: int | None) -> list[Any]:
    cells: list[Any] = [""] * (3 * len(table.metrics))
    if row is not None:
        known = {(name, value.source): _value_cells(value) for name, value in table.row(row)}
        for column, key in enumerate(zip(table.metrics, table.sources, strict=True)):
            if key in known:
                number, half_width, *_, flag = known[key]
                cells[3 * column : 3 * column + 3] = [number, half_width, flag]
    return cells


def _number(value: float) -> float | str:
    return "" if math.isnan(value) else float(value)
