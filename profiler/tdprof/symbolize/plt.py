"""Names of the procedure linkage table's entries, which have no symbols: each jumps through a slot that a relocation
names. Entries: psABIs of x86-64 (5.2, and ``.plt.sec`` of Intel's CET extension) and AArch64 (ELF for the Arm 64-bit
architecture, "PLT Sequences")."""

import struct
from collections.abc import Iterable, Iterator

import numpy as np

from tdprof.linux.elf import EM_AARCH64, EM_X86_64, Elf, ElfSection
from tdprof.symbolize.symbol_table import read_names

_SHT_RELA = 4
_RELA = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_SYMBOL = np.dtype([("name", "<u4"), ("rest", "V20")])  # Elf64_Sym
_SECTIONS_TO_FILE = 4  # bytes of sections that are read; those of real files do not overlap
_X86_JUMP = b"\xff\x25"  # jmp *disp32(%rip)
_BTI_C = 0xD503245F


def read_plt(elf: Elf) -> dict[int, str]:
    """ELF address of each entry that can be read, and the name of the function that it jumps to."""
    slots = dict(_slots(elf))
    read = {EM_X86_64: _x86_entries, EM_AARCH64: _aarch64_entries}.get(elf.machine)
    if not slots or read is None:
        return {}
    return {
        entry: f"{slots[slot]}@plt"
        for section in _within_file(elf, (each for each in elf.sections if each.name.startswith(".plt")))
        for entry, slot in read(section, bytes(elf.section_data(section)))
        if slot in slots
    }


def _slots(elf: Elf) -> Iterator[tuple[int, str]]:
    """(address, name): where the dynamic linker puts each function's address."""
    for section in _within_file(elf, (each for each in elf.sections if each.type == _SHT_RELA)):
        if section.link >= len(elf.sections):
            continue
        symbols = elf.sections[section.link]
        if symbols.link >= len(elf.sections):
            continue
        entries, raw = elf.section_data(symbols), elf.section_data(section)
        offsets = np.frombuffer(entries, _SYMBOL, len(entries) // _SYMBOL.itemsize)["name"].astype(np.uint64)
        rows = np.frombuffer(raw, _RELA, len(raw) // _RELA.itemsize)
        rows = rows[(rows["symbol"] > 0) & (rows["symbol"] < len(offsets))]
        names = read_names(elf.section_data(elf.sections[symbols.link]), offsets[rows["symbol"]])
        yield from ((slot, name) for slot, name in zip(rows["offset"].tolist(), names, strict=True) if name)


def _within_file(elf: Elf, sections: Iterable[ElfSection]) -> Iterator[ElfSection]:
    """Those sections, up to the first with which they and what they link to become a few times as large as the file."""
    left = _SECTIONS_TO_FILE * elf.content.size
    for section in sections:
        chain = [section]
        while len(chain) < 3 and 0 < chain[-1].link < len(elf.sections):
            chain.append(elf.sections[chain[-1].link])
        left -= sum(each.size for each in chain)
        if left < 0:
            return
        yield section


def _x86_entries(section: ElfSection, data: bytes) -> Iterator[tuple[int, int]]:
    size = 8 if section.name == ".plt.got" and b"\xf3\x0f\x1e\xfa" not in data else 16
    for start in range(0, len(data) - size + 1, size):
        at = data.find(_X86_JUMP, start, start + size)
        if at >= 0 and at + 6 <= len(data):
            (displacement,) = struct.unpack_from("<i", data, at + 2)
            yield section.address + start, section.address + at + 6 + displacement


def _aarch64_entries(section: ElfSection, data: bytes) -> Iterator[tuple[int, int]]:
    words = struct.unpack_from(f"<{len(data) // 4}I", data)
    for i in range(len(words) - 1):
        page, load = words[i], words[i + 1]
        # adrp x16, PAGE; ldr x17, [x16, #OFFSET]
        if page & 0x9F00001F == 0x90000010 and load & 0xFFC003FF == 0xF9400211:
            distance = (page >> 5 & 0x7FFFF) << 2 | page >> 29 & 3
            distance -= (distance & 1 << 20) << 1  # 21 bits, signed
            address = section.address + 4 * i
            start = address - 4 if i and words[i - 1] == _BTI_C else address
            yield start, (address & ~0xFFF) + (distance << 12) + (load >> 10 & 0xFFF) * 8
