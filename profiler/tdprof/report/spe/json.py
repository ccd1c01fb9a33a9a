"""SPE operations for machines: one JSON object."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from tdprof.model.spe import LATENCIES, SpeReport, mean_latency

QUANTILE_NAMES = ("p50", "p90", "p99")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def render_json(report: SpeReport, *, limit: int = 0) -> str:
    """One JSON object: all rows (or `limit` of them) with exact counts, quantiles, ratios and their 95 % intervals."""
    means = {name: mean_latency(report, name) for name in LATENCIES}
    rows = []
    for row in report.order()[: limit or None].tolist():
        entry: dict[str, Any] = {
            "name": report.names[row],
            "counts": {name.lower(): int(values[row]) for name, values in report.counts.items()},
            "loads_by_level": {level: int(values[row]) for level, values in report.levels.items()},
            "latency_cycles": {
                name: {"mean": _number(means[name][row])}
                | {
                    label: _number(value)
                    for label, value in zip(QUANTILE_NAMES, report.latencies[name][row], strict=True)
                }
                for name in LATENCIES
            },
            "ratios": {
                name: {
                    "value": _number(ratio.value[row]),
                    "low": _number(ratio.low[row]),
                    "high": _number(ratio.high[row]),
                }
                for name, ratio in report.ratios.items()
            },
        }
        if report.threads is not None:
            entry["threads"] = int(report.threads[row])
        if report.sharing is not None:
            entry["sharing"] = report.sharing[row] or None
        rows.append(entry)
    whole = {
        "operations": report.total_operations,
        "weight": dataclasses.asdict(report.weight) if report.weight else None,
        "confidence": 0.95,
        "notes": list(report.notes),
        "rows": rows,
    }
    return json.dumps(whole, indent=1) + "\n"
