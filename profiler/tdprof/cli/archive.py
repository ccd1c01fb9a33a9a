"""`tdprof archive`: make a capture carry its symbols."""

from pathlib import Path

import click

from tdprof.capture.manifest import Manifest, alterations, read_manifest
from tdprof.cli.capture_options import capture_argument, symbol_options
from tdprof.cli.output import waiting
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.choices import DEFAULT_SYMBOLS, SymbolOptions
from tdprof.text import plural


@click.command("archive")
@capture_argument
@symbol_options
def command(capture: Path, symbols: SymbolOptions) -> None:
    """Put the symbols of all that a capture saw into it, so that it can be read on a machine without the binaries.

    \b
    tdprof archive                       the newest capture of this folder
    tdprof archive arm.capture && tar czf arm.tgz arm.capture
                                         on the recorded machine; unpack and report it anywhere
    tdprof record --with-symbols -- ./app
                                         the same, when recording

    Run it on the recorded machine, before its programs are updated.
    """
    manifest = read_manifest(capture)
    try:
        folder = OwnFolder.open(capture)
    except OSError as error:
        why = error.strerror or ""
        raise TdprofError(
            f"cannot write into {capture}: {why}", hint="archive it as the user whose capture it is, or copy it first"
        ) from error
    with folder:
        archive_with_progress(folder, manifest, symbols)


def archive_with_progress(
    capture: OwnFolder, manifest: Manifest, symbols: SymbolOptions = DEFAULT_SYMBOLS, *, quiet: bool = False
) -> None:
    """Archive, with a line about what was found; while that lasts another says so, if stderr is a terminal."""
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.pipeline.archive import archive_symbols

    with waiting(f"reading {capture.shown}", quiet=quiet) as show:
        found = archive_symbols(capture, manifest, symbols, show)
    for line in alterations(capture.path, manifest):
        say(f"tdprof: {line}")
    if quiet:
        return
    places = sum(len(locations.reason) for _, locations in found)
    unknown = sum(int((locations.reason != 0).sum()) for _, locations in found)
    without = f"; {plural(unknown, 'place', 's')} not known (tdprof report says why)" if unknown else ""
    say(
        f"tdprof: {capture.shown} carries the symbols of {plural(places - unknown, 'place', 's')} in "
        f"{plural(len(found), 'file', 's')}"
        f"{without}",
    )
