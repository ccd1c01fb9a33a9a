"""What a Go program says of itself: its table of functions, and where the linker put what that counts from.

Format: ``pcHeader`` and ``moduledata`` in Go's runtime/symtab.go; the magic numbers in internal/abi/symtab.go.
"""

import struct
from collections.abc import Iterator
from dataclasses import replace

from tdprof.linux.elf import EM_AARCH64, EM_X86_64, PF_X, PT_LOAD, Elf, ElfSection
from tdprof.values import dataclass

MAGIC_1_16, MAGIC_1_18, MAGIC_1_20 = 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
_SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
_SHARED_SECTION = ".data.rel.ro"  # where C's linker puts it in a program that can be loaded anywhere
_MODULE_SECTIONS = (".go.module", ".noptrdata", ".data", ".data.rel.ro")
_HEADER = struct.Struct("<I2xBB9Q")  # magic, bytes of the smallest instruction, of a pointer, then words
_WORD = struct.Struct("<Q")
_RELATIVE = {EM_X86_64: 8, EM_AARCH64: 1027}  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_RELOCATION_BYTES = 24  # Elf64_Rela: where, kind, addend
_MOST_CANDIDATES = 64

# Words of moduledata: the first function's address, the text's, and what inline trees count from, which has three
# places: before Go 1.20, up to 1.26, and from 1.27 on. The word behind the last is where the table ends.
_MIN_PC, _TEXT = 20, 22
_GOFUNC_1_18, _GOFUNC_1_20, _GOFUNC_1_27 = 38, 40, 43


@dataclass(frozen=True, slots=True)
class GoModule:
    """A program's table of functions.

    Attributes:
        table: ``.gopclntab``.
        magic: which format it has.
        quantum: bytes of the smallest instruction.
        functions: how many, as it says.
        names, units, files, values, lines: where in it each part begins (function names, the files of each unit, file
            names, the values by instruction, the functions).
        text: ELF address that functions count from; 0 in the format of Go 1.16, whose addresses are whole.
        inlined: ELF address that inline trees count from; None if that is not known.
    """

    table: ElfSection
    magic: int
    quantum: int
    functions: int
    names: int
    units: int
    files: int
    values: int
    lines: int
    text: int
    inlined: int | None


def find_go_module(elf: Elf) -> GoModule | None:
    """The program's table; None where it has none, or one of Go before 1.16, or of a format to come."""
    found = (_module_of(elf, table) for table in _tables(elf))
    return next((module for module in found if module), None)


def _tables(elf: Elf) -> Iterator[ElfSection]:
    """Where the table is, or may be."""
    named = next((section for name in _SECTIONS if (section := elf.section(name))), None)
    if named:
        yield named
        return
    shared = elf.section(_SHARED_SECTION)
    # Without Go's notes and its linker's sections a program has no table, and need not be searched.
    if shared is None or (elf.section(".note.go.buildid") is None and elf.section(".go.buildinfo") is None):
        return
    data = bytes(elf.section_data(shared))
    quantum = {EM_X86_64: 1, EM_AARCH64: 4}.get(elf.machine, 0)
    places = [
        at
        for magic in (MAGIC_1_18, MAGIC_1_20)
        for at in _places(data, struct.pack("<I2xBB", magic, quantum, _WORD.size), _WORD.size, 0)
    ]
    for at in places[:_MOST_CANDIDATES]:
        yield replace(shared, address=shared.address + at, offset=shared.offset + at, size=shared.size - at)


def _module_of(elf: Elf, table: ElfSection) -> GoModule | None:
    header = elf.section_data(table)[: _HEADER.size]
    if len(header) < _HEADER.size:
        return None
    magic, quantum, pointer_bytes, *words = _HEADER.unpack(header)
    if magic not in (MAGIC_1_16, MAGIC_1_18, MAGIC_1_20) or pointer_bytes != _WORD.size:
        return None
    if magic == MAGIC_1_16:
        functions, _, *parts = words[:7]
        return _make(table, magic, quantum, functions, parts, (0, None))
    functions, _, text, *parts = words[:8]
    module = next(_modules(elf, table, magic, parts[-1]), None)
    # What only looks like a table has nothing that names it.
    if module is None and (not text or table.name == _SHARED_SECTION):
        return None
    return _make(table, magic, quantum, functions, parts, module or (text, None))


def _make(
    table: ElfSection, magic: int, quantum: int, functions: int, parts: list[int], places: tuple[int, int | None]
) -> GoModule:
    names, units, files, values, lines = parts
    return GoModule(table, magic, quantum, functions, names, units, files, values, lines, *places)


def _modules(elf: Elf, table: ElfSection, magic: int, lines: int) -> Iterator[tuple[int, int]]:
    """Text and inline trees of each ``moduledata`` that fits the table: it begins with the table's address."""
    code = [s for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X]
    first = bytes(elf.section_data(table)[lines : lines + 4])
    if len(first) < 4:
        return
    (first_function,) = struct.unpack("<I", first)
    section = elf.section(".rela.dyn")
    relocations = bytes(elf.section_data(section)) if section else b""
    for count, address in enumerate(_candidates(elf, table, relocations)):
        if count == _MOST_CANDIDATES:
            return
        words = _Words(elf, address, relocations)
        text = words.at(_TEXT)
        if words.at(_MIN_PC) != text + first_function or not any(
            0 <= text - segment.address < segment.file_size for segment in code
        ):
            continue
        place = _GOFUNC_1_18
        if magic == MAGIC_1_20:
            ends = words.at(_GOFUNC_1_27 + 1) == table.address + table.size
            place = _GOFUNC_1_27 if ends else _GOFUNC_1_20
        yield text, words.at(place)


def _candidates(elf: Elf, table: ElfSection, relocations: bytes) -> Iterator[int]:
    """Addresses of words that hold the table's."""
    kind = _RELATIVE.get(elf.machine)
    if kind is not None:
        for at in _places(relocations, struct.pack("<QQ", kind, table.address), _RELOCATION_BYTES, _WORD.size):
            yield _WORD.unpack_from(relocations, at - _WORD.size)[0]
    for section in filter(None, map(elf.section, _MODULE_SECTIONS)):
        data = bytes(elf.section_data(section))
        for at in _places(data, _WORD.pack(table.address), _WORD.size, 0):
            yield section.address + at


def _places(data: bytes, wanted: bytes, step: int, behind: int) -> Iterator[int]:
    """Where the bytes stand, ``behind`` after a multiple of ``step``."""
    at = data.find(wanted)
    while at >= 0:
        if at % step == behind:
            yield at
        at = data.find(wanted, at + 1)


class _Words:
    """The words of a structure as they are once the program is loaded, but for where it is loaded to."""

    def __init__(self, elf: Elf, address: int, relocations: bytes) -> None:
        self._elf, self._address, self._relocations = elf, address, relocations

    def at(self, number: int) -> int:
        address = self._address + number * _WORD.size
        if address >= 1 << 63:
            return 0
        kind = _RELATIVE.get(self._elf.machine, 0)
        relocation = struct.pack("<QQ", address, kind)
        for at in _places(self._relocations, relocation, _RELOCATION_BYTES, 0):
            if at + _RELOCATION_BYTES <= len(self._relocations):
                return int(_WORD.unpack_from(self._relocations, at + len(relocation))[0])
        section = section_at(self._elf, address)
        data = self._elf.section_data(section)[address - section.address :][: _WORD.size] if section else b""
        return int(_WORD.unpack(data)[0]) if len(data) == _WORD.size else 0


def section_at(elf: Elf, address: int) -> ElfSection | None:
    """The section that is loaded where an ELF address is."""
    loaded = (section for section in elf.sections if section.address)
    return next((section for section in loaded if 0 <= address - section.address < section.size), None)
