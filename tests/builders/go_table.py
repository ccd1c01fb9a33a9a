"""Writes Go's table of functions (``.gopclntab``) and programs with one. Shares no code with the readers."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from builders.elf import ElfFile

TABLE, TREES, MODULE = 0x600000, 0x700000, 0x800000  # ELF addresses of the sections
_R_X86_64_RELATIVE = 8
_MAGIC = {"1.16": 0xFFFFFFFA, "1.18": 0xFFFFFFF0, "1.20": 0xFFFFFFF1, "1.27": 0xFFFFFFF1}
_TREES_AT = {"1.18": 38, "1.20": 40, "1.27": 43}  # word of moduledata


@dataclass(frozen=True)
class GoCode:
    """A stretch of a function: so many bytes of one line, of one call in the function's tree (-1: of none)."""

    size: int
    file: int
    line: int
    call: int = -1


@dataclass(frozen=True)
class GoFunction:
    """``calls``: what is inlined, and at which byte of the function each stands in what it is inlined into."""

    name: str
    start: int  # from the text on
    code: Sequence[GoCode]
    calls: Sequence[tuple[str, int]] = field(default=())
    writes_sp: bool = False  # as Go's assembler found
    frame: int = 0  # bytes, in all its code

    @property
    def end(self) -> int:
        return self.start + sum(part.size for part in self.code)


def _uleb(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _values(pairs: Sequence[tuple[int, int]]) -> bytes:
    """A table of (bytes, value)."""
    out, last = bytearray(), -1
    merged: list[tuple[int, int]] = []
    for size, value in pairs:
        if merged and merged[-1][1] == value:
            merged[-1] = (merged[-1][0] + size, value)
        else:
            merged.append((size, value))
    for size, value in merged:
        change = value - last
        out += _uleb(change << 1 if change >= 0 else (~change << 1) | 1) + _uleb(size)
        last = value
    return bytes(out) + b"\0"


def go_table(functions: Sequence[GoFunction], files: Sequence[str], version: str, text: int) -> tuple[bytes, bytes]:
    """``.gopclntab`` and the trees of inlined calls."""
    names, name_at = bytearray(b"\0"), {}
    for name in dict.fromkeys([f.name for f in functions] + [name for f in functions for name, _ in f.calls]):
        name_at[name] = len(names)
        names += name.encode() + b"\0"
    file_text, units = bytearray(), b""
    for name in files:
        units += struct.pack("<I", len(file_text))
        file_text += name.encode() + b"\0"
    values, trees, bodies = bytearray(b"\0"), bytearray(), []
    for function in functions:
        places = []
        for column in (
            [(part.size, function.frame) for part in function.code],
            [(part.size, part.file) for part in function.code],
            [(part.size, part.line) for part in function.code],
            [(part.size, part.call) for part in function.code],
        ):
            places.append(len(values))
            values += _values(column)
        tree = len(trees) if function.calls else 0xFFFFFFFF
        for name, parent in function.calls:
            if version == "1.18":
                trees += struct.pack("<hBBiiii", 0, 0, 0, 0, 0, name_at[name], parent)
            else:
                trees += struct.pack("<Bxxxiii", 0, name_at[name], parent, 0)
        bodies.append(_body(function, name_at[function.name], places, tree, version, text))
    header_bytes = 8 + 8 * (7 if version == "1.16" else 8)
    parts, at, places = [bytes(names), units, bytes(file_text), bytes(values)], header_bytes, []
    for i, part in enumerate(parts):
        parts[i] = part + bytes(-len(part) % 8)
        places.append(at)
        at += len(parts[i])
    places.append(at)
    wide = "<Q" if version == "1.16" else "<I"
    base = text if version == "1.16" else 0
    table, body_at = b"", struct.calcsize(wide) * (2 * len(functions) + 1) + 7 & ~7
    for function, body in zip(functions, bodies, strict=True):
        table += struct.pack(wide, base + function.start) + struct.pack(wide, body_at)
        body_at += len(body)
    table += struct.pack(wide, base + functions[-1].end)
    table += bytes(-len(table) % 8) + b"".join(bodies)
    words = [len(functions), len(files), *([] if version == "1.16" else [text]), *places]
    header = struct.pack("<IxxBB", _MAGIC[version], 1, 8) + struct.pack(f"<{len(words)}Q", *words)
    return header + b"".join(parts) + table, bytes(trees) or b"\0"


def _body(function: GoFunction, name: int, places: Sequence[int], tree: int, version: str, text: int) -> bytes:
    """_func with its lists of tables: the tree's numbers are the third, the tree is the fourth."""
    stack, file, line, call = places
    start = struct.pack("<Q", text + function.start) if version == "1.16" else struct.pack("<I", function.start)
    body = start + struct.pack("<iiIIIIII", name, 0, 0, stack, file, line, 3, 0)
    if version not in ("1.16", "1.18"):
        body += struct.pack("<i", 1)  # the line that it starts at
    body += struct.pack("<BBxB", 0, 2 * function.writes_sp, 4) + struct.pack("<III", 0, 0, call)
    if version == "1.16":
        return body + bytes(-len(body) % 8) + bytes(32)
    body += struct.pack("<IIII", *[0xFFFFFFFF] * 3, tree)
    return body + bytes(-len(body) % 8)


def go_program(
    functions: Sequence[GoFunction],
    files: Sequence[str],
    version: str,
    *,
    text: int = 0x401000,
    is_pie: bool = False,
    before: bytes = b"",
) -> bytes:
    """A stripped program: where ``is_pie``, what names addresses is filled in by relocations.

    Args:
        before: other data that the table stands behind, in a section without a name of its own.
    """
    table, trees = go_table(functions, files, version, 0 if is_pie else text)
    words = [0] * 48
    words[0], words[20], words[22] = TABLE + len(before), text + functions[0].start, text
    if version != "1.16":
        words[_TREES_AT[version]] = TREES
    if version == "1.27":
        words[44] = TABLE + len(table)
    relocations = b""
    if is_pie:
        for i, word in enumerate(words):
            if word:
                relocations += struct.pack("<QQQ", MODULE + 8 * i, _R_X86_64_RELATIVE, word)
        words = [0] * 48
    section = ".data.rel.ro" if before else ".gopclntab"
    return ElfFile(
        text=bytes(0x2000),
        sections={
            ".note.go.buildid": bytes(16),
            section: before + table,
            ".rodata": trees,
            ".noptrdata": struct.pack("<48Q", *words),
            ".rela.dyn": relocations,
        },
        section_addresses={section: TABLE, ".rodata": TREES, ".noptrdata": MODULE},
    ).to_bytes()
