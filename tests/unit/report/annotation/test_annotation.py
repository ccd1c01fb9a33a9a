"""How an annotated function is shown."""

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console

from tdprof.model.annotation import Annotation, Code, CodeLine, Cost, Latency, SourceLine, SourcePart
from tdprof.model.events import EventInfo, Unit
from tdprof.model.findings import MetricValue
from tdprof.model.machine_code import Instruction
from tdprof.report.annotation.csv import render_csv
from tdprof.report.annotation.json import render_json
from tdprof.report.annotation.text import render_text

EVENTS = [EventInfo("cpu-clock", Unit.NANOSECONDS), EventInfo("cache-misses", Unit.COUNT)]


def cost(own: int, inlined: int = 0) -> Cost:
    def column(value: int) -> np.ndarray:
        return np.array([value, 0], np.uint64)

    return Cost(column(own * 1000), column(own), column(inlined * 1000), column(inlined))


def annotation(*, has_code: bool = False, **line: object) -> Annotation:
    lines = [
        SourceLine(9, "int work(int n)"),
        SourceLine(10, "    return [red]square(n);[/red]", cost(60, 20), **line),  # type: ignore[arg-type]
        SourceLine(30, None, cost(20)),
        SourceLine(0, None, cost(0, 0)),
    ]
    code = Code(
        "work",
        "/bin/app",
        [
            CodeLine(
                Instruction(0x1000, 4, "mul w0, w0, w0"),
                [("square", "/src/m.h", 3), ("work", "/src/a.c", 10)],
                cost(0, 20),
            ),
            CodeLine(Instruction(0x1004, 4, "b 0x2000", 0x2000), [("work", "/src/a.c", 10)], cost(80), "other"),
            CodeLine(Instruction(0x1008, 4, "ret"), [("work", "/src/a.c", 10)], None),
        ],
    )
    return Annotation(
        name="work",
        module="/bin/app",
        events=EVENTS,
        totals=np.array([200_000, 0], np.uint64),
        cost=cost(80, 20),
        sources=[SourcePart("/src/a.c", lines)],
        code=[code] if has_code else [],
        texts={("/src/m.h", 3): "  return x * x;"},
        notes=["something is missing"],
    )


def shown(annotation: Annotation, width: int = 100, *, is_terminal: bool = False) -> str:
    console = Console(width=width, force_terminal=is_terminal, color_system="standard" if is_terminal else None)
    return render_text(annotation, console, event=0)


def test_lines_have_shares_of_the_function() -> None:
    lines = shown(annotation()).splitlines()
    assert lines[0] == "work"
    assert "cpu-clock: 50.0% of all, 100.0 µs in 100 samples, of them 20 in functions inlined there" in lines
    assert "cache-misses: no samples of all, 0 in 0 samples" not in lines
    assert "note: something is missing" in lines
    (line,) = (line for line in lines if "square(n)" in line)
    assert line.split()[:4] == ["80.00%", "80", "25%", "10"]
    assert line.endswith("return [red]square(n);[/red]")
    assert any(line.strip() == "…" for line in lines)


def test_code_has_the_lines_it_comes_from() -> None:
    lines = [line.strip() for line in shown(annotation(has_code=True)).splitlines()]
    assert "m.h:3 [square, inlined into work a.c:10]  return x * x;" in lines
    assert ["80.00%", "80", "1004", "b", "0x2000", "<other>"] in [line.split() for line in lines]
    assert "1008  ret" in lines


@pytest.mark.parametrize("width", [10, 40, 300])
@pytest.mark.parametrize("has_code", [False, True])
def test_any_width_will_do(width: int, has_code: bool) -> None:
    assert all(len(line) <= width for line in shown(annotation(has_code=has_code), width).splitlines())


def test_hot_lines_are_coloured_on_a_terminal_only() -> None:
    assert "\x1b[1;31m" in shown(annotation(), is_terminal=True)
    assert "\x1b" not in shown(annotation())


def test_metrics_and_latencies_stand_beside_the_line() -> None:
    metrics = [
        ("backend_bound", MetricValue(61.25, 4.5, "percent of slots", "pmu", 900, True)),
        ("ipc", MetricValue(0.5, 0.1, "per cycle", "pmu", 9, False)),
    ]
    text = shown(annotation(metrics=metrics, latency=Latency(1234, 20.5, 18, 40, 99)), 160)
    (line,) = (line for line in text.splitlines() if "square(n)" in line)
    assert "61.2 ± 4.5" in line
    assert "20.5     99  1,234" in line
    assert "ipc" not in text  # no line has samples enough for it


def test_json_and_csv_agree() -> None:
    data = json.loads(render_json(annotation(has_code=True)))
    instruction = data["code"][0]["instructions"][0]
    assert instruction["frames"][0] == {"function": "square", "file": "/src/m.h", "line": 3}
    assert instruction["cost"]["cpu-clock"]["inlined_samples"] == 20
    assert data["sources"][0]["lines"][0]["cost"] is None
    assert data["sources"][0]["lines"][3]["line"] is None
    rows = list(csv.DictReader(io.StringIO("".join(render_csv(annotation())))))
    assert len(rows) == 4 * 2
    line = next(row for row in rows if row["line"] == "10" and row["event"] == "cpu-clock")
    assert (line["samples"], line["inlined_samples"], line["share"]) == ("80", "20", "0.4")
    rows = list(csv.DictReader(io.StringIO("".join(render_csv(annotation(has_code=True))))))
    assert [row["address"] for row in rows[::2]] == ["0x1000", "0x1004", "0x1008"]
