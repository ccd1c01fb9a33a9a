"""Debug data that once cost a product of two of its sizes; see `costly_files`. DWARF 4."""

import struct
from pathlib import Path

from builders.costly_files import TEXT, builder, read_elf
from builders.elf import ElfFile, Symbol

TEXT_BYTES = 0x1000
UNIT, FUNCTION, INLINED, NAMESPACE = 0x11, 0x2E, 0x1D, 0x39
LANGUAGE, CPP = 0x13, b"\x04"
NAME, STMT_LIST, LOW, HIGH, RANGES, ORIGIN, CALL_FILE = 0x03, 0x10, 0x11, 0x12, 0x55, 0x31, 0x58
ADDR, DATA4, DATA1, STRP, SEC_OFFSET, REF_ADDR, FLAG, CONSTANT = 0x01, 0x06, 0x0B, 0x0E, 0x17, 0x10, 0x19, 0x21


def leb(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def abbreviation(code: int, tag: int, has_children: bool, *attributes: tuple[int, int]) -> bytes:
    pairs = b"".join(leb(name) + leb(form) for name, form in attributes)
    return leb(code) + leb(tag) + bytes([has_children]) + pairs + b"\0\0"


def unit(dies: bytes) -> bytes:
    """A compilation unit of DWARF 4, with the one table of abbreviations."""
    body = struct.pack("<HIB", 4, 0, 8) + dies
    return struct.pack("<I", len(body)) + body


def line_program(program: bytes, files: bytes = b"a.c\0\0\0\0\0") -> bytes:
    """Version 3: no directories, special opcodes from 10 on that advance by (opcode - 10) / 1."""
    header = struct.pack("<BBbBB", 1, 1, 0, 1, 10) + bytes([0, 1, 1, 1, 1, 0, 0, 0, 1]) + b"\0" + files
    body = struct.pack("<HI", 3, len(header)) + header + program
    return struct.pack("<I", len(body)) + body


def set_address(address: int) -> bytes:
    return b"\0\x09\x02" + struct.pack("<Q", address)


END_SEQUENCE = b"\0\x01\x01"


def read_sections(folder: Path, **sections: bytes) -> list[str]:
    elf = ElfFile(
        text=b"\x90" * TEXT_BYTES,
        symbols=[Symbol("main", TEXT, 16)],
        sections={f".debug_{name}": data for name, data in sections.items()},
    )
    return read_elf(folder / "program", elf.to_bytes())


@builder
def function_names_in_one_text(folder: Path, size: int) -> list[str]:
    """Functions whose names are all the ends of one long text."""
    text = size // 2
    count = size // 2 // 17
    table = abbreviation(1, UNIT, True) + abbreviation(2, FUNCTION, False, (NAME, STRP), (LOW, ADDR), (HIGH, DATA4))
    dies = b"".join(b"\x02" + struct.pack("<IQI", i, TEXT + i % TEXT_BYTES, 1) for i in range(count))
    return read_sections(folder, info=unit(b"\x01" + dies), abbrev=table + b"\0", str=b"n" * text + b"\0")


@builder
def function_names_of_ordinary_length(folder: Path, size: int) -> list[str]:
    """The same with names of 60,000 bytes at most."""
    count = size // 2 // 17
    table = abbreviation(1, UNIT, True) + abbreviation(2, FUNCTION, False, (NAME, STRP), (LOW, ADDR), (HIGH, DATA4))
    dies = b"".join(b"\x02" + struct.pack("<IQI", i % 9000, TEXT + i % TEXT_BYTES, 1) for i in range(count))
    return read_sections(folder, info=unit(b"\x01" + dies), abbrev=table + b"\0", str=(b"n" * 60_000 + b"\0") * 8)


@builder
def units_that_share_lines(folder: Path, size: int) -> list[str]:
    """Many units with one line program, which takes half of the file."""
    table = abbreviation(1, UNIT, False, (STMT_LIST, SEC_OFFSET)) + b"\0"
    units = unit(b"\x01" + bytes(4)) * (size // 2 // 16)
    rows = b"".join(set_address(TEXT) + b"\x0b" * 2000 + END_SEQUENCE for _ in range(size // 2 // 2014))
    return read_sections(folder, info=units, abbrev=table, line=line_program(rows))


@builder
def units_that_share_ranges(folder: Path, size: int) -> list[str]:
    """Many units with one list of ranges, which takes half of the file."""
    table = abbreviation(1, UNIT, False, (RANGES, SEC_OFFSET)) + b"\0"
    units = unit(b"\x01" + bytes(4)) * (size // 2 // 16)
    ranges = b"".join(struct.pack("<QQ", TEXT + i % 4000, TEXT + i % 4000 + 1) for i in range(size // 2 // 16))
    return read_sections(folder, info=units, abbrev=table, ranges=ranges + bytes(16))


@builder
def functions_over_all_lines(folder: Path, size: int) -> list[str]:
    """Functions that all cover the same rows, thousands of one line."""
    table = abbreviation(1, UNIT, True, (STMT_LIST, SEC_OFFSET))
    table += abbreviation(2, FUNCTION, False, (LOW, ADDR), (HIGH, DATA4)) + b"\0"
    dies = b"".join(b"\x02" + struct.pack("<QI", TEXT, TEXT_BYTES) for _ in range(size // 2 // 13))
    rows = set_address(TEXT) + b"\x0b" * 4095 + END_SEQUENCE
    return read_sections(
        folder, info=unit(b"\x01" + bytes(4) + dies), abbrev=table, line=line_program(rows * (size // 2 // len(rows)))
    )


@builder
def long_paths_of_many_files(folder: Path, size: int) -> list[str]:
    """A line table whose files all lie in one long directory, each used by a row."""
    directory = b"/" + b"d" * 4000
    count = min(size // 16, 60_000)
    files = directory + b"\0\0" + b"".join(b"%x\0\x01\0\0" % i for i in range(count)) + b"\0"
    header = struct.pack("<BBbBB", 1, 1, 0, 1, 10) + bytes([0, 1, 1, 1, 1, 0, 0, 0, 1]) + files
    rows = (
        set_address(TEXT) + b"".join(b"\x04" + leb(1 + i) + b"\x01" + b"\x02\x01" for i in range(count)) + END_SEQUENCE
    )
    body = struct.pack("<HI", 3, len(header)) + header + rows
    table = abbreviation(1, UNIT, True, (STMT_LIST, SEC_OFFSET))
    table += abbreviation(2, FUNCTION, False, (LOW, ADDR), (HIGH, DATA4)) + b"\0"
    dies = b"\x02" + struct.pack("<QI", TEXT, TEXT_BYTES)
    line = struct.pack("<I", len(body)) + body
    return read_sections(folder, info=unit(b"\x01" + bytes(4) + dies), abbrev=table, line=line)


@builder
def attributes_without_bytes(folder: Path, size: int) -> list[str]:
    """Functions of one byte with hundreds of attributes that take none."""
    many = [(0x3A, FLAG)] * 500
    table = abbreviation(1, UNIT, True) + abbreviation(2, FUNCTION, False, *many, (RANGES, CONSTANT))
    table = table[:-2] + b"\0" + b"\0\0\0"  # the constant: offset 0
    ranges = struct.pack("<QQQQ", TEXT, TEXT + 1, 0, 0)
    return read_sections(folder, info=unit(b"\x01" + b"\x02" * size), abbrev=table, ranges=ranges)


@builder
def units_of_no_bytes(folder: Path, size: int) -> list[str]:
    """As many units as fit."""
    return read_sections(folder, info=bytes(size))


@builder
def functions_of_few_bytes(folder: Path, size: int) -> list[str]:
    """As many functions as fit, each with a range of its own and rows for it."""
    table = abbreviation(1, UNIT, True, (STMT_LIST, SEC_OFFSET)) + abbreviation(2, FUNCTION, True, (RANGES, CONSTANT))
    table = table[:-2] + b"\0\0\0\0"
    rows = set_address(TEXT) + b"\x0b" * 4095 + END_SEQUENCE
    ranges = b"".join(struct.pack("<QQ", TEXT + i, TEXT + i + 1) for i in range(0, TEXT_BYTES, 2)) + bytes(16)
    dies = b"\x02\x00" * (size // 2)
    return read_sections(
        folder, info=unit(b"\x01" + bytes(4) + dies), abbrev=table, line=line_program(rows), ranges=ranges
    )


@builder
def calls_a_thousand_deep(folder: Path, size: int) -> list[str]:
    """Calls inlined into each other a thousand deep, around all that is looked up."""
    attributes = (LOW, ADDR), (HIGH, DATA4)
    table = abbreviation(1, UNIT, True) + abbreviation(2, FUNCTION, True, *attributes)
    table += abbreviation(3, INLINED, True, *attributes) + b"\0"
    place = struct.pack("<QI", TEXT, TEXT_BYTES)
    dies = b"\x02" + place + (b"\x03" + place) * 1000
    return read_sections(folder, info=unit(b"\x01" + dies), abbrev=table)


def _in_namespaces(folder: Path, size: int, depth: int, name_bytes: int) -> list[str]:
    """As many functions as fit in half of the size, without linkage names, within namespaces of long names."""
    table = abbreviation(1, UNIT, True, (LANGUAGE, DATA1)) + abbreviation(2, NAMESPACE, True, (NAME, STRP))
    table += abbreviation(3, FUNCTION, False, (NAME, STRP), (LOW, ADDR), (HIGH, DATA4)) + b"\0"
    dies = b"".join(b"\x03" + struct.pack("<IQI", 0, TEXT + i % TEXT_BYTES, 1) for i in range(size // 17))
    scopes = (b"\x02" + bytes(4)) * depth
    return read_sections(
        folder, info=unit(b"\x01" + CPP + scopes + dies + bytes(depth)), abbrev=table, str=b"n" * name_bytes + b"\0"
    )


@builder
def functions_in_deep_namespaces(folder: Path, size: int) -> list[str]:
    """Names that hundreds of others stand before."""
    return _in_namespaces(folder, size, 240, 30)


@builder
def functions_in_namespaces_of_long_names(folder: Path, size: int) -> list[str]:
    """What stands before a name is nearly as much as is taken, or more."""
    return _in_namespaces(folder, size, 2 + size % 2, 2_600)


@builder
def namespaces_within_each_other(folder: Path, size: int) -> list[str]:
    """As many scopes as fit, a function in each, all within the last."""
    table = abbreviation(1, UNIT, True, (LANGUAGE, DATA1)) + abbreviation(2, NAMESPACE, True)
    table += abbreviation(3, FUNCTION, False) + abbreviation(
        4, FUNCTION, False, (NAME, STRP), (LOW, ADDR), (HIGH, DATA4)
    )
    begins, ends = b"\x02\x03" * 500, bytes(500)
    scopes = (begins + ends) * (size // 1500) + begins
    named = b"\x04" + struct.pack("<IQI", 0, TEXT + 64, 16)
    return read_sections(folder, info=unit(b"\x01" + CPP + scopes + named + ends), abbrev=table + b"\0", str=b"n\0")
