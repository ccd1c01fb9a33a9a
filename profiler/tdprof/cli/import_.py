"""`tdprof import`: a capture out of what `perf record` wrote."""

import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from tdprof.capture.manifest import Manifest
from tdprof.cli.record import default_output
from tdprof.importing import import_perf_data

_PROGRESS_AFTER_S = 2.0
OUTPUT_HELP = "The capture to make (tdprof.capture; an older one there becomes tdprof.capture.old)."


@click.command("import")
@click.argument("source", metavar="[PERF.DATA]", default="perf.data")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help=OUTPUT_HELP)
@click.option(
    "--kallsyms",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="/proc/kallsyms of the recorded machine, saved as root; needed where this one does not run that kernel.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def command(source: str, output: Path | None, kallsyms: Path | None, quiet: bool) -> None:
    """Make a capture of a perf.data file, a directory of perf record --threads, or a pipe (-).

    \b
    tdprof import                             perf.data into tdprof.capture
    tdprof import old.data -o old.capture
    perf record -o - -- ./app | tdprof import - -o app.capture
    tdprof import arm.data --kallsyms arm.kallsyms

    The recording may be from another machine, of another architecture or byte order. Binaries are found by build-id
    when the capture is reported.
    """
    folder = output or default_output()
    console = Console(stderr=True)
    with Progress(
        "importing", BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console, transient=True, disable=True
    ) as bar:
        task = bar.add_task("importing")
        began = time.monotonic()

        def show(done: int, total: int) -> None:
            if bar.disable and console.is_terminal and not quiet and time.monotonic() - began > _PROGRESS_AFTER_S:
                bar.disable = False
                bar.start()
            bar.update(task, completed=done, total=total)

        manifest = import_perf_data(source, folder, kallsyms=kallsyms, progress=show)
    if not quiet:
        _say(manifest, folder)


def _say(manifest: Manifest, folder: Path) -> None:
    """One line about what was imported, and what the user should know before trusting the numbers."""
    names = ", ".join(event.name for event in manifest.events)
    seconds = manifest.duration_ns / 1e9
    print(f"tdprof: imported {names} over {seconds:.1f} s ({manifest.rung_reason}) into {folder}", file=sys.stderr)
    losses = manifest.losses
    lost = {"samples lost in perf's buffers": losses.samples_ring_full, "bytes damaged": losses.bytes_damaged}
    for reason, count in (lost | losses.by_reason).items():
        if count:
            print(f"tdprof: lost: {count} {reason}", file=sys.stderr)
    for note in manifest.notes:
        print(f"tdprof: note: {note}", file=sys.stderr)
    print(f"tdprof: see it with: tdprof report {folder}", file=sys.stderr)
