"""`tdprof stat`: counts events and prints the metrics as the methodology tree."""

from pathlib import Path
from typing import Any

import click

from tdprof.cli.core_options import core_options
from tdprof.cli.form import output_options
from tdprof.cli.option_groups import list_option
from tdprof.metrics.schedule import MAX_COUNTERS, MIN_COUNTERS


@click.command(
    "stat",
    short_help="count events; metrics as the Topdown tree",
    # The command's own options are not ours, with or without "--".
    context_settings={"allow_interspersed_args": False},
)
@core_options
@list_option("--metrics", metavar="GROUP|METRIC,…", help="Only these; `tdprof list groups` names them.")
@click.option(
    "--stage", type=click.Choice(["1", "2", "all"]), help="Only this stage; default: 1, and of 2 what explains it."
)
@list_option("-e", "--event", "events", metavar="EVENT,…", help="Count these instead of the software events.")
@click.option("-I", "--interval-print", "interval_ms", type=click.IntRange(10), metavar="MS", help="Print every MS ms.")
@click.option("-r", "--repeat", type=click.IntRange(1), default=1, metavar="N", help="Run N times: mean and deviation.")
@click.option("--passes", is_flag=True, help="Run the command once per counter group instead of taking turns.")
@list_option("-p", "--pid", "pids", metavar="PID,…", help="Count running processes until they end or Ctrl-C.")
@click.option("-a", "--all-cpus", is_flag=True, help="Count the whole machine.")
@click.option(
    "--counters",
    type=click.IntRange(MIN_COUNTERS, MAX_COUNTERS),
    metavar="N",
    help="Programmable counters to use; default: as many as are free.",
)
@click.option("--counts", "counts_file", metavar="FILE", help="Evaluate these counts instead of counting; - is stdin.")
@output_options(json="Machine-readable; with -I one object a line.", csv="A row for each event and metric.")
@click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write to FILE."
)
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[--] [CMD …]")
def command(**options: Any) -> int:
    """Count events of a command, of processes or of the machine, and say where its time is lost and why.

    \b
    tdprof stat -- ./app                       Stage 1, then the groups that explain it
    tdprof stat --stage all --passes -- ./app  everything, one run per counter group
    tdprof stat -r 5 --metrics Topdown_L1 -- ./app
    tdprof stat -I 1000 -a                     the whole machine, once a second
    tdprof stat --counts counts.json --cpu neoverse-v1 --json

    The command's own output goes where it always goes; -o keeps the two apart. The exit status is the command's.
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy.
    from tdprof.cli.counting import Options, count, evaluate_file

    given = Options(**options)
    return count(given) if given.counts_file is None else evaluate_file(given, given.counts_file)
