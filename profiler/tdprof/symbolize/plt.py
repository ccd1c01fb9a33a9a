"""Names of the procedure linkage table's entries, which have no symbols: each jumps through a slot that a relocation
names. Entries: psABIs of x86-64 (5.2, and ``.plt.sec`` of Intel's CET extension) and AArch64 (ELF for the Arm 64-bit
architecture, "PLT Sequences")."""

import struct
from collections.abc import Iterator

import numpy as np

from tdprof.linux.elf import Elf, ElfSection
from tdprof.symbolize.symbol_table import read_name

_EM_X86_64, _EM_AARCH64 = 62, 183
_SHT_RELA = 4
_RELA = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_SYMBOL_BYTES = 24  # Elf64_Sym; the name's offset comes first
_X86_JUMP = b"\xff\x25"  # jmp *disp32(%rip)
_BTI_C = 0xD503245F


def read_plt(elf: Elf) -> dict[int, str]:
    """ELF address of each entry that can be read, and the name of the function that it jumps to."""
    slots = dict(_slots(elf))
    read = {_EM_X86_64: _x86_entries, _EM_AARCH64: _aarch64_entries}.get(elf.machine)
    if not slots or read is None:
        return {}
    return {
        entry: f"{slots[slot]}@plt"
        for section in elf.sections
        if section.name.startswith(".plt")
        for entry, slot in read(section, bytes(elf.section_data(section)))
        if slot in slots
    }


def _slots(elf: Elf) -> Iterator[tuple[int, str]]:
    """(address, name): where the dynamic linker puts each function's address."""
    for section in elf.sections:
        if section.type != _SHT_RELA or section.link >= len(elf.sections):
            continue
        symbols = elf.sections[section.link]
        if symbols.link >= len(elf.sections):
            continue
        entries, names = elf.section_data(symbols), elf.section_data(elf.sections[symbols.link])
        raw = elf.section_data(section)
        rows = np.frombuffer(raw, _RELA, len(raw) // _RELA.itemsize)
        for row in rows[(rows["symbol"] > 0) & (rows["symbol"] < len(entries) // _SYMBOL_BYTES)]:
            (offset,) = struct.unpack_from("<I", entries, int(row["symbol"]) * _SYMBOL_BYTES)
            if name := read_name(names, offset):
                yield int(row["offset"]), name


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
