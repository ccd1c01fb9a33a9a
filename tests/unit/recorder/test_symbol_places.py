"""Where a file has some symbols, also one that is made to keep its reader busy."""

import struct
import tracemalloc
from dataclasses import replace

import pytest

from tdprof.linux.elf import EM_X86_64, SHT_SYMTAB, Elf, ElfSection
from tdprof.linux.file_bytes import MemoryBytes
from tdprof.recorder.symbol_places import find_symbols

SHT_STRTAB = 3
NAMES = b"\0other\0wanted\0"
ROWS = struct.pack("<IBBHQQ", 7, 0, 0, 1, 0x1000, 8)


class CountedBytes(MemoryBytes):
    """Knows how much of it was read."""

    __slots__ = ("read_bytes",)

    def __init__(self, data: bytes) -> None:
        super().__init__(memoryview(data))
        self.read_bytes = 0

    def read(self, offset: int, size: int) -> memoryview:
        self.read_bytes += size
        return super().read(offset, size)


def file_of(names: bytes, table: bytes, tables: int = 1) -> tuple[Elf, CountedBytes]:
    content = CountedBytes(names + table)
    strings = ElfSection(".strtab", SHT_STRTAB, 0, 0, 0, len(names), 0)
    symbols = ElfSection(".symtab", SHT_SYMTAB, 0, 0, len(names), len(table), 0)
    return Elf(content, 3, EM_X86_64, (), (strings, *[symbols] * tables), ""), content


def test_symbols_by_name() -> None:
    undefined = struct.pack("<IBBHQQ", 1, 0, 0, 0, 0x2000, 8)
    elf, _ = file_of(NAMES, undefined + ROWS + b"cut")
    assert find_symbols(elf, [b"wanted", b"other", b"want"]) == {b"wanted": {(0x1000, 8)}}


def test_a_table_without_names_has_none() -> None:
    elf, _ = file_of(NAMES, ROWS)
    elf = replace(elf, sections=(replace(elf.sections[1], link=2),))
    assert find_symbols(elf, [b"wanted"]) == {}


@pytest.mark.parametrize("places", [1, 5000])
def test_a_file_is_read_once_however_often_it_defines_a_name(places: int) -> None:
    """A thousand tables of the same bytes, of which each row defines what is wanted at another address."""
    names = NAMES + b"wanted\0" * places
    rows = [struct.pack("<IBBHQQ", 7 + 7 * (row % places), 0, 0, 1, row, 8) for row in range(20_000)]
    elf, content = file_of(names, b"".join(rows), tables=1000)
    assert len(find_symbols(elf, [b"wanted"])[b"wanted"]) <= 16
    assert content.read_bytes <= len(names) + 24 * len(rows)


def test_a_table_is_not_copied() -> None:
    """A JVM's is megabytes, which a recorder that runs on and on would take for each that starts."""
    elf, _ = file_of(NAMES, 100_000 * struct.pack("<IBBHQQ", 1, 0, 0, 1, 0x2000, 8) + ROWS)
    tracemalloc.start()
    try:
        assert find_symbols(elf, [b"wanted"]) == {b"wanted": {(0x1000, 8)}}
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < elf.sections[1].size / 2
