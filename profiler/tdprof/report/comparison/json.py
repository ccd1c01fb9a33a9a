"""Two captures beside each other for machines: one JSON object."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tdprof.model.profile import Profile
from tdprof.profile.compare import Comparison, Match
from tdprof.profile.compare.conditions import Breach
from tdprof.report.comparison.rows import changed_values, order_functions
from tdprof.text import printable


def render_json(
    comparison: Comparison, sides: Sequence[tuple[str, Profile]], breaches: Sequence[Breach], *, event: int, limit: int
) -> Iterator[str]:
    """Pieces of one JSON object; unknown values are null, each entry of ``functions`` has a line of its own."""
    header: dict[str, Any] = {
        "captures": [
            {
                "path": printable(name),
                "command": [printable(word) for word in profile.command],
                "duration_ns": profile.duration_ns,
                "losses": asdict(profile.losses),
                "notes": list(profile.notes),
            }
            for name, profile in sides
        ],
        "basis": comparison.basis,
        "confidence": 0.95,
        "tests": comparison.tests,
        "common_factor": {
            quantity.name: float(factor)
            for quantity, factor in zip(comparison.inclusive_changes.quantities, comparison.common_factor, strict=True)
        },
        "notes": list(comparison.notes),
        "breaches": [asdict(breach) for breach in breaches],
        "program": changed_values(comparison.program, 0),
    }
    yield json.dumps(header, indent=2).removesuffix("\n}") + ',\n  "functions": ['
    separator = "\n    "
    for row in order_functions(comparison, event)[: limit or None]:
        yield separator + json.dumps(_function(comparison, row))
        separator = ",\n    "
    yield "\n  ]\n}\n"


def _function(comparison: Comparison, row: int) -> dict[str, Any]:
    functions, events = comparison.functions, comparison.inclusive_changes.quantities
    entries = changed_values(comparison.self_changes, row)
    names = [event.name for event in events]
    return {
        "name": functions.names[row] if functions.match[row] is not Match.ONLY_A else None,
        "name_a": functions.names_a[row] or None,
        "module": functions.modules[row] or None,
        "match": functions.match[row],
        "share_a": dict(zip(names, comparison.share_a[row].tolist(), strict=True)),
        "share_b": dict(zip(names, comparison.share_b[row].tolist(), strict=True)),
        "self": [entry for entry in entries if entry["source"] == "samples"],
        "total": changed_values(comparison.inclusive_changes, row),
        "metrics": [entry for entry in entries if entry["source"] != "samples"],
    }
