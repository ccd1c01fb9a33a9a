"""Makes a capture carry the symbols of all that it saw."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tdprof.attribute.addresses import BRANCH_ENDS, attribute_addresses, branch_ends
from tdprof.attribute.stacks import attribute_stacks
from tdprof.capture.manifest import Manifest, State, write_manifest
from tdprof.capture.tables import COPY_AGAIN, has_table, read_table, replace_table
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.addresses import FileKind, Locations, MappedFile
from tdprof.model.arrays import I32, U64, distinct, rows_by_number
from tdprof.model.choices import DEFAULT_SYMBOLS, SymbolOptions
from tdprof.pipeline.finish import finish_capture
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.symbols import ignore_progress
from tdprof.symbolize.saved import make_symbol_table


def archive_symbols(
    folder: OwnFolder,
    manifest: Manifest,
    options: SymbolOptions = DEFAULT_SYMBOLS,
    progress: Callable[[str], None] = ignore_progress,
) -> list[tuple[MappedFile, Locations]]:
    """Put the symbols of all that a capture saw into it, so that it can be read where the binaries are not.

    Returns:
        What was found in each file.

    Raises:
        TdprofError: as ``load_profile``; or the capture cannot be written to.
    """
    if manifest.state is not State.COMPLETE:
        manifest = finish_capture(folder)
    with folder.named_in_errors(), OpenCapture(folder.path, options, progress, manifest=manifest) as capture:
        # A report without a table is better than none; what is archived must not be less than there is.
        if capture.lost_tables:
            raise TdprofError(capture.lost_tables[0], hint=COPY_AGAIN)
        wanted = _sampled_addresses(capture)
        found = [(file, addresses, capture.symbolizer.locate(file, addresses)) for file, addresses in wanted]
    try:
        replace_table(folder, "symbols", make_symbol_table(found))
        if "symbols" not in manifest.tables:
            write_manifest(folder, replace(manifest, tables=[*manifest.tables, "symbols"]))
    except OSError as error:
        raise TdprofError(
            f"cannot write the symbols into {folder.shown}: {error.strerror}",
            hint="check its permissions and the disk",
        ) from error
    return [(file, locations) for file, _, locations in found]


def _sampled_addresses(capture: OpenCapture) -> Iterator[tuple[MappedFile, U64]]:
    """The distinct file offsets that a capture has of each file that it does not carry the symbols of already."""
    samples, stacks = read_table(capture.tables, "samples", ("mapped_ns",)), read_table(capture.tables, "stacks")
    attributed = attribute_stacks(samples, stacks, capture.mapped_files, capture.spaces)
    recorded: list[tuple[Sequence[MappedFile], I32, U64]] = [
        (attributed.mapped_files, attributed.location_file, attributed.location_address)
    ]
    if has_table(capture.tables, "branches"):
        _, addresses, pids, time_ns = branch_ends(read_table(capture.tables, "branches", columns=BRANCH_ENDS))
        files = capture.mapped_files
        recorded.append((files, *attribute_addresses(addresses, pids, time_ns, files, capture.spaces)))
    wanted: dict[MappedFile, list[U64]] = {}
    for mapped_files, file_of, address in recorded:
        for number, rows in rows_by_number(file_of):
            if number >= 0 and mapped_files[number].kind is FileKind.ELF:
                wanted.setdefault(mapped_files[number], []).append(address[rows])
    for file, parts in wanted.items():
        yield file, distinct(np.concatenate(parts))
