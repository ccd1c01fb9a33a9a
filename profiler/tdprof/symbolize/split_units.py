"""Finding the debug data of units that were split off: ``.dwo`` files, or all of them packed into one ``.dwp``.

Formats: DWARF 5, sections 7.3.2 and 7.3.5; for DWARF 4 GCC's DebugFission and DebugFissionDWP.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tdprof.linux.elf import Elf, ElfError, open_elf
from tdprof.symbolize.debug_files import DebugDirs, under
from tdprof.symbolize.debug_sections import DebugDataError, read_debug_sections, read_section
from tdprof.symbolize.dwarf import Buffer, Sections, SplitUnit
from tdprof.values import dataclass

_MOST_COLUMNS = 32  # there are eight kinds
# Units that a program names may all lead to one file: so many times the bytes of all distinct files are read.
_READ_AGAIN = 4
_INDEX_HEADER = struct.Struct("<IIII")  # version, columns, units, slots
# What a column of the index holds (DW_SECT_*), by the reader's names.
_COLUMNS = {
    2: {1: "info", 3: "abbrev", 4: "line", 6: "str_offsets"},
    5: {1: "info", 3: "abbrev", 4: "line", 6: "str_offsets", 8: "rnglists"},
}


@dataclass(frozen=True, slots=True)
class Package:
    """A ``.dwp`` file: its sections, and by unit which part of each belongs to it."""

    sections: Sections
    parts: dict[int, dict[str, slice]]

    def unit(self, dwo_id: int) -> Sections | None:
        """The sections of one unit."""
        if dwo_id not in self.parts:
            return None
        parts = self.parts[dwo_id]
        return {name: memoryview(data)[parts[name]] if name in parts else data for name, data in self.sections.items()}


def read_package(elf: Elf) -> Package:
    """Read a ``.dwp`` file.

    Raises:
        DebugDataError: it has no index, or one that cannot be read.
    """
    section = elf.section(".debug_cu_index")
    if section is None:
        raise DebugDataError("there is no .debug_cu_index")
    return Package(read_debug_sections(elf, ".dwo"), dict(_read_index(read_section(elf, section))))


def _read_index(data: Buffer) -> Iterator[tuple[int, dict[str, slice]]]:
    try:
        version, columns, units, slots = _INDEX_HEADER.unpack_from(data)
        at = _INDEX_HEADER.size
        ids = np.frombuffer(data, "<u8", slots, at)
        rows = np.frombuffer(data, "<u4", slots, at + 8 * slots)
        at += 12 * slots
        kinds = np.frombuffer(data, "<u4", columns, at)
        offsets = np.frombuffer(data, "<u4", units * columns, at + 4 * columns).reshape(units, columns)
        sizes = np.frombuffer(data, "<u4", units * columns, at + 4 * columns * (1 + units)).reshape(units, columns)
    except (struct.error, ValueError) as error:
        raise DebugDataError(f".debug_cu_index is damaged: {error}") from error
    names = _COLUMNS.get(version & 0xFFFF)
    if names is None:
        raise DebugDataError(f".debug_cu_index has an unknown version ({version & 0xFFFF})")
    if columns > _MOST_COLUMNS:
        raise DebugDataError(f".debug_cu_index has {columns} columns")
    for dwo_id, row in zip(ids.tolist(), rows.tolist(), strict=True):
        if 0 < row <= units:
            start, size = offsets[row - 1].tolist(), sizes[row - 1].tolist()
            yield (
                dwo_id,
                {
                    names[kind]: slice(start[i], start[i] + size[i])
                    for i, kind in enumerate(kinds.tolist())
                    if kind in names
                },
            )


class SplitFinder:
    """Finds split units of one file.

    Args:
        path: the file's, and after it that of its separate debug data; a package stands beside either.
        dirs: where debug data is looked for.
    """

    def __init__(self, paths: tuple[Path, ...], dirs: DebugDirs) -> None:
        self._folder = paths[0].parent
        self._dirs = dirs
        self._package = next(filter(None, (_open_package(path) for path in paths)), None)
        self._opened: dict[Path, Sections | None] = {}
        self._bytes_left = _READ_AGAIN * _unit_bytes(self._package.sections) if self._package else 0
        self.missing = 0
        self.example = ""  # the name of a missing one

    def find(self, unit: SplitUnit) -> Sections | None:
        """The unit's sections, or None, counted in ``missing``."""
        sections = self._package.unit(unit.dwo_id) if self._package else None
        if sections is None:
            sections = next(filter(None, map(self._open_dwo, self._places(unit))), None)
        if sections is not None:
            self._bytes_left -= _unit_bytes(sections)
        if sections is None or self._bytes_left < 0:
            sections = None
            self.missing += 1
            self.example = unit.name
        return sections

    def _open_dwo(self, path: Path) -> Sections | None:
        if path not in self._opened:
            self._opened[path] = sections = _read_dwo(path)
            self._bytes_left += _READ_AGAIN * _unit_bytes(sections) if sections else 0
        return self._opened[path]

    def _places(self, unit: SplitUnit) -> Iterator[Path]:
        # Where it was built; else beside the program, for files that were copied together.
        yield under(self._dirs.symfs, Path(unit.directory) / unit.name)
        yield self._folder / unit.name
        yield self._folder / Path(unit.name).name
        for root in self._dirs.roots:
            yield root / Path(unit.name).name


def _unit_bytes(sections: Sections) -> int:
    """Bytes that are read anew for each unit."""
    return sum(len(sections.get(name, b"")) for name in ("info", "abbrev"))


def _open_package(path: Path) -> Package | None:
    try:
        return read_package(open_elf(path.with_name(path.name + ".dwp")))
    except (OSError, ElfError, DebugDataError):
        return None


def _read_dwo(path: Path) -> Sections | None:
    try:
        return read_debug_sections(open_elf(path), ".dwo") or None
    except (OSError, ElfError, DebugDataError):
        return None
