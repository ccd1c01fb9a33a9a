"""What a profiler needs of an ELF file: its identity, segments and sections. Cheap to import, never out of bounds.

64-bit little-endian files only, which is what Linux runs on Arm Neoverse and x86-64 servers.
Layouts: System V ABI, "Object Files"; build-id note: GNU ld's ``--build-id``.
"""

import mmap
import os
import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

PT_LOAD, PT_NOTE = 1, 4
PF_X = 1
SHT_SYMTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11
SHF_ALLOC, SHF_EXECINSTR, SHF_COMPRESSED = 0x2, 0x4, 0x800
NT_GNU_BUILD_ID = 3

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_PN_XNUM = 0xFFFF  # more program headers than e_phnum can say: the count stands in section 0
_SHN_XINDEX = 0xFFFF  # the same for e_shstrndx
_BUILD_ID = re.compile(r"(?:[0-9a-f]{2}){2,64}")  # linkers make 8 to 20 bytes, --build-id=0x… any number
_NAME_BYTES = 64  # section names that mean something to us are shorter


class ElfError(ValueError):
    """The bytes are not an ELF file that can be read; says why."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header. Addresses are ELF addresses (as linked); sizes are in bytes."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int


@dataclass(frozen=True, slots=True)
class Section:
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
    """A parsed file over its bytes, which stay mapped as long as this or a slice of them lives.

    Attributes:
        data: the whole file.
        type: ``e_type``.
        machine: ``e_machine``.
        segments, sections: those that lie inside the file's header tables.
        damage: what could not be read of the tables, or empty.
    """

    data: memoryview
    type: int
    machine: int
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]
    damage: str

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def section_data(self, section: Section) -> memoryview:
        """The section's bytes as they stand in the file: cut short if the file is, empty if it holds none."""
        if section.type == SHT_NOBITS:
            return self.data[:0]
        return self.data[section.offset : section.offset + section.size]

    @property
    def build_id(self) -> str:
        """GNU build-id in lower-case hex, or empty."""
        # Sections first: in a file of separate debug data the program headers still describe the original file.
        notes = [self.section_data(section) for section in self.sections if section.type == SHT_NOTE]
        notes += [self.data[s.offset : s.offset + s.file_size] for s in self.segments if s.type == PT_NOTE]
        return next(filter(None, map(find_build_id, notes)), "")


def is_build_id(text: str) -> bool:
    """Whether this is a build-id in lower-case hex, and may be part of a path or an address.

    What a capture or perf.data has for one can be any text.
    """
    return _BUILD_ID.fullmatch(text) is not None


def read_build_id(path: str | Path) -> str:
    """The file's GNU build-id in lower-case hex; empty if it has none, or is no ELF file that can be read."""
    try:
        return open_elf(path).build_id
    except (OSError, ElfError):
        return ""


def open_elf(path: str | Path) -> Elf:
    """Map the file and parse its header tables.

    Raises:
        OSError: it cannot be opened.
        ElfError: it is no regular file, or not a 64-bit little-endian ELF file.
    """
    # The name may lead to a device, which opening alone may start, or a FIFO, which must not make us wait.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ElfError("not a regular file")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ElfError("not a regular file")
        if status.st_size < _HEADER.size:
            raise ElfError("too short for an ELF header")
        data = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)
    return parse_elf(data)


def parse_elf(data: memoryview) -> Elf:
    """Parse the header tables of a file's bytes.

    Raises:
        ElfError: not a 64-bit little-endian ELF file. A damaged table is not an error: see ``Elf.damage``.
    """
    if len(data) < _HEADER.size:
        raise ElfError("too short for an ELF header")
    ident, e_type, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, shstrndx = (
        _HEADER.unpack_from(data)
    )
    if ident[:4] != b"\x7fELF":
        raise ElfError("not an ELF file")
    if ident[4:6] != b"\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF file")
    damage = ""
    if shoff and shentsize == _SECTION.size and shoff + _SECTION.size <= len(data):
        first = _SECTION.unpack_from(data, shoff)
        shnum = shnum or first[5]
        shstrndx = first[6] if shstrndx == _SHN_XINDEX else shstrndx
        phnum = first[7] if phnum == _PN_XNUM else phnum
        sections, damage = _parse_sections(data, shoff, shnum, shstrndx)
    else:
        sections = ()
        damage = "the section headers lie outside the file" if shoff else ""
    fitting = 0
    if phoff and phentsize == _SEGMENT.size:
        fitting = max(0, min(phnum, (len(data) - phoff) // _SEGMENT.size))
    if fitting < phnum:
        damage = damage or "the program headers lie outside the file"
    segments = []
    for kind, flags, offset, address, _, file_size, _, _ in _SEGMENT.iter_unpack(
        data[phoff : phoff + fitting * _SEGMENT.size]
    ):
        segments.append(Segment(kind, flags, offset, address, file_size))
    return Elf(data, e_type, machine, tuple(segments), sections, damage)


def _parse_sections(data: memoryview, shoff: int, shnum: int, shstrndx: int) -> tuple[tuple[Section, ...], str]:
    fitting = min(shnum, (len(data) - shoff) // _SECTION.size)
    rows = list(_SECTION.iter_unpack(data[shoff : shoff + fitting * _SECTION.size]))
    names = data[:0]
    if shstrndx < len(rows):
        names = data[rows[shstrndx][4] : rows[shstrndx][4] + rows[shstrndx][5]]
    sections = tuple(
        Section(_section_name(names, name), kind, flags, address, offset, size, link)
        for name, kind, flags, address, offset, size, link, _, _, _ in rows
    )
    return sections, "" if fitting == shnum else "the section headers lie outside the file"


def _section_name(names: memoryview, offset: int) -> str:
    return bytes(names[offset : offset + _NAME_BYTES]).split(b"\0", 1)[0].decode("latin-1")


def find_build_id(notes: memoryview) -> str:
    """The build-id among a sequence of ELF notes (also ``/sys/kernel/notes``), in lower-case hex, or empty."""
    position = 0
    while position + _NOTE.size <= len(notes):
        name_size, desc_size, kind = _NOTE.unpack_from(notes, position)
        name_start = position + _NOTE.size
        desc_start = name_start + (name_size + 3 & ~3)
        position = desc_start + (desc_size + 3 & ~3)
        if kind == NT_GNU_BUILD_ID and bytes(notes[name_start : name_start + name_size]) == b"GNU\0":
            desc = bytes(notes[desc_start : desc_start + desc_size])
            return desc.hex() if 0 < len(desc) == desc_size else ""
    return ""
