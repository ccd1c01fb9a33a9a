"""Programs whose headers, notes, unwind information, code or sources might cost a product; see `costly_files`."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa

from builders import capture_tables
from builders.cost import python, tdprof
from builders.costly_captures import write_capture
from builders.costly_debug_data import (
    ADDR,
    DATA4,
    FUNCTION,
    HIGH,
    INLINED,
    LOW,
    NAME,
    ORIGIN,
    REF_ADDR,
    STRP,
    UNIT,
    abbreviation,
    unit,
)
from builders.costly_files import TEXT, builder, read_elf
from builders.costly_side_tables import PID, columns_of, numbers
from builders.elf import ElfFile, Symbol
from tdprof.capture.schema import KERNEL_SYMBOLS, SAMPLES, STACKS, SYMBOLS

_READ_UNWIND_TABLE = """
import sys
from pathlib import Path
from tdprof.unwind.tables import build_file_table
print(len(build_file_table(Path(sys.argv[1])) or b""))
"""
_NOTE = struct.pack("<III", 4, 0, 9) + b"GNU\0"
LINKAGE_NAME = 0x6E
_KERNEL = 0xFFFF800000000000


# --- headers and notes


def _with_headers(data: bytes, kind: int, count: int, *, offset: int, size: int) -> bytes:
    """The file with its program headers at its end, and so many more of one kind and place."""
    place, number = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = data[place : place + 56 * number]
    headers += struct.pack("<IIQQQQQQ", kind, 4, offset, 0, 0, size, size, 4) * count
    whole = bytearray(data + headers)
    struct.pack_into("<Q", whole, 32, len(data))
    struct.pack_into("<H", whole, 56, number + count)
    return bytes(whole)


@builder
def notes_of_no_bytes(folder: Path, size: int) -> list[str]:
    """As many notes as fit, none of which is a build-id."""
    notes = _NOTE * (size // len(_NOTE))
    data = ElfFile(symbols=[Symbol("main", TEXT, 16)], sections={".note.x": notes}).to_bytes()
    return read_elf(folder / "program", _with_headers(data, 4, 1, offset=data.index(_NOTE * 4), size=len(notes)))


@builder
def note_segments_of_the_same_notes(folder: Path, size: int) -> list[str]:
    """Notes that take half of the file, and program headers that all point to them."""
    notes = _NOTE * (size // 2 // len(_NOTE))
    data = ElfFile(symbols=[Symbol("main", TEXT, 16)], sections={".note.x": notes}).to_bytes()
    count = min(60_000, size // 2 // 56)
    return read_elf(folder / "program", _with_headers(data, 4, count, offset=data.index(_NOTE * 4), size=len(notes)))


@builder
def segments_of_the_same_code(folder: Path, size: int) -> list[str]:
    """Program headers that all load the same bytes."""
    data = ElfFile(symbols=[Symbol("main", TEXT, 16)]).to_bytes()
    return read_elf(folder / "program", _with_headers(data, 1, min(60_000, size // 56), offset=0x1000, size=16))


@builder
def sections_with_one_long_name(folder: Path, size: int) -> list[str]:
    """Section headers whose names all begin in one text without a NUL."""
    data = bytearray(ElfFile(symbols=[Symbol("main", TEXT, 16)], sections={"x" * (size // 2): b""}).to_bytes())
    shoff, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    headers = bytes(data[shoff : shoff + 64 * count])
    name = struct.unpack_from("<I", headers, 64 * (count - 2))[0]
    more = min(60_000, size // 2 // 64)
    empty = headers[64 * (count - 2) : 64 * (count - 1)]
    rows = b"".join(struct.pack("<I", name + i % (size // 4)) + empty[4:] for i in range(more))
    struct.pack_into("<Q", data, 40, len(data))
    struct.pack_into("<H", data, 60, count + more)
    return read_elf(folder / "program", bytes(data) + headers + rows)


# --- call-frame information


def _entry(body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack("<I", len(body)) + body


def _cie(program: bytes) -> bytes:
    """Version 1, addresses of four bytes, CFA = rsp + 8."""
    return _entry(b"\0\0\0\0\x01zR\0\x01\x78\x10\x01\x03\x0c\x07\x08\x90\x01" + program)


def _fde(at: int, start: int, length: int, program: bytes) -> bytes:
    return _entry(struct.pack("<III", at + 4, start, length) + b"\0" + program)


def _frames(folder: Path, cie: bytes, functions: list[tuple[int, int, bytes]], text_bytes: int) -> list[str]:
    data = bytearray(_cie(cie))
    for start, length, program in functions:
        data += _fde(len(data), start, length, program)
    elf = ElfFile(text=b"\x90" * text_bytes, build_id=b"\1" * 20, sections={".eh_frame": bytes(data) + bytes(4)})
    path = folder / "program"
    path.write_bytes(elf.to_bytes())
    return python(_READ_UNWIND_TABLE, path)


@builder
def frames_that_share_a_long_beginning(folder: Path, size: int) -> list[str]:
    """Functions whose common entry is a program that takes half of the file."""
    count = size // 2 // 24
    functions = [(TEXT + i % 0x1000, 1, b"") for i in range(count)]
    return _frames(folder, b"\x0e\x10" * (size // 4), functions, 0x1000)


@builder
def frames_over_each_other(folder: Path, size: int) -> list[str]:
    """Functions that all cover each other, each with rows of its own."""
    count = size // 40
    program = b"\x41\x0e\x10\x41\x0e\x18\x41\x0e\x20\x41\x0e\x28"
    functions = [(TEXT + i % 0x800, 0x800, program) for i in range(count)]
    return _frames(folder, b"", functions, 0x1000)


@builder
def frame_of_one_long_program(folder: Path, size: int) -> list[str]:
    """A function with a row for each byte, that remembers its state again and again."""
    program = b"\x0a\x41\x0e\x10\x0b\x41\x0e\x18" * (size // 16)
    return _frames(folder, b"", [(TEXT, size // 4, program)], size // 4)


@builder
def frame_of_one_long_expression(folder: Path, size: int) -> list[str]:
    """Functions whose CFA is an expression, all together as long as the file."""
    expression = b"\x77\x08" + b"\x06\x23\x08" * 80
    program = b"\x0f" + bytes([len(expression) & 0x7F | 0x80, len(expression) >> 7]) + expression
    count = size // (len(program) + 20)
    return _frames(folder, b"", [(TEXT + i % 0x1000, 1, program) for i in range(count)], 0x1000)


# --- names, code and sources of captures


def _doubling(number: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    parts = "".join(f"S_IS{digits[i]}_S{digits[i]}_E" for i in range(1, 28))
    return f"_Z{len(str(number)) + 1}f{number}St4pairI1aS0_E{parts}"


def _mangled(folder: Path, size: int) -> None:
    """Kernel functions with mangled names that double, and a sample of each."""
    names = [_doubling(number) for number in range(max(1, size // 300))]
    count = len(names)
    address = np.uint64(_KERNEL) + np.uint64(16) * numbers(count)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), pa.array(address))
    samples = columns_of(
        SAMPLES,
        count,
        pid=np.full(count, PID, np.uint32),
        user_stack=pa.nulls(count, pa.uint64()),
        kernel_stack=numbers(count),
        count=np.ones(count, np.uint64),
        weight=np.ones(count, np.uint64),
    )
    symbols = columns_of(
        KERNEL_SYMBOLS,
        count,
        address=address,
        size=np.full(count, 16, np.uint64),
        name=pa.array(names),
        module=pa.nulls(count, pa.string()),
    )
    stacks = pa.table([pa.array(numbers(count)), pa.repeat(True, count), lists], names=STACKS.names)
    write_capture(folder, stacks=stacks, samples=samples, kernel_symbols=symbols)


@builder
def mangled_names_reported(folder: Path, size: int) -> list[str]:
    """Names of a capture that double when they are demangled."""
    _mangled(folder, size)
    return tdprof("report", folder, "--limit", "0")


@builder
def mangled_names_on_a_page(folder: Path, size: int) -> list[str]:
    """The same on a page."""
    _mangled(folder, size)
    return tdprof("export", folder, "--to", "html", "-o", folder.parent / "out.html")


def _annotated(folder: Path, program: Path, *options: str, line: int = 1) -> list[str]:
    """A capture of one sample in ``main`` of a program, whose line a carried symbol tells."""
    kind = SYMBOLS.field("frames").type
    frame = pa.array([[{"function": "main", "file": str(folder / "main.c"), "line": line}]], kind)
    columns = [
        *(pa.array([text]) for text in (str(program), "", "elf")),
        pa.array([0], pa.uint32()),
        pa.array([0x1000], pa.uint64()),
        pa.array([0], pa.uint8()),
        frame,
    ]
    symbols = pa.table(columns, names=SYMBOLS.names).cast(SYMBOLS)
    mappings = capture_tables.mappings((0, 42, 0x1000, 1 << 30, 0x1000, str(program), None))
    stacks = capture_tables.stacks((1, False, [0x1000]))
    write_capture(folder / "capture", symbols=symbols, mappings=mappings, stacks=stacks)
    # Root reads what it names itself; what a stranger's program names has its owner's rights.
    return tdprof("annotate", folder / "capture", "main", *options, "--source-dir", folder)


@builder
def annotated_source_of_blank_lines(folder: Path, size: int) -> list[str]:
    """A function in a source that is nothing but ends of lines."""
    (folder / "capture").mkdir()
    (folder / "main.c").write_bytes(b"\n" * size)
    return _annotated(folder, folder / "nowhere", line=size // 2)


@builder
def annotated_source_of_one_line(folder: Path, size: int) -> list[str]:
    """The same in a source that is one line, of characters that no terminal shows."""
    (folder / "capture").mkdir()
    (folder / "main.c").write_bytes(b"\x1b" * size)
    return _annotated(folder, folder / "nowhere")


@builder
def annotated_function_of_all_code(folder: Path, size: int) -> list[str]:
    """A function that is as long as the program, of instructions of a byte."""
    (folder / "capture").mkdir()
    path = folder / "program"
    path.write_bytes(ElfFile(text=b"\x90" * size, symbols=[Symbol("main", TEXT, size)]).to_bytes())
    return _annotated(folder, path, "--asm")


@builder
def annotated_calls_with_names_that_double(folder: Path, size: int) -> list[str]:
    """A function into which others are inlined, all with names that double."""
    (folder / "capture").mkdir()
    names = [_doubling(number) for number in range(max(1, size // 700))]
    text = b"".join(name.encode() + b"\0" for name in names)
    at = np.cumsum([0, *(len(name) + 1 for name in names)]).tolist()
    table = abbreviation(1, UNIT, True) + abbreviation(2, FUNCTION, True, (NAME, STRP), (LOW, ADDR), (HIGH, DATA4))
    table += abbreviation(3, FUNCTION, False, (LINKAGE_NAME, STRP))
    table += abbreviation(4, INLINED, False, (ORIGIN, REF_ADDR), (LOW, ADDR), (HIGH, DATA4)) + b"\0"
    origins = b"".join(b"\x03" + struct.pack("<I", place) for place in at[:-1])
    first = 4 + 7 + 1  # of the origins: behind the unit's header and its own entry
    calls = b"".join(
        b"\x04" + struct.pack("<IQI", first + 5 * number, TEXT + number, 1) for number in range(len(names))
    )
    main = b"\x02" + struct.pack("<IQI", at[-1], TEXT, len(names)) + calls + b"\0"
    elf = ElfFile(
        text=b"\x90" * len(names),
        symbols=[Symbol("main", TEXT, len(names))],
        sections={
            ".debug_info": unit(b"\x01" + origins + main),
            ".debug_abbrev": table,
            ".debug_str": text + b"main\0",
        },
    )
    (folder / "program").write_bytes(elf.to_bytes())
    return _annotated(folder, folder / "program", "--asm")
