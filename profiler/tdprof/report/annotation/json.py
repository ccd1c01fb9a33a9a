"""An annotated function for machines: one JSON object."""

import json
from dataclasses import asdict
from typing import Any

from tdprof.model.annotation import Annotation, CodeLine, Cost, SourceLine


def render_json(annotation: Annotation) -> str:
    """Lines and instructions with the exact counts of every event; a line or instruction without samples has null."""
    names = [event.name for event in annotation.events]
    document = {
        "function": annotation.name,
        "module": annotation.module or None,
        "events": [asdict(event) for event in annotation.events],
        "total": dict(zip(names, annotation.totals.tolist(), strict=True)),
        "cost": _cost(annotation.cost, names),
        "notes": list(annotation.notes),
        "sources": [
            {"path": source.path, "lines": [_line(line, names) for line in source.lines]}
            for source in annotation.sources
        ],
        "code": [
            {
                "name": part.name or None,
                "module": part.module or None,
                "instructions": [_instruction(line, names) for line in part.lines],
            }
            for part in annotation.code
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _cost(cost: Cost | None, names: list[str]) -> dict[str, Any] | None:
    if cost is None:
        return None
    columns = (cost.own_weight, cost.own_samples, cost.inlined_weight, cost.inlined_samples)
    values = zip(names, *(column.tolist() for column in columns), strict=True)
    return {
        name: {"self": own, "self_samples": samples, "inlined": inlined, "inlined_samples": inlined_samples}
        for name, own, samples, inlined, inlined_samples in values
    }


def _line(line: SourceLine, names: list[str]) -> dict[str, Any]:
    return {
        "line": line.line or None,
        "text": line.text,
        "cost": _cost(line.cost, names),
        "metrics": [{"metric": name, **asdict(value)} for name, value in line.metrics],
        "latency_cycles": asdict(line.latency) if line.latency else None,
    }


def _instruction(line: CodeLine, names: list[str]) -> dict[str, Any]:
    return {
        "address": line.instruction.address,
        "size": line.instruction.size or None,
        "text": line.instruction.text or None,
        "target": line.target or None,
        "frames": [
            {"function": name, "file": file or None, "line": number or None} for name, file, number in line.frames
        ],
        "cost": _cost(line.cost, names),
    }
