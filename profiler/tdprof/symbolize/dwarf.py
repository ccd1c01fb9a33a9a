"""The compiled DWARF reader (``profiler/native/dwarf*.c``): sections in, a ``CodeIndex`` out."""

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tdprof.linux.file_bytes import UnreadBytes
from tdprof.model.arrays import U64
from tdprof.native.dwarf_api import COLUMNS, SECTIONS, DwarfColumns, DwarfSection, DwarfSizes, DwarfSkeleton
from tdprof.native.library import load_native
from tdprof.symbolize.code_index import CodeIndex
from tdprof.values import dataclass

Buffer = bytes | memoryview
Section = Buffer | UnreadBytes
Sections = Mapping[str, Buffer]  # by a name of SECTIONS; what is absent is empty
MaybeUnread = Mapping[str, Section]


@dataclass(frozen=True, slots=True)
class SplitUnit:
    """A unit whose debug data is in a file of its own.

    Attributes:
        dwo_id: its identity, 64 bits.
        name: the ``.dwo`` file, maybe relative to ``directory``.
        directory: of compilation.
    """

    dwo_id: int
    name: str
    directory: str


@dataclass(frozen=True, slots=True)
class DwarfResult:
    """A ``CodeIndex`` and how much of the debug data could not be read."""

    index: CodeIndex
    units: int
    bad_units: int
    first_bad_offset: int  # in .debug_info, if there are bad units
    is_spent: bool  # reading all would take too long for a file of this size: later units count as bad


def is_available() -> bool:
    """Whether the compiled reader was built."""
    return load_native() is not None


def build_code_index(
    sections: MaybeUnread,
    text: tuple[int, int],
    *,
    shared: MaybeUnread | None = None,
    find_split: Callable[[SplitUnit], Sections | None] = lambda unit: None,
    wanted: U64 | None = None,
    threads: int = 1,
    file_bytes: int = 0,
) -> DwarfResult:
    """Read a file's DWARF.

    Args:
        sections: of the file, uncompressed.
        text: first ELF address of its code, and the one behind its last; debug data of code outside was discarded.
        shared: sections of the file that dwz moved common data to.
        find_split: the ``.dwo`` sections of a split unit, or None if they cannot be found.
        wanted: uint64[n], sorted: read only the functions that these addresses fall into. None reads all.
        threads: how many to use.
        file_bytes: what the sections take in their files, to which the memory for reading them is in proportion.

    Raises:
        MemoryError: there was not enough, or it would take more than such a file may ask for.
    """
    library = load_native()
    assert library is not None, "is_available() was not asked"
    alive: list[object] = []  # what C holds pointers into
    main = _section_array(sections, alive)
    other = _section_array(shared, alive) if shared is not None else None
    handle = library.tdprof_dwarf_open(main, other, text[0], text[1], file_bytes)
    if not handle:
        raise MemoryError("not enough memory for the debug data")
    try:
        for number, unit in _split_units(library, handle):
            found = find_split(unit)
            if found is not None:
                library.tdprof_dwarf_add_split(handle, number, _section_array(found, alive))
        pointer, count = None, 0
        if wanted is not None:
            wanted = np.ascontiguousarray(wanted, np.uint64)
            # C takes NULL as "all", so an empty selection needs a pointer too.
            pointer, count = wanted.ctypes.data or 1, len(wanted)
        if library.tdprof_dwarf_build(handle, pointer, count, threads):
            raise MemoryError("not enough memory for the debug data")
        return _copy_out(library, handle)
    finally:
        library.tdprof_dwarf_close(handle)


def _section_array(sections: MaybeUnread, alive: list[object]) -> Any:
    array = (DwarfSection * len(SECTIONS))()
    for i, name in enumerate(SECTIONS):
        section = sections.get(name, b"")
        if isinstance(section, UnreadBytes):
            data = np.frombuffer(section.area, np.uint8)
            place = data.ctypes.data
            array[i] = DwarfSection(place, len(data), place, section.offset, section.fd)
        else:
            data = np.frombuffer(section, np.uint8)
            array[i] = DwarfSection(data.ctypes.data, len(data))
        alive += [section, data]
    alive.append(array)
    return array


def _split_units(library: ctypes.CDLL, handle: int) -> Iterable[tuple[int, SplitUnit]]:
    count = library.tdprof_dwarf_skeletons(handle, None, 0)
    rows = (DwarfSkeleton * count)()
    library.tdprof_dwarf_skeletons(handle, rows, count)
    for row in rows:
        name, directory = ((text or b"").decode("utf-8", "surrogateescape") for text in (row.name, row.directory))
        yield row.unit, SplitUnit(row.dwo_id, name, directory)


def _copy_out(library: ctypes.CDLL, handle: int) -> DwarfResult:
    sizes = DwarfSizes()
    library.tdprof_dwarf_sizes(handle, ctypes.byref(sizes))
    counts = {
        "range": sizes.ranges,
        "node": sizes.nodes,
        "function_name": sizes.functions,
        "file_name": sizes.files,
        "function_text": sizes.function_bytes,
        "file_text": sizes.file_bytes,
    }
    arrays: dict[str, Any] = {}
    for name in COLUMNS:
        count = counts[name] if name in counts else counts[name.partition("_")[0]]
        wide = name in ("range_start", "function_name", "file_name")
        kind = np.uint8 if name.endswith("_text") else np.uint64 if wide else np.uint32
        arrays[name] = np.empty(count, kind)
    library.tdprof_dwarf_copy(handle, ctypes.byref(DwarfColumns(**{name: a.ctypes.data for name, a in arrays.items()})))
    arrays["function_text"] = arrays["function_text"].data
    arrays["file_text"] = arrays["file_text"].data
    return DwarfResult(CodeIndex(**arrays), sizes.units, sizes.bad_units, sizes.first_bad_offset, bool(sizes.is_spent))
