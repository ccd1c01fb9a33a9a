"""Go programs whose table of functions once could cost a product of two of its sizes; see `costly_files`."""

import struct
from pathlib import Path

from builders.costly_files import builder, read_elf
from builders.go_table import GoCode, GoFunction, go_program

_ADDRESSES = 0x1000  # of the text that `read_elf` asks for
_VERSION = "1.20"
_HEADER_WORDS = 8  # number of functions, of files, the text; then where names, units, files, values and functions are
_NAME_IN_BODY, _LINES_IN_BODY, _LINES_BYTES = 4, 16, 12


def _table(program: bytearray) -> int:
    """Where the table begins in the file."""
    return program.index(struct.pack("<IxxBB", 0xFFFFFFF1, 1, 8))


def _bodies(program: bytearray) -> tuple[int, list[int]]:
    """Where the functions' part begins in the file, and in it each function's description."""
    table = _table(program)
    words = struct.unpack_from(f"<{_HEADER_WORDS}Q", program, table + 8)
    at = table + words[7]
    return at, [struct.unpack_from("<I", program, at + 8 * i + 4)[0] for i in range(words[0])]


def _functions(count: int, name: str) -> list[GoFunction]:
    size = _ADDRESSES // count
    return [GoFunction(name, i * size, [GoCode(size, 0, 1)]) for i in range(count)]


@builder
def go_functions_named_by_ends_of_one_text(folder: Path, size: int) -> list[str]:
    """Functions whose names begin one behind the other in a text without a NUL."""
    count = min(size // 256, 2048)
    program = bytearray(go_program(_functions(count, "y" * (size // 2)), ["a.go"], _VERSION))
    at, bodies = _bodies(program)
    for i, body in enumerate(bodies):
        struct.pack_into("<i", program, at + body + _NAME_IN_BODY, 1 + i)
    return read_elf(folder / "program", bytes(program))


@builder
def go_files_named_by_ends_of_one_text(folder: Path, size: int) -> list[str]:
    """Files likewise."""
    count = min(size // 256, 2048)
    files = ["z" * (size // 2), *["a"] * (count - 1)]
    functions = [GoFunction("main.f", 0, [GoCode(2, i, 1) for i in range(count)])]
    program = bytearray(go_program(functions, files, _VERSION))
    table = _table(program)
    units = struct.unpack_from(f"<{_HEADER_WORDS}Q", program, table + 8)[4]
    for i in range(count):
        struct.pack_into("<I", program, table + units + 4 * i, i)
    return read_elf(folder / "program", bytes(program))


@builder
def go_functions_that_share_lines(folder: Path, size: int) -> list[str]:
    """Functions whose lines are all in one long table of very small steps."""
    count = min(size // 256, 2048)
    functions = _functions(count, "main.f")
    functions[0] = GoFunction("main.f", 0, [GoCode(1, 0, 1 + i % 2) for i in range(size // 4)])
    program = bytearray(go_program(functions, ["a.go"], _VERSION))
    at, bodies = _bodies(program)
    first, *others = [at + body + _LINES_IN_BODY for body in bodies]
    for other in others:
        program[other : other + _LINES_BYTES] = program[first : first + _LINES_BYTES]
    return read_elf(folder / "program", bytes(program))


@builder
def go_calls_within_calls(folder: Path, size: int) -> list[str]:
    """Calls that are inlined each into the one before, and a place of each."""
    count = min(size // 64, _ADDRESSES - 1)
    calls = [("main.g", number) for number in range(count)]
    code = [GoCode(1, 0, 1 + number % 2, number) for number in range(-1, count)]
    return read_elf(folder / "program", go_program([GoFunction("main.f", 0, code, calls)], ["a.go"], _VERSION))


@builder
def go_functions_of_many_lines(folder: Path, size: int) -> list[str]:
    """A place of its own for each two bytes of the table."""
    code = [GoCode(1, 0, 1 + i % 2) for i in range(size // 2)]
    return read_elf(folder / "program", go_program([GoFunction("main.f", 0, code)], ["a.go"], _VERSION))
