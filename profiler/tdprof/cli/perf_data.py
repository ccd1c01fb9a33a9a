"""A recording of the perf tool as a subcommand's input."""

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from tdprof.capture.manifest import Manifest
from tdprof.pipeline.import_perf import import_perf_data

_PROGRESS_AFTER_S = 2.0


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
    console = Console(stderr=True)
    with Progress(
        "importing", BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console, transient=True, disable=True
    ) as bar:
        task = bar.add_task("importing")
        began = time.monotonic()

        def show(done: int, total: int) -> None:
            if bar.disable and console.is_terminal and not is_quiet and time.monotonic() - began > _PROGRESS_AFTER_S:
                bar.disable = False
                bar.start()
            bar.update(task, completed=done, total=total)

        return import_perf_data(
            source,
            folder,
            kallsyms=kallsyms,
            symfs=symfs,
            keeps_time=keeps_time,
            progress=show,
            replaces_older=replaces_older,
        )
