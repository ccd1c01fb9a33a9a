"""Metrics for machines: what the JSON report of a Topdown recording has beside the counts."""

import math
from collections.abc import Sequence
from typing import Any

from tdprof.catalog.tree import tree_lines
from tdprof.model.findings import NO_DIAGNOSIS, Diagnosis, Findings, MetricTable, MetricValue

Json = dict[str, Any]


def metrics_json(table: MetricTable, row: int | None) -> Json:
    """Each metric of one row: value and half width, null where unknown; empty where nothing at all is known.

    A metric that both sources measured is the PMU's, with SPE's under ``spe``.
    """
    if row is None:
        return {}
    known: dict[tuple[str, str], MetricValue] = {(value.source, name): value for name, value in table.row(row)}
    if not known:
        return {}
    metrics: Json = {}
    for name, units, source in zip(table.metrics, table.units, table.sources, strict=True):
        each = _value_json(known.get((source, name)), units, source)
        if name in metrics:
            metrics[name][source] = {key: each[key] for key in each if key not in ("units", "source")}
        else:
            metrics[name] = each
    return metrics


def _value_json(value: MetricValue | None, units: str, source: str) -> Json:
    if value is None:
        known: Json = {"value": None, "half_width": None, "samples": 0, "significant": False}
    elif value.is_unseen:  # not zero, only small
        known = {"value": None, "half_width": None, "at_most": value.half_width, "samples": 0, "significant": False}
    else:
        known = {
            "value": value.value,
            "half_width": None if math.isnan(value.half_width) else value.half_width,
            "samples": value.samples,
            "significant": value.is_significant,
        }
    return {**known, "units": units, "source": source}


def diagnosis_json(diagnosis: Diagnosis) -> Json:
    """Bottleneck, the way down the tree, the groups it leads to, advice; null and empty where noise would choose."""
    return {
        "bottleneck": diagnosis.bottleneck,
        "path": list(diagnosis.path),
        "groups": list(diagnosis.groups),
        "advice": diagnosis.advice or None,
    }


def program_json(findings: Findings) -> Json:
    """What the header has of a Topdown recording."""
    return {
        "core": findings.catalog.name,
        "program": {"metrics": metrics_json(findings.program, 0), **diagnosis_json(findings.program_diagnosis)},
        "disagreements": list(findings.disagreements),
        "functions_without_metrics": findings.left_out,
    }


def tree_json(findings: Findings) -> list[Json]:
    """The tree in drill-down order, with the program's metrics."""
    metrics = metrics_json(findings.program, 0)
    return [
        {"name": line.name, "depth": line.depth, "kind": "group" if line.is_group else "metric"}
        | (metrics.get(line.name, {}) if not line.is_group else {})
        for line in tree_lines(findings.catalog)
    ]


def function_json(findings: Findings, row: int | None, names: Sequence[str] | None = None) -> Json:
    """What a function's entry has of metrics.

    Args:
        names: of functions, by id: adds metrics with all that it calls, of its lines and of the ways it was reached.
    """
    entry = {
        "metrics": metrics_json(findings.functions, row),
        **diagnosis_json(NO_DIAGNOSIS if row is None else findings.diagnoses[row]),
    }
    if names is not None:
        entry["inclusive_metrics"] = metrics_json(findings.inclusive, row)
        function = None if row is None else int(findings.function[row])
        chosen = [number for number, each in enumerate(findings.line_function.tolist()) if each == function]
        entry["lines"] = [
            {"line": int(findings.line[number]), "metrics": metrics_json(findings.lines, number)} for number in chosen
        ]
        paths = findings.call_paths
        entry["call_paths"] = [
            {
                "functions": [names[each] for each in paths.functions_of(path)],
                "share": float(paths.share[path]),
                "metrics": metrics_json(paths.metrics, path),
            }
            for path in (paths.ending_in(function) if paths is not None and function is not None else [])
            if paths is not None
        ]
    return entry
