"""What a profiler needs of an ELF file: its identity, segments and sections. Cheap to import, never out of bounds.

64-bit little-endian files only, which is what Linux runs on Arm Neoverse and x86-64 servers.
Layouts: System V ABI, "Object Files"; build-id note: GNU ld's ``--build-id``.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from tdprof.linux.file_bytes import LARGEST_PIECE, FileBytes, MemoryBytes, NotRegularError, open_inside, open_regular
from tdprof.values import dataclass

EM_X86_64, EM_AARCH64 = 62, 183
MACHINES = {"x86_64": EM_X86_64, "aarch64": EM_AARCH64, "arm64": EM_AARCH64}  # e_machine by `uname -m`
PT_LOAD, PT_NOTE, PT_GNU_EH_FRAME = 1, 4, 0x6474E550
PF_X = 1
SHT_SYMTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11
SHF_EXECINSTR, SHF_COMPRESSED = 0x4, 0x800
NT_GNU_BUILD_ID = 3

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_PN_XNUM = 0xFFFF  # more program headers than e_phnum can say: the count stands in section 0
_SHN_XINDEX = 0xFFFF  # the same for e_shstrndx
_BUILD_ID = re.compile(r"(?:[0-9a-f]{2}){2,64}")  # linkers make 8 to 20 bytes, --build-id=0x… any number
_NAME_BYTES = 64  # section names that mean something to us are shorter
# Bounds of what is believed of a header: more than linked programs have, and read within a second.
_MOST_SEGMENTS = 1 << 16
_MOST_SECTIONS = 1 << 18
_MOST_NAMES_BYTES = 1 << 26
# A build-id is wanted of every file that any process maps, also of one that is made to keep us busy.
_MOST_NOTE_SECTIONS = 1 << 14
_MOST_NOTES = 1 << 12
_MOST_NOTE_BYTES = 1 << 20


class ElfError(ValueError):
    """The bytes are not an ELF file that can be read; says why."""


class NotElfError(ElfError):
    """The bytes are of another format: Wine, .NET and Common Lisp run what they map of theirs."""


@dataclass(frozen=True, slots=True)
class ElfSegment:
    """One program header. Addresses are ELF addresses (as linked); sizes are in bytes."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int


_NO_SECTIONS = "the section headers lie outside the file"
_NO_SEGMENTS = "the program headers lie outside the file"


@dataclass(frozen=True, slots=True)
class ElfSection:
    """One section header. ``address`` is an ELF address; ``size`` is in bytes, as stored (maybe compressed)."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Elf:
    """A parsed file over its bytes; where they are a file's, it stays open as long as this lives.

    Attributes:
        content: the whole file.
        type: ``e_type``.
        machine: ``e_machine``.
        segments, sections: those that lie inside the file's header tables.
        damage: what could not be read of the tables, or empty.
    """

    content: FileBytes | MemoryBytes
    type: int
    machine: int
    segments: tuple[ElfSegment, ...]
    sections: tuple[ElfSection, ...]
    damage: str

    def section(self, name: str) -> ElfSection | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def section_data(self, section: ElfSection) -> memoryview:
        """The section's bytes as they stand in the file: cut short if the file is, empty if it holds none."""
        return self.content.read(section.offset, 0 if section.type == SHT_NOBITS else section.size)

    def holds(self, section: ElfSection) -> bool:
        """Whether the file has any bytes of the section."""
        return section.type != SHT_NOBITS and section.size > 0 and section.offset < self.content.size

    @property
    def is_cut(self) -> bool:
        """Whether the file ends before what its tables say lies in it."""
        end = max((each.offset + each.size for each in self.sections if each.type != SHT_NOBITS), default=0)
        return end > self.content.size or self.damage in (_NO_SECTIONS, _NO_SEGMENTS)

    @property
    def build_id(self) -> str:
        """GNU build-id in lower-case hex, or empty."""
        # Sections first: in a file of separate debug data the program headers still describe the original file.
        notes = [(section.offset, section.size) for section in self.sections if section.type == SHT_NOTE]
        notes += [(segment.offset, segment.file_size) for segment in self.segments if segment.type == PT_NOTE]
        return _build_id_of(self.content, notes)


def is_build_id(text: str) -> bool:
    """Whether this is a build-id in lower-case hex, and may be part of a path or an address.

    What a capture or perf.data has for one can be any text.
    """
    return _BUILD_ID.fullmatch(text) is not None


def read_build_id(path: str | Path) -> str:
    """The file's GNU build-id in lower-case hex; empty if it has none, is no ELF file that can be read, or hides it
    behind more headers and notes than any linker writes."""
    try:
        return build_id_of(open_content(path))
    except (OSError, ElfError):
        return ""


def build_id_of(content: FileBytes) -> str:
    """The same of an open file."""
    try:
        header = _read_header(content)
    except ElfError:
        return ""
    sections = _rows(content, _SECTION, header.shoff, min(header.shnum, _MOST_NOTE_SECTIONS))
    notes = [(row[4], row[5]) for row in sections if row[1] == SHT_NOTE]
    notes += [(row[2], row[5]) for row in _segment_rows(content, header) if row[0] == PT_NOTE]
    return _build_id_of(content, notes)


def _build_id_of(content: FileBytes | MemoryBytes, notes: list[tuple[int, int]]) -> str:
    """The build-id among the notes at some (offset, size)."""
    left = _MOST_NOTE_BYTES
    for offset, size in notes:
        if left <= 0:
            break
        found = find_build_id(content.read(offset, min(size, left)))
        if found:
            return found
        left -= max(size, _NOTE.size)
    return ""


def open_elf(path: str | Path) -> Elf:
    """Open the file and parse its header tables.

    Raises:
        OSError: it cannot be opened.
        ElfError: it is no regular file, or not a 64-bit little-endian ELF file.
    """
    return parse_elf(open_content(path))


def open_elf_inside(folder: Path, name: str) -> Elf:
    """The same of a file in a folder that a stranger may have made: neither name may be a link.

    Raises:
        OSError, ElfError: as `open_elf`.
    """
    try:
        return parse_elf(FileBytes(open_inside(folder, name)))
    except NotRegularError as error:
        raise ElfError("not a regular file") from error


def open_content(path: str | Path) -> FileBytes:
    """The file's bytes.

    Raises:
        OSError: it cannot be opened.
        ElfError: it is no regular file.
    """
    try:
        return FileBytes(open_regular(path))
    except NotRegularError as error:
        raise ElfError("not a regular file") from error


@dataclass(frozen=True, slots=True)
class _Header:
    """Of the ELF header: the kind of file, and where its tables are; numbers as they are meant, none checked yet."""

    type: int
    machine: int
    phoff: int
    phnum: int
    shoff: int
    shnum: int
    shstrndx: int


def _read_header(content: FileBytes | MemoryBytes) -> _Header:
    data = content.read(0, _HEADER.size)
    if len(data) < _HEADER.size:
        raise ElfError("too short for an ELF header")
    ident, e_type, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, shstrndx = _HEADER.unpack(
        data
    )
    if ident[:4] != b"\x7fELF":
        raise NotElfError("not an ELF file")
    if ident[4:6] != b"\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF file")
    first = content.read(shoff, _SECTION.size) if shoff and shentsize == _SECTION.size else b""
    if len(first) == _SECTION.size:
        row = _SECTION.unpack(first)
        shnum = shnum or row[5]
        shstrndx = row[6] if shstrndx == _SHN_XINDEX else shstrndx
        phnum = row[7] if phnum == _PN_XNUM else phnum
    else:
        shnum = 0
    if not phoff or phentsize != _SEGMENT.size:
        phoff = content.size
    return _Header(e_type, machine, phoff, phnum, shoff, shnum, shstrndx)


def parse_elf(content: FileBytes | memoryview) -> Elf:
    """Parse the header tables of a file's bytes.

    Raises:
        ElfError: not a 64-bit little-endian ELF file. A damaged table is not an error: see ``Elf.damage``.
    """
    source = MemoryBytes(content) if isinstance(content, memoryview) else content
    header = _read_header(source)
    sections, damage = _parse_sections(source, header)
    segments = tuple(
        ElfSegment(kind, flags, offset, address, file_size)
        for kind, flags, offset, address, _, file_size, _, _ in _segment_rows(source, header)
    )
    if len(segments) < header.phnum:
        damage = damage or _NO_SEGMENTS
    return Elf(source, header.type, header.machine, segments, sections, damage)


def _segment_rows(content: FileBytes | MemoryBytes, header: _Header) -> Iterator[tuple[int, ...]]:
    """The fields of each program header that lies inside the file."""
    return _rows(content, _SEGMENT, header.phoff, min(header.phnum, _MOST_SEGMENTS))


def _rows(
    content: FileBytes | MemoryBytes, layout: struct.Struct, offset: int, count: int
) -> Iterator[tuple[int, ...]]:
    """The rows of a table, as far as the file has them whole."""
    table = content.read(offset, count * layout.size)
    return layout.iter_unpack(table[: len(table) // layout.size * layout.size])


def _parse_sections(content: FileBytes | MemoryBytes, header: _Header) -> tuple[tuple[ElfSection, ...], str]:
    rows = list(_rows(content, _SECTION, header.shoff, min(header.shnum, _MOST_SECTIONS)))
    names = memoryview(b"")
    if header.shstrndx < len(rows):
        _, _, _, _, offset, size, *_ = rows[header.shstrndx]
        names = content.read(offset, min(size, _MOST_NAMES_BYTES))
    sections = tuple(
        ElfSection(_section_name(names, name), kind, flags, address, offset, size, link)
        for name, kind, flags, address, offset, size, link, _, _, _ in rows
    )
    if header.shnum > _MOST_SECTIONS:
        return sections, f"there are more than {_MOST_SECTIONS} section headers"
    if any(section.type != SHT_NOBITS and section.size > LARGEST_PIECE for section in sections):
        return sections, f"a section is larger than {LARGEST_PIECE >> 30} GiB"
    is_whole = len(rows) == header.shnum and (rows or not header.shoff)
    return sections, "" if is_whole else _NO_SECTIONS


def _section_name(names: memoryview, offset: int) -> str:
    return bytes(names[offset : offset + _NAME_BYTES]).split(b"\0", 1)[0].decode("latin-1")


def find_build_id(notes: memoryview) -> str:
    """The build-id among a sequence of ELF notes (also ``/sys/kernel/notes``), in lower-case hex, or empty."""
    position = 0
    for _ in range(_MOST_NOTES):
        if position + _NOTE.size > len(notes):
            break
        name_size, desc_size, kind = _NOTE.unpack_from(notes, position)
        name_start = position + _NOTE.size
        desc_start = name_start + (name_size + 3 & ~3)
        position = desc_start + (desc_size + 3 & ~3)
        if kind == NT_GNU_BUILD_ID and bytes(notes[name_start : name_start + name_size]) == b"GNU\0":
            desc = bytes(notes[desc_start : desc_start + desc_size])
            return desc.hex() if 0 < len(desc) == desc_size else ""
    return ""
