"""Reads ELF core files for tests of unwinding. Layouts: linux/elfcore.h, and NT_FILE in fs/binfmt_elf.c."""

import bisect
import struct
from dataclasses import dataclass
from pathlib import Path

EM_X86_64 = 62
NT_PRSTATUS, NT_AUXV, NT_FILE = 1, 6, 0x46494C45
AT_SYSINFO_EHDR = 33
# struct user_regs_struct to DWARF numbers 0 to 15 and rip: rax rdx rcx rbx rsi rdi rbp rsp r8 … r15 rip
X86_ORDER = (10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16)
REGISTERS_AT = 112  # in struct elf_prstatus


@dataclass
class CoreFile:
    """A core file taken apart.

    Attributes:
        machine: ``e_machine``.
        threads: (tid, registers as the walker takes them) of each.
        files: (start, end, file offset, path) of mapped files.
        regions: (start, end, flags, offset in the core, bytes in the core) by address.
        vdso: address, or 0.
    """

    data: memoryview
    machine: int
    threads: list[tuple[int, list[int]]]
    files: list[tuple[int, int, int, str]]
    regions: list[tuple[int, int, int, int, int]]
    vdso: int

    def read(self, start: int, size: int) -> bytes:
        """Memory from this address on: up to the end of what the core holds without a gap."""
        out = bytearray()
        while len(out) < size:
            at = start + len(out)
            i = bisect.bisect_right(self.regions, at, key=lambda region: region[0]) - 1
            if i < 0 or at >= self.regions[i][0] + self.regions[i][4]:
                break
            first, _, _, offset, length = self.regions[i]
            out += self.data[offset + at - first : offset + min(length, at - first + size - len(out))]
        return bytes(out)


def read_core(path: Path) -> CoreFile:
    data = memoryview(path.read_bytes())
    machine = struct.unpack_from("<H", data, 18)[0]
    phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    core = CoreFile(data, machine, [], [], [], 0)
    for i in range(phnum):
        kind, flags, offset, address, _, file_size, size, _ = struct.unpack_from("<IIQQQQQQ", data, phoff + 56 * i)
        if kind == 1:
            core.regions.append((address, address + size, flags, offset, file_size))
        elif kind == 4:
            _read_notes(core, data[offset : offset + file_size])
    core.regions.sort()
    return core


def _read_notes(core: CoreFile, notes: memoryview) -> None:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        body = notes[at + 12 + (name_size + 3 & ~3) :][:size]
        at += 12 + (name_size + 3 & ~3) + (size + 3 & ~3)
        if kind == NT_PRSTATUS:
            (tid,) = struct.unpack_from("<I", body, 32)
            core.threads.append((tid, _registers(core.machine, body)))
        elif kind == NT_AUXV:
            for key, value in struct.iter_unpack("<QQ", body[: len(body) // 16 * 16]):
                if key == AT_SYSINFO_EHDR:
                    core.vdso = value
        elif kind == NT_FILE:
            count, page = struct.unpack_from("<QQ", body)
            names = bytes(body[16 + 24 * count :]).split(b"\0")
            for i in range(count):
                start, end, offset = struct.unpack_from("<QQQ", body, 16 + 24 * i)
                core.files.append((start, end, offset * page, names[i].decode()))


def _registers(machine: int, body: memoryview) -> list[int]:
    if machine == EM_X86_64:
        words = struct.unpack_from("<27Q", body, REGISTERS_AT)
        return [words[i] for i in X86_ORDER]
    words = struct.unpack_from("<34Q", body, REGISTERS_AT)
    return [words[29], words[30], words[31], words[32]]
