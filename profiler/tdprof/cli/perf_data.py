"""A recording of the perf tool as a subcommand's input."""

from pathlib import Path

from tdprof.capture.manifest import Manifest
from tdprof.cli.output import progress_bar
from tdprof.pipeline.import_perf import import_perf_data


def import_with_progress(
    source: str,
    folder: Path,
    *,
    kallsyms: Path | None = None,
    symfs: Path | None = None,
    keeps_time: bool = True,
    is_quiet: bool = False,
    replaces_older: bool = False,
) -> Manifest:
    """``import_perf_data`` with a bar on stderr when it takes long, if that is a terminal."""
    with progress_bar("importing", quiet=is_quiet) as show:
        return import_perf_data(
            source,
            folder,
            kallsyms=kallsyms,
            symfs=symfs,
            keeps_time=keeps_time,
            progress=show,
            replaces_older=replaces_older,
        )
