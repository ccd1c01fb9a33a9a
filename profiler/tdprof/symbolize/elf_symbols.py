"""The symbols of one ELF file: file offset to ELF address, then to function, inlined calls and lines."""

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tdprof.linux.elf import PF_X, PT_LOAD, SHF_EXECINSTR, SHT_DYNSYM, SHT_SYMTAB, Elf, ElfError
from tdprof.linux.file_bytes import FileBytes
from tdprof.model.addresses import NO_BEGIN, Locations, Unknown
from tdprof.model.arrays import U64, distinct
from tdprof.model.machine_code import CodePart
from tdprof.symbolize import dwarf
from tdprof.symbolize.cache import CachedSymbols, SymbolCache
from tdprof.symbolize.code_extents import CodeExtents, read_extents
from tdprof.symbolize.code_index import EMPTY_INDEX, CodeIndex
from tdprof.symbolize.debug_files import DebugDirs, DebugFile, find_debug_file, find_shared_file, read_mini_debug_info
from tdprof.symbolize.debug_sections import DebugDataError, has_debug_info, reserve_debug_sections
from tdprof.symbolize.demangling import split_clone_tags
from tdprof.symbolize.go_lines import open_go_lines
from tdprof.symbolize.locations import find_locations
from tdprof.symbolize.plt import read_plt
from tdprof.symbolize.split_units import SplitFinder
from tdprof.symbolize.symbol_table import EMPTY_TABLE, SymbolTable, join_tables, read_elf_symbols

NOT_COMPILED = (
    "lines and inlined functions are missing, since tdprof's compiled part was not built; "
    "install gcc, then pip install tdprof again"
)
LARGEST_CODE_BYTES = 1 << 22  # of one function; a symbol that claims more is damaged, or no function
MOST_CODE_BYTES = 4 * LARGEST_CODE_BYTES  # of a function and its pieces, which may lie over each other
NOWHERE = np.uint64(2**64 - 1)  # the ELF address of a file offset that no segment loads; no symbol covers it


def elf_addresses(elf: Elf, file_offsets: U64) -> U64:
    """uint64[n]: the ELF address that each file offset is loaded to, or ``NOWHERE``.

    A byte may be loaded twice, since neighbouring segments share their border page: code wins.
    """
    addresses = np.full(len(file_offsets), NOWHERE, np.uint64)
    loads = [segment for segment in elf.segments if segment.type == PT_LOAD and segment.address < 2**63]
    for segment in sorted(loads, key=lambda segment: segment.flags & PF_X):
        inside = (file_offsets >= segment.offset) & (file_offsets - np.uint64(segment.offset) < segment.file_size)
        addresses[inside] = file_offsets[inside] - np.uint64(segment.offset) + np.uint64(segment.address)
    return addresses


def code_parts(elf: Elf) -> list[tuple[int, int]]:
    """Where each of the file's sections of code, or else segments, begins and ends, as ELF addresses, sorted."""
    parts = [(s.address, s.address + s.size) for s in elf.sections if s.flags & SHF_EXECINSTR and s.size]
    if not parts:
        loads = [s for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X]
        parts = [(s.address, s.address + s.file_size) for s in loads]
    return sorted((start, min(end, 2**64 - 1)) for start, end in parts)


def text_bounds(elf: Elf) -> tuple[int, int]:
    """The first ELF address of the file's code and the one behind its last; (0, 0) if it has none."""
    parts = code_parts(elf)
    if not parts:
        return 0, 0
    return max(1, parts[0][0]), max(end for _, end in parts)


class ElfSymbols:
    """What one file and its debug data say of its code. Debug data is read when first asked for, and only as far as
    the addresses asked for need; all of it when asked again for others, also by a later process through the cache."""

    @property
    def path(self) -> Path:
        """The file that is read."""
        return self._path

    @property
    def owner(self) -> int | None:
        """The user whose file it is; None if it is no file."""
        return self._elf.content.owner() if isinstance(self._elf.content, FileBytes) else None

    def __init__(self, elf: Elf, path: Path, dirs: DebugDirs, cache: SymbolCache | None = None) -> None:
        self._elf = elf
        self._path = path
        self._dirs = dirs
        self._debug = DebugFile(elf, path) if has_debug_info(elf) else find_debug_file(elf, path, dirs)
        self._shared = find_shared_file(self._debug, dirs) if self._debug else None
        self._cache = cache if elf.build_id and dwarf.is_available() else None
        self._source = describe_source(DebugFile(elf, path), self._debug, self._shared)
        damage = ""
        known = self._cache.load(elf.build_id, self._source) if self._cache and self._debug else None
        if known:
            self._table, self._is_complete = known.table, known.is_complete
        else:
            self._table, self._is_complete, damage = _choose_table(elf, self._debug, lambda: self._extents)
        self._go = None if self._debug else open_go_lines(elf)
        if self._go and not self._is_complete:
            self._table = join_tables(self._table, self._go.functions())
        self._index = known.index if known else None
        self._asked = known.asked if known else None  # sorted; None once everything was read
        self.notes = [*filter(None, [elf.damage, damage])]  # what a user should know of it

    @functools.cached_property
    def _extents(self) -> CodeExtents:
        return read_extents(self._elf)

    def locate(self, file_offsets: U64) -> Locations:
        """See ``Symbolizer.locate``."""
        addresses = elf_addresses(self._elf, file_offsets)
        if self._elf.damage and not len(self._table):
            missing = Unknown.DAMAGED
        else:
            missing = Unknown.NO_SYMBOL if self._is_complete else Unknown.STRIPPED
        symbols = self._table.lookup(addresses)
        begins = self._table.start[distinct(symbols[symbols >= 0])]  # where a function stands can be seen there alone
        index = self._index_for(np.concatenate([addresses, begins]))
        found = find_locations(self._table, index, addresses, missing)
        rows = np.flatnonzero(found.reason != Unknown.KNOWN)
        if not len(rows):
            return found
        around = self._extents.around(addresses[rows])
        first, last = self._between_functions(addresses[rows])
        to_offset = file_offsets[rows] - addresses[rows]
        first = np.where(around == NO_BEGIN, first, around)
        last[around != NO_BEGIN] = NO_BEGIN
        begin, end = (np.full(len(file_offsets), NO_BEGIN, np.uint64) for _ in range(2))
        begin[rows] = np.where(first == NO_BEGIN, NO_BEGIN, first + to_offset)
        end[rows] = np.where(last == NO_BEGIN, NO_BEGIN, last + to_offset)
        return replace(found, begin=begin, end=end)

    def _between_functions(self, addresses: U64) -> tuple[U64, U64]:
        """What lies around addresses that no function covers, within a section: from the last end to the next start.

        All ones where an address is in no code.
        """
        parts = code_parts(self._elf)
        start, end = (np.array([part[side] for part in parts], np.uint64) for side in range(2))
        row = np.searchsorted(start, addresses, "right") - 1
        is_code = (row >= 0) & (addresses < np.append(end, np.uint64(0))[row])
        ends = (self._table.latest_end, np.maximum.accumulate(self._extents.end))
        first, last = np.append(start, np.uint64(0))[row], np.append(end, np.uint64(0))[row]
        for starts, latest_end in zip((self._table.start, self._extents.start), ends, strict=True):
            following = np.searchsorted(starts, addresses, "right")
            before = np.append(latest_end, np.uint64(0))[following - 1]
            first = np.maximum(first, np.where(before <= addresses, before, np.uint64(0)))
            last = np.minimum(last, np.append(starts, NO_BEGIN)[following])
        return np.where(is_code, first, NO_BEGIN), np.where(is_code, last, NO_BEGIN)

    def parts(self, file_offsets: U64) -> list[CodePart]:
        """The functions that stand at some places of the file, whole: with the pieces that compilers split off."""
        addresses = elf_addresses(self._elf, file_offsets)
        found = distinct(self._table.lookup(addresses))
        found = found[found >= 0]
        names = self._table.names(range(len(self._table)))
        # Of each function's base name the files that its pieces were compiled from: of all, and of those with tags.
        homes: dict[str, tuple[set[int], set[int]]] = {}
        for row in found.tolist():
            base, tags = split_clone_tags(names[row])
            every, tagged = homes.setdefault(base, (set(), set()))
            every.add(int(self._table.file[row]))
            if tags:
                tagged.add(int(self._table.file[row]))
        chosen = set(found.tolist())
        for row, name in enumerate(names):
            base, tags = split_clone_tags(name)
            if base in homes:
                # Pieces are local symbols of the file that the function was compiled from; -1: that is not noted.
                file = int(self._table.file[row])
                files = homes[base][0 if tags else 1]
                if files and (file < 0 or -1 in files or file in files):
                    chosen.add(row)
        parts, left_bytes = [], MOST_CODE_BYTES
        for row in sorted(chosen):
            part = self._part(row, names[row], left_bytes)
            if part is not None:
                parts.append(part)
                left_bytes -= len(part.data)
        return parts

    def name_targets(self, addresses: U64) -> list[str]:
        """Linkage name and distance of what stands at each ELF address, or "" where that is not known."""
        rows = self._table.lookup(addresses)
        names = iter(self._table.names(rows[rows >= 0].tolist()))
        linked = read_plt(self._elf) if (rows < 0).any() else {}
        result = []
        for row, address in zip(rows.tolist(), addresses.tolist(), strict=True):
            distance = address - int(self._table.start[row]) if row >= 0 else 0
            name = next(names) if row >= 0 else linked.get(address, "")
            result.append(name + (f"+{distance:#x}" if distance else ""))
        return result

    def _part(self, row: int, name: str, most_bytes: int) -> CodePart | None:
        """A symbol's code; None where the file has no bytes for it, or none may be read any more."""
        start, end = int(self._table.start[row]), int(self._table.end[row])
        for segment in self._elf.segments:
            if segment.type == PT_LOAD and segment.flags & PF_X and start - segment.address in range(segment.file_size):
                offset = start - segment.address + segment.offset
                size = min(end - start, segment.file_size - (start - segment.address), LARGEST_CODE_BYTES, most_bytes)
                if not size:
                    return None
                return CodePart(name, start, offset, bytes(self._elf.content.read(offset, size)), self._elf.machine)
        return None

    def _index_for(self, addresses: U64) -> CodeIndex:
        if self._debug is None and self._go is None:
            return EMPTY_INDEX
        if not dwarf.is_available():
            self.notes = [NOT_COMPILED]
            return EMPTY_INDEX
        if self._go:
            index = self._go.index_for(addresses)
            if self._go.is_spent:
                self.notes.append("lines of some functions are not read, since its Go table is too complex")
            return index
        if self._index is None:
            self._asked = distinct(addresses)
            self._index = self._read(self._asked)
        elif self._asked is not None:
            unknown = addresses[self._index.lookup(addresses) < 0]
            at = np.minimum(np.searchsorted(self._asked, unknown), max(len(self._asked) - 1, 0))
            if len(unknown) and not (len(self._asked) and (self._asked[at] == unknown).all()):
                self._index, self._asked = self._read(None), None
        return self._index

    def _read(self, wanted: U64 | None) -> CodeIndex:
        assert self._debug is not None
        splits = SplitFinder((self._path, self._debug.path), self._dirs)
        elfs = [file.elf for file in (self._debug, self._shared) if file]
        try:
            result = dwarf.build_code_index(
                reserve_debug_sections(self._debug.elf),
                text_bounds(self._elf),
                shared=reserve_debug_sections(self._shared.elf) if self._shared else None,
                find_split=splits.find,
                wanted=wanted,
                threads=os.cpu_count() or 1,
                file_bytes=sum(elf.content.size for elf in elfs),
            )
        except DebugDataError as error:
            self.notes.append(f"no lines and inlined functions, since {error}")
            return EMPTY_INDEX
        except MemoryError:
            self.notes.append(
                "no lines and inlined functions, since reading its debug data takes more memory than there is or "
                "than a file of its size may ask for"
            )
            return EMPTY_INDEX
        if result.is_spent:
            self.notes.append(
                f"{result.bad_units} of {result.units} units of debug data are not read, since it is too complex"
            )
        elif result.bad_units:
            self.notes.append(
                f"{result.bad_units} of {result.units} units of debug data are damaged, the first at "
                f"{result.first_bad_offset:#x} of .debug_info"
            )
        if splits.missing:
            self.notes.append(
                f"{splits.missing} units have no inlined functions, since their .dwo files are missing, such as "
                f"{splits.example}; --debug-dir names a folder that has them"
            )
        # What is missing a split file now may have it tomorrow, without any sign of that in the main file.
        if self._cache and not splits.missing:
            found = CachedSymbols(self._source, self._table, result.index, self._is_complete, wanted)
            self._cache.store(self._elf.build_id, found)
        return result.index


def describe_source(program: DebugFile, debug: DebugFile | None, shared: DebugFile | None) -> str:
    """What is read, so that what the cache has of other files, or of older ones, is not taken for it.

    The program counts where its debug data lies elsewhere, too: anybody can give a file of his the build-id of another,
    and symbols of his choice.
    """
    parts = []
    for file in filter(None, (program, debug, shared)):
        status = file.path.stat()
        parts.append(f"{file.path.absolute()} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(dict.fromkeys(parts))


def _choose_table(
    elf: Elf, debug: DebugFile | None, extents: Callable[[], CodeExtents]
) -> tuple[SymbolTable, bool, str]:
    """The best table; whether it names all functions (``.dynsym`` has only those seen from outside); and why a better
    one that is there cannot be read, or ""."""
    for source in (elf, debug.elf if debug else None):
        table = read_elf_symbols(source, SHT_SYMTAB, extents) if source else EMPTY_TABLE
        if len(table):
            return table, True, ""
    dynamic = read_elf_symbols(elf, SHT_DYNSYM, extents)
    try:
        mini = read_mini_debug_info(elf)
    except ElfError as error:
        return dynamic, False, str(error)
    if mini is None:
        return dynamic, False, ""
    return join_tables(dynamic, read_elf_symbols(mini, SHT_SYMTAB, extents)), True, ""
