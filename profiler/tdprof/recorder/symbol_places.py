"""Where a file has some symbols, without an object for each of all that it has."""

import itertools
import struct
from array import array
from collections.abc import Collection, Iterator

from tdprof.linux.elf import SHT_DYNSYM, SHT_SYMTAB, Elf

_SYMBOL = struct.Struct("<IBBHQQ")
_WORDS = _SYMBOL.size // 4  # of which the first is where the name begins
_MOST_SYMBOL_BYTES = 32 << 20  # of names, and of symbols; libpython with all of its own has 2 MB
# What a file that is made to keep us busy is given, of each name: linkers keep it once, and define it once or twice.
_MOST_PLACES, _MOST_DEFINITIONS = 2, 2


def find_symbols(elf: Elf, wanted: Collection[bytes]) -> dict[bytes, set[tuple[int, int]]]:
    """(ELF address, size in bytes) of the symbols of these names that the file defines, by name; others are left out.

    Raises:
        OSError: the file cannot be read.
    """
    found: dict[bytes, set[tuple[int, int]]] = {}
    for kind in (SHT_DYNSYM, SHT_SYMTAB):  # a file has one of each at most (System V ABI, "Sections")
        section = next((section for section in elf.sections if section.type == kind), None)
        if section and section.link < len(elf.sections):
            names = elf.sections[section.link]
            if max(section.size, names.size) <= _MOST_SYMBOL_BYTES:
                _collect(elf.section_data(section), bytes(elf.section_data(names)), wanted, found)
    return found


def _collect(
    table: memoryview, names: bytes, wanted: Collection[bytes], found: dict[bytes, set[tuple[int, int]]]
) -> None:
    words = table[: len(table) // _SYMBOL.size * _SYMBOL.size].cast("I")
    starts = array("I", words[::_WORDS].tobytes())  # a table is megabytes: it is not copied
    for name in wanted:
        at = names.find(b"\0" + name + b"\0")
        for _ in range(_MOST_PLACES):
            if at < 0:
                break
            for row in itertools.islice(_rows(starts, at + 1), _MOST_DEFINITIONS):
                _, _, _, section, address, size = _SYMBOL.unpack_from(table, row * _SYMBOL.size)
                if section:
                    found.setdefault(name, set()).add((address, size))
            at = names.find(b"\0" + name + b"\0", at + 1)


def _rows(starts: "array[int]", name: int) -> Iterator[int]:
    """The symbols of a name."""
    row = -1
    while True:
        try:
            row = starts.index(name, row + 1)
        except ValueError:
            return
        yield row
