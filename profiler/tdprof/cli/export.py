"""`tdprof export`: a capture as a file for another program."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click
from rich.console import Console

from tdprof.cli.loading import capture_argument, find_event, load_with_progress, symbol_options
from tdprof.cli.output import replaced_file, standard_output
from tdprof.cli.page import write_page
from tdprof.errors import TdprofError
from tdprof.export.folded import write_folded
from tdprof.export.pprof import write_pprof
from tdprof.export.speedscope import write_speedscope
from tdprof.pipeline import SymbolOptions
from tdprof.profile import Profile


@dataclass(frozen=True, slots=True)
class Format:
    """A format to export to: how it is written, and what the user does with the file ({} is its name)."""

    write: Callable[[Profile, BinaryIO], None]
    next_step: str
    is_binary: bool = False
    has_time: bool = False  # whether the file says when samples were taken


FORMATS = {
    "speedscope": Format(
        write_speedscope, "drop {} onto https://www.speedscope.app, which keeps it in the browser", has_time=True
    ),
    "pprof": Format(write_pprof, "go tool pprof -http=: {}", is_binary=True),
    "folded": Format(write_folded, "flamegraph.pl {} > flame.svg"),
    "html": Format(write_page, "open {} in a browser; it needs no network"),
}


@click.command("export")
@capture_argument
@click.option(
    "--to", "format_name", type=click.Choice(list(FORMATS)), required=True, help="The format; see the examples."
)
@click.option(
    "-o",
    "--output",
    default="-",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="The file to write, '-' for standard output (the default). An existing file is replaced when all is written.",
)
@click.option("--event", metavar="EVENT", help="Export this event alone (all; for folded, which has one, the first).")
@symbol_options
def command(capture: Path, format_name: str, output: Path, event: str | None, symbols: SymbolOptions) -> None:
    """Write a capture, or what perf record left, as a file for another program.

    \b
    tdprof export --to speedscope -o app.speedscope.json   flame graphs at speedscope.app
    tdprof export --to pprof -o app.pb.gz                  go tool pprof -http=: app.pb.gz
    tdprof export --to folded | flamegraph.pl > app.svg    one line for each call stack
    tdprof export --to html -o app.html                    one page to look at and pass on: flame graph, metrics, advice
    tdprof export perf.data --to folded                    without making a capture
    """
    target = FORMATS[format_name]
    is_stdout = str(output) == "-"
    if is_stdout and target.is_binary and sys.stdout.isatty():
        raise TdprofError(
            f"{format_name} is a binary format and standard output is a terminal",
            hint=f"tdprof export {capture} --to {format_name} -o profile.pb.gz",
            status=2,
        )
    profile = load_with_progress(capture, symbols, keeps_time=target.has_time)
    index = find_event(profile, event)
    if event is not None:
        profile = profile.only_event(index)
    if is_stdout:
        with standard_output():
            target.write(profile, sys.stdout.buffer)
        return
    with Console(stderr=True).status(f"writing {output}", spinner="line"), replaced_file(output) as file:
        target.write(profile, file)
    print(f"tdprof: wrote {output}", file=sys.stderr)
    print(f"  next: {target.next_step.format(output)}", file=sys.stderr)
