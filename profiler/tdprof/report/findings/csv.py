"""Metrics as comma-separated values."""

from collections.abc import Iterator, Sequence
from typing import Any

from tdprof.catalog.tree import tree_lines
from tdprof.model.findings import Findings, MetricTable, MetricValue
from tdprof.report.csv_lines import number_cell, write_rows
from tdprof.report.metric_text import metrics_of


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


def metric_csv(findings: Findings, row: int | None) -> Iterator[str]:
    """A row for each metric of one function, if it has any, of itself, with its callees, and of the program."""
    known = () if row is None else (("itself", findings.functions, row), ("with callees", findings.inclusive, row))
    heading = ["metric", "scope", "value", "half_width", "units", "source", "samples", "significant"]

    def rows() -> Iterator[Sequence[Any]]:
        for scope, table, index in (*known, ("program", findings.program, 0)):
            for name, value in table.row(index):
                yield [name, scope, *_value_cells(value)]

    return write_rows(heading, rows())


def _value_cells(value: MetricValue) -> list[Any]:
    number = "" if value.is_unseen else number_cell(value.value)
    flag = str(value.is_significant).lower()
    return [number, number_cell(value.half_width), value.units, value.source, value.samples, flag]


def metric_heading(table: MetricTable) -> list[str]:
    """Titles of a table's metrics: value, half width, significance of each."""
    keys = [
        name if source == "pmu" else f"{source}_{name}"
        for name, source in zip(table.metrics, table.sources, strict=True)
    ]
    return [f"{key}{part}" for key in keys for part in ("", "_half_width", "_significant")]


def metric_cells(table: MetricTable, row: int | None) -> list[Any]:
    """One row's cells below ``metric_heading``; empty where nothing is known."""
    cells: list[Any] = [""] * (3 * len(table.metrics))
    if row is not None:
        known = {(name, value.source): _value_cells(value) for name, value in table.row(row)}
        for column, key in enumerate(zip(table.metrics, table.sources, strict=True)):
            if key in known:
                number, half_width, *_, flag = known[key]
                cells[3 * column : 3 * column + 3] = [number, half_width, flag]
    return cells
