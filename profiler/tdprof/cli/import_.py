"""`tdprof import`: a capture out of what `perf record` wrote."""

from pathlib import Path

import click

from tdprof.capture.manifest import Manifest
from tdprof.cli.output import CAPTURE_HELP, DEFAULT_OUTPUT
from tdprof.cli.standard_error import say


@click.command("import")
@click.argument("source", metavar="[PERF.DATA]", default="perf.data")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help=CAPTURE_HELP)
@click.option(
    "--kallsyms",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="/proc/kallsyms of the recorded machine, saved as root; needed where this one does not run that kernel.",
)
@click.option(
    "--symfs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder with the recorded machine's files under their own paths; needed where the recording copied user "
    "stacks (--call-graph dwarf) and this machine's files are others.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def command(source: str, output: Path | None, kallsyms: Path | None, symfs: Path | None, quiet: bool) -> None:
    """Make a capture of a perf.data file, a directory of perf record --threads, or a pipe (-).

    \b
    tdprof import                             perf.data into tdprof.capture
    tdprof import old.data -o old.capture
    perf record -o - -- ./app | tdprof import - -o app.capture
    tdprof import arm.data --kallsyms arm.kallsyms

    The recording may be from another machine, of another architecture or byte order. Binaries are found by build-id
    when the capture is reported.
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.memory import KEPT_BYTES, keep_process_small
    from tdprof.cli.perf_data import import_with_progress

    keep_process_small(KEPT_BYTES)
    folder = output or Path(DEFAULT_OUTPUT)
    manifest = import_with_progress(
        source, folder, kallsyms=kallsyms, symfs=symfs, is_quiet=quiet, replaces_older=output is None
    )
    if not quiet:
        _say(manifest, folder)


def _say(manifest: Manifest, folder: Path) -> None:
    """One line about what was imported, and what the user should know before trusting the numbers."""
    from tdprof.capture.tables import has_table
    from tdprof.cli.loading import say_losses

    names = ", ".join(event.name for event in manifest.events)
    seconds = manifest.duration_ns / 1e9
    say(f"tdprof: imported {names} over {seconds:.1f} s ({manifest.rung_reason}) into {folder}")
    say_losses(manifest.losses)
    for note in manifest.notes:
        say(f"tdprof: note: {note}")
    views = {"branches": "--branches", "cgroups": "--by cgroup"}
    more = "".join(f" [{option}]" for table, option in views.items() if has_table(folder, table))
    say(f"tdprof: see it with: tdprof report {folder}{more}")
