"""The symbols of one ELF file: file offset to ELF address, then to function."""

import numpy as np

from tdprof.elf import PF_X, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, Elf
from tdprof.model import U64, Locations, Unknown
from tdprof.symbolize.locations import table_locations
from tdprof.symbolize.symbol_table import SymbolTable, read_elf_symbols

NOWHERE = np.uint64(2**64 - 1)  # the ELF address of a file offset that no segment loads; no symbol covers it


def elf_addresses(elf: Elf, file_offsets: U64) -> U64:
    """uint64[n]: the ELF address that each file offset is loaded to, or ``NOWHERE``.

    A byte may be loaded twice, since neighbouring segments share their border page: code wins.
    """
    addresses = np.full(len(file_offsets), NOWHERE, np.uint64)
    loads = [segment for segment in elf.segments if segment.type == PT_LOAD and segment.address < 2**63]
    for segment in sorted(loads, key=lambda segment: segment.flags & PF_X):
        inside = (file_offsets >= segment.offset) & (file_offsets - np.uint64(segment.offset) < segment.file_size)
        addresses[inside] = file_offsets[inside] - np.uint64(segment.offset) + np.uint64(segment.address)
    return addresses


class ElfSymbols:
    """What one file and its debug data say of its code."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._table, self._is_complete = _choose_table(elf)

    def locate(self, file_offsets: U64) -> Locations:
        """See ``Symbolizer.locate``."""
        if self._elf.damage and not len(self._table):
            missing = Unknown.DAMAGED
        else:
            missing = Unknown.NO_SYMBOL if self._is_complete else Unknown.STRIPPED
        return table_locations(self._table, elf_addresses(self._elf, file_offsets), missing)


def _choose_table(elf: Elf) -> tuple[SymbolTable, bool]:
    """The best table, and whether it names all functions (``.dynsym`` has only those seen from outside)."""
    table = read_elf_symbols(elf, SHT_SYMTAB)
    if len(table):
        return table, True
    return read_elf_symbols(elf, SHT_DYNSYM), False
