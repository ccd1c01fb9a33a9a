"""Where a capture's symbols come from: options, opening the sources, and archiving what they said."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.addresses import branch_ends
from tdprof.attribute.stacks import attribute_stacks
from tdprof.capture.files import FILES_FOLDER, PERF_MAP_FOLDER, VDSO_FILE
from tdprof.capture.manifest import State, read_manifest
from tdprof.capture.tables import has_table, read_side_table, read_table, replace_table
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.addresses import FileKind, Locations, MappedFile
from tdprof.model.arrays import U64, distinct
from tdprof.pipeline.finish import finish_capture
from tdprof.symbolize import KernelSymbols, SymbolCache, Symbolizer
from tdprof.symbolize.debuginfod import Debuginfod
from tdprof.symbolize.saved import SavedSymbols, make_symbol_table


@dataclass(frozen=True, slots=True)
class SymbolOptions:
    """Where symbols come from, as the user wants it.

    Attributes:
        symfs: a folder with the recorded machine's files under their own paths; None: this machine's files.
        debug_dirs: folders with separate debug data, searched before ``/usr/lib/debug``.
        use_cache: whether what is read of debug data is kept for the next time.
    """

    symfs: Path | None = None
    debug_dirs: tuple[Path, ...] = ()
    use_cache: bool = True


DEFAULT_SYMBOLS = SymbolOptions()


def ignore_progress(text: str) -> None:
    pass


def open_symbolizer(
    tables: Path, options: SymbolOptions = DEFAULT_SYMBOLS, progress: Callable[[str], None] = ignore_progress
) -> Symbolizer:
    """The symbol sources of a capture whose tables stand in ``tables``; to be closed by its ``with`` block."""
    kernel, no_kernel = read_side_table(tables, "kernel_symbols")
    carried, not_carried = None, ""
    if has_table(tables, "symbols"):
        carried, not_carried = read_side_table(tables, "symbols")
    return Symbolizer(
        symfs=options.symfs,
        debug_dirs=options.debug_dirs,
        kernel=KernelSymbols(
            kernel["address"].to_numpy(),
            kernel["size"].to_numpy(),
            kernel["name"].to_pylist(),
            [module or "" for module in kernel["module"].to_pylist()],
        ),
        perf_map_dir=_no_link(tables / PERF_MAP_FOLDER),
        vdso=tables / VDSO_FILE,
        carried_files=_no_link(tables / FILES_FOLDER),
        saved=SavedSymbols(carried) if carried is not None and not not_carried else None,
        cache=SymbolCache.default() if options.use_cache else None,
        debuginfod=Debuginfod.from_environment(progress=progress),
        progress=progress,
        unreadable=[*filter(None, [no_kernel, not_carried])],
    )


def _no_link(folder: Path) -> Path | None:
    """The folder, unless the capture's maker lets it lead elsewhere."""
    return None if folder.is_symlink() else folder


def archive_symbols(
    capture: OwnFolder, options: SymbolOptions = DEFAULT_SYMBOLS, progress: Callable[[str], None] = ignore_progress
) -> list[tuple[MappedFile, Locations]]:
    """Put the symbols of all that a capture saw into it, so that it can be read where the binaries are not.

    Returns:
        What was found in each file.

    Raises:
        TdprofError: as ``load_profile``; or the capture cannot be written to.
    """
    folder = capture.path
    if read_manifest(folder).state is not State.COMPLETE:
        finish_capture(capture)
    mappings = read_table(folder, "mappings")
    spaces = AddressSpaces(mappings, read_table(folder, "processes"))
    recorded = [(read_table(folder, "samples"), read_table(folder, "stacks"))]
    if has_table(folder, "branches"):
        recorded.append(branch_ends(read_table(folder, "branches"))[1:])
    wanted: dict[MappedFile, list[U64]] = {}
    for samples, stacks in recorded:
        attributed = attribute_stacks(samples, stacks, mappings, spaces)
        for number, file in enumerate(attributed.mapped_files):
            if file.kind is FileKind.ELF:  # the capture has the others' sources already
                addresses = attributed.location_address[attributed.location_file == number]
                wanted.setdefault(file, []).append(addresses)
    found = []
    with open_symbolizer(folder, options, progress) as symbolizer:
        for file, parts in wanted.items():
            addresses = distinct(np.concatenate(parts))
            found.append((file, addresses, symbolizer.locate(file, addresses)))
    try:
        replace_table(capture, "symbols", make_symbol_table(found))
    except OSError as error:
        raise TdprofError(
            f"cannot write the symbols into {capture.shown}: {error.strerror}",
            hint="check its permissions and the disk",
        ) from error
    return [(file, locations) for file, _, locations in found]
