"""An annotated function as comma-separated values."""

from collections.abc import Iterator, Sequence

from tdprof.model.annotation import Annotation, Cost
from tdprof.report.csv_lines import write_rows

COLUMNS = (
    *("kind", "file", "line", "address", "event", "samples", "weight", "share", "inlined_samples", "inlined_weight"),
    "text",
)


def render_csv(annotation: Annotation) -> Iterator[str]:
    """A row for each line (or with code, instruction) and event; ``share`` is of all samples of the event."""
    return write_rows(COLUMNS, _rows(annotation))


def _rows(annotation: Annotation) -> Iterator[Sequence[object]]:
    if annotation.code:
        for part in annotation.code:
            for code in part.lines:
                _, file, number = code.frames[0] if code.frames else ("", "", 0)
                key = ("instruction", file, number or "", f"{code.instruction.address:#x}")
                yield from _events(annotation, key, code.cost, code.instruction.text)
        return
    for source in annotation.sources:
        for line in source.lines:
            yield from _events(annotation, ("line", source.path, line.line or "", ""), line.cost, line.text or "")


def _events(annotation: Annotation, key: Sequence[object], cost: Cost | None, text: str) -> Iterator[Sequence[object]]:
    for i, event in enumerate(annotation.events):
        values: list[object] = [0, 0, 0.0, 0, 0]
        if cost is not None:
            weight, total = int(cost.weight[i]), int(annotation.totals[i])
            values = [int(cost.samples[i]), weight, weight / total if total else 0.0]
            values += [int(cost.inlined_samples[i]), int(cost.inlined_weight[i])]
        yield [*key, event.name, *values, text]
