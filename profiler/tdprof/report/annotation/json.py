"""An annotated function for machines: one JSON object, or comma-separated values."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tdprof.model.annotation import Annotation, CodeLine, Cost, SourceLine
from tdprof.report.profile.csv import write_rows

_CSV_COLUMNS = (
    *("kind", "file", "line", "address", "event", "samples", "weight", "share", "inlined_samples", "inlined_weight"),
    "text",
)


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


def render_csv(annotation: Annotation) -> Iterator[str]:
    """A row for each line (or with code, instruction) and event; ``share`` is of all samples of the event."""
    return write_rows(_CSV_COLUMNS, _csv_rows(annotation))


def _csv_rows(annotation: Annotation) -> Iterator[Sequence[object]]:
    if annotation.code:
        for part in annotation.code:
            for code in part.lines:
                _, file, number = code.frames[0] if code.frames else ("", "", 0)
                key = ("instruction", file, number or "", f"{code.instruction.address:#x}")
                yield from _csv_events(annotation, key, code.cost, code.instruction.text)
        return
    for source in annotation.sources:
        for line in source.lines:
            yield from _csv_events(annotation, ("line", source.path, line.line or "", ""), line.cost, line.text or "")


def _csv_events(
    annotation: Annotation, key: Sequence[object], cost: Cost | None, text: str
) -> Iterator[Sequence[object]]:
    for i, event in enumerate(annotation.events):
        values: list[object] = [0, 0, 0.0, 0, 0]
        if cost is not None:
            weight, total = int(cost.weight[i]), int(annotation.totals[i])
            values = [int(cost.samples[i]), weight, weight / total if total else 0.0]
            values += [int(cost.inlined_samples[i]), int(cost.inlined_weight[i])]
        yield [*key, event.name, *values, text]
