"""`tdprof doctor`: what this machine can record, what is missing, and the commands that fix it."""

import json
import sys
from dataclasses import asdict, fields

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tdprof.capture.manifest import Rung
from tdprof.cli.output import refuse_two_forms, standard_output
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.examination import Examination, examine
from tdprof.recorder.readiness.machine import Machine
from tdprof.report.profile.csv import write_rows

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
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table, for scripts.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values: a row for each check.")
def command(as_json: bool, as_csv: bool) -> int:
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
    refuse_two_forms(as_json=as_json, as_csv=as_csv)
    examination = examine(Machine())
    with standard_output():
        if as_json:
            print(json.dumps(asdict(examination), indent=1))
        elif as_csv:
            names = [each.name for each in fields(Check)]
            rows = ([getattr(check, name) for name in names] for check in examination.checks)
            sys.stdout.writelines(write_rows(names, rows))
        else:
            _print(examination, Console(highlight=False))
    return 0 if examination.rung else 1


def _print(examination: Examination, console: Console) -> None:
    if examination.rung:
        verdict = Text.assemble("Recording works, with ", (RUNG_TEXT[examination.rung], "bold"))
    else:
        verdict = Text("Recording does not work here", "bold red")
    console.print(verdict, soft_wrap=True)
    console.print(Text(f"({examination.reason})"), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("status")
    table.add_column("check", no_wrap=True)
    table.add_column("finding", overflow="fold")
    for check in examination.checks:
        table.add_row(Text(check.status, _STYLE[check.status]), check.name, Text(check.detail))
    console.print()
    if not console.is_terminal:
        console.width = 1000  # a pipe has no width: nothing is broken into lines there
    with console.capture() as capture:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
    for check in examination.checks:
        if check.cost or check.fix:
            _print_remedy(check, console)


def _print_remedy(check: Check, console: Console) -> None:
    console.print()
    console.print(Text.assemble((check.name, _STYLE[check.status]), f": {check.cost}"), soft_wrap=True)
    if check.fix:
        console.print(Text.assemble("  fix: ", (check.fix, "bold")), soft_wrap=True)
