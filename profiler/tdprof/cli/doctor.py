"""`tdprof doctor`: what this machine can record, what is missing, and the commands that fix it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

import click

from tdprof.capture.manifest import Rung
from tdprof.cli.form import Output, output_options, print_result
from tdprof.recorder.readiness.check import Check, CheckStatus

if TYPE_CHECKING:
    from rich.text import Text

    from tdprof.recorder.readiness.examination import Examination

RUNG_TEXT = {
    Rung.BPF_PMU: "BPF on PMU events: everything tdprof can do",
    Rung.BPF_SOFTWARE: "BPF on a software clock: where the time goes, no hardware events",
    Rung.RING_BUFFER: "perf ring buffers without BPF",
}
_STYLE = {
    CheckStatus.OK: "green",
    CheckStatus.WARN: "yellow",
    CheckStatus.FAIL: "bold red",
    CheckStatus.UNKNOWN: "cyan",
}


@click.command("doctor")
@output_options(
    json="One JSON object instead of a table, for scripts.", csv="Comma-separated values: a row for each check."
)
def command(output: Output) -> int:
    """Check all that recording needs and say for each failing point what it costs and what fixes it.

    \b
    tdprof doctor                   what works for you
    sudo tdprof doctor              what would work for root
    tdprof doctor --json | jq .rung

    \b
    Each check is one of
      ok       as it should be
      warn     recording works, with less
      fail     nothing can be recorded until this is fixed
      unknown  it could not be found out

    The exit status is 0 if recording works on some rung, 1 if it does not.
    """
    # Only now: help, and what is typed wrong, are said at once.
    from tdprof.recorder.readiness.examination import examine
    from tdprof.recorder.readiness.machine import Machine
    from tdprof.report.columns import as_text
    from tdprof.report.csv_lines import write_rows

    examination = examine(Machine())
    names = [each.name for each in fields(Check)]
    print_result(
        output,
        json=lambda: [json.dumps(asdict(examination), indent=1), "\n"],
        csv=lambda: write_rows(names, ([getattr(check, name) for name in names] for check in examination.checks)),
        text=lambda console: as_text(console, _lines(examination, console.width)),
    )
    return 0 if examination.rung else 1


def _lines(examination: "Examination", width: int) -> Iterator["Text"]:
    from rich.text import Text

    from tdprof.report.columns import Column, format_table

    if examination.rung:
        yield Text.assemble("Recording works, with ", (RUNG_TEXT[examination.rung], "bold"))
    else:
        yield Text("Recording does not work here", "bold red")
    yield from [Text(f"({examination.reason})"), Text()]
    columns = [Column("status"), Column("check"), Column("finding", wraps=True)]
    rows = ((Text(check.status, _STYLE[check.status]), check.name, check.detail) for check in examination.checks)
    yield from format_table(columns, rows, width)
    for check in examination.checks:
        if check.cost or check.fix:
            yield from [Text(), Text.assemble((check.name, _STYLE[check.status]), f": {check.cost}")]
        if check.fix:
            yield Text.assemble("  fix: ", (check.fix, "bold"))
