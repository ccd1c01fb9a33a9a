"""Where a file has some symbols, without an object for each of all that it has."""

import struct
from collections.abc import Collection, Iterator

from tdprof.linux.elf import SHT_DYNSYM, SHT_SYMTAB, Elf

_SYMBOL = struct.Struct("<IBBHQQ")
_MOST_SYMBOL_BYTES = 32 << 20  # of names, and of symbols; libpython with all of its own has 2 MB


def find_symbols(elf: Elf, wanted: Collection[bytes]) -> dict[bytes, set[tuple[int, int]]]:
    """(ELF address, size in bytes) of the symbols of these names that the file defines, by name; others are left out.

    Raises:
        OSError: the file cannot be read.
    """
    found: dict[bytes, set[tuple[int, int]]] = {}
    for section in elf.sections:
        if section.type in (SHT_DYNSYM, SHT_SYMTAB) and section.link < len(elf.sections):
            names = elf.sections[section.link]
            if max(section.size, names.size) <= _MOST_SYMBOL_BYTES:
                _collect(bytes(elf.section_data(section)), bytes(elf.section_data(names)), wanted, found)
    return found


_MOST_PLACES = 16  # of a name in a table of names: linkers keep one


def _collect(table: bytes, names: bytes, wanted: Collection[bytes], found: dict[bytes, set[tuple[int, int]]]) -> None:
    for name in wanted:
        at, left = names.find(b"\0" + name + b"\0"), _MOST_PLACES
        while at >= 0 and left:
            left -= 1
            for position in _places(table, at + 1):
                _, _, _, section, address, size = _SYMBOL.unpack_from(table, position)
                if section:
                    found.setdefault(name, set()).add((address, size))
            at = names.find(b"\0" + name + b"\0", at + 1)


def _places(table: bytes, name: int) -> Iterator[int]:
    """Where the symbols of a name begin."""
    wanted = name.to_bytes(4, "little")
    at = table.find(wanted)
    while at >= 0:
        if at % _SYMBOL.size == 0 and at + _SYMBOL.size <= len(table):
            yield at
        at = table.find(wanted, at + 1)
