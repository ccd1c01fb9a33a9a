"""Where a capture's symbols come from: options, and opening the sources."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tdprof.capture.files import FILES_FOLDER, PERF_MAP_FOLDER, VDSO_FILE
from tdprof.capture.tables import has_table, read_side_table
from tdprof.model.choices import DEFAULT_SYMBOLS, SymbolOptions
from tdprof.symbolize.cache import SymbolCache
from tdprof.symbolize.kernel_symbols import KernelLookup, KernelSymbols
from tdprof.symbolize.saved import SavedSymbols
from tdprof.symbolize.symbolizer import Symbolizer

if TYPE_CHECKING:
    from tdprof.symbolize.debuginfod import Debuginfod


def ignore_progress(text: str) -> None:
    """Tell nobody."""


def open_symbolizer(
    tables: Path,
    options: SymbolOptions = DEFAULT_SYMBOLS,
    progress: Callable[[str], None] = ignore_progress,
    kernel_lookup: KernelLookup | None = None,
) -> Symbolizer:
    """The symbol sources of a capture whose tables stand in ``tables``; to be closed by its ``with`` block.

    Args:
        tables: the folder.
        options: which sources.
        progress: told in a few words what is being waited for.
        kernel_lookup: names the recorded kernel's code, in place of the table that the capture has for it.
    """
    kernel, no_kernel = read_side_table(tables, "kernel_symbols")
    carried, not_carried = None, ""
    if has_table(tables, "symbols"):
        carried, not_carried = read_side_table(tables, "symbols", ("begin", "end", "own_files"))
    interpreted, not_interpreted = None, ""
    if has_table(tables, "interpreted"):
        interpreted, not_interpreted = read_side_table(tables, "interpreted")
    return Symbolizer(
        symfs=options.symfs,
        debug_dirs=options.debug_dirs,
        kernel=kernel_lookup
        or KernelSymbols(
            kernel["address"].to_numpy(),
            kernel["size"].to_numpy(),
            kernel["name"].to_pylist(),
            [module or "" for module in kernel["module"].to_pylist()],
        ),
        perf_map_dir=tables / PERF_MAP_FOLDER,
        vdso=tables.resolve() / VDSO_FILE,
        carried_files=tables / FILES_FOLDER,
        saved=SavedSymbols(carried) if carried is not None and not not_carried else None,
        interpreted=SavedSymbols(interpreted) if interpreted is not None else None,
        cache=SymbolCache.default() if options.use_cache else None,
        debuginfod=_debuginfod(progress),
        progress=progress,
        unreadable=[*filter(None, [no_kernel, not_carried, not_interpreted])],
    )


def _debuginfod(progress: Callable[[str], None]) -> "Debuginfod | None":
    if not os.environ.get("DEBUGINFOD_URLS"):
        return None
    from tdprof.symbolize.debuginfod import Debuginfod  # only now: few ask for it

    return Debuginfod.from_environment(progress=progress)
