"""Writes small ELF files for tests. Shares no code with the reader."""

import struct
from dataclasses import dataclass, field

EM_X86_64, EM_AARCH64 = 62, 183
STT_NOTYPE, STT_OBJECT, STT_FUNC = 0, 1, 2
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_NOTE, SHT_DYNSYM = 1, 2, 3, 7, 11


@dataclass
class Symbol:
    name: str
    value: int
    size: int = 0
    kind: int = STT_FUNC
    bind: int = STB_GLOBAL
    section: int = 1  # .text


@dataclass
class ElfFile:
    """One loaded segment at file offset 0x1000 (``text_address`` as linked), then the other sections.

    Section 1 is always ``.text``.
    """

    text: bytes = b"\x90" * 0x1000
    text_address: int = 0x401000
    symbols: list[Symbol] = field(default_factory=list)
    dynamic_symbols: list[Symbol] = field(default_factory=list)
    build_id: bytes = b""
    sections: dict[str, bytes] = field(default_factory=dict)
    section_flags: dict[str, int] = field(default_factory=dict)
    section_addresses: dict[str, int] = field(default_factory=dict)
    machine: int = EM_X86_64

    TEXT_OFFSET = 0x1000

    def to_bytes(self) -> bytes:
        out = bytearray(self.TEXT_OFFSET)
        rows: list[tuple[str, int, int, int, int, int, int, int, int, int]] = [("", 0, 0, 0, 0, 0, 0, 0, 0, 0)]
        names = bytearray(b"\0")

        def add(name: str, kind: int, data: bytes, *, flags=0, address=0, link=0, entry=0) -> None:
            while len(out) % 8:
                out.append(0)
            rows.append((name, kind, flags, address, len(out), len(data), link, 0, 8, entry))
            out.extend(data)

        add(".text", SHT_PROGBITS, self.text, flags=6, address=self.text_address)
        note_place = None
        if self.build_id:
            note = struct.pack("<III", 4, len(self.build_id), 3) + b"GNU\0" + self.build_id
            add(".note.gnu.build-id", SHT_NOTE, note, flags=2)
            note_place = rows[-1][4], len(note)
        for name, kind, symbols in (
            (".symtab", SHT_SYMTAB, self.symbols),
            (".dynsym", SHT_DYNSYM, self.dynamic_symbols),
        ):
            if symbols:
                table, strings = _symbol_bytes(symbols)
                add(name, kind, table, link=len(rows) + 1, entry=24)
                add(name.replace("sym", "str"), SHT_STRTAB, strings)
        for name, data in self.sections.items():
            address = self.section_addresses.get(name, 0)
            add(name, SHT_PROGBITS, data, flags=self.section_flags.get(name, 0), address=address)
        add(".shstrtab", SHT_STRTAB, b"")
        headers = []
        for name, *rest in rows:
            offset = 0
            if name:
                offset = len(names)
                names.extend(str(name).encode() + b"\0")
            headers.append((offset, *rest))
        shstrndx = len(headers) - 1
        headers[shstrndx] = (*headers[shstrndx][:4], len(out), len(names), *headers[shstrndx][6:])
        out.extend(names)
        while len(out) % 8:
            out.append(0)
        shoff = len(out)
        for header in headers:
            out.extend(struct.pack("<IIQQQQIIQQ", *header))
        segments = [
            (1, 5, self.TEXT_OFFSET, self.text_address, self.text_address, len(self.text), len(self.text), 0x1000)
        ]
        if note_place:
            segments.append((4, 4, note_place[0], 0, 0, note_place[1], note_place[1], 4))
        for i, segment in enumerate(segments):
            struct.pack_into("<IIQQQQQQ", out, 64 + 56 * i, *segment)
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        struct.pack_into(
            "<16sHHIQQQIHHHHHH",
            out,
            0,
            ident,
            3,
            self.machine,
            1,
            0,
            64,
            shoff,
            0,
            64,
            56,
            len(segments),
            64,
            len(headers),
            shstrndx,
        )
        return bytes(out)


def with_program_header(data: bytes, kind: int, offset: int, size: int) -> bytes:
    """The file with another last program header."""
    changed = bytearray(data)
    last = 64 + 56 * (struct.unpack_from("<H", data, 56)[0] - 1)
    struct.pack_into("<IIQQQQQQ", changed, last, kind, 4, offset, 0, 0, size, size, 4)
    return bytes(changed)


def _symbol_bytes(symbols: list[Symbol]) -> tuple[bytes, bytes]:
    table, strings = bytearray(24), bytearray(b"\0")
    for symbol in symbols:
        info = symbol.bind << 4 | symbol.kind
        table += struct.pack("<IBBHQQ", len(strings), info, 0, symbol.section, symbol.value, symbol.size)
        strings += symbol.name.encode() + b"\0"
    return bytes(table), bytes(strings)
