"""The parts of a function that compilers put elsewhere: what seldom runs, by their guess, stands among its like.

Such a part has an entry of call-frame information of its own, and a name (``f.cold``) that stripping takes. Nothing but
the function itself jumps into the middle of it. Format: Linux Standard Base, "Exception Frames" (``.eh_frame_hdr``).
"""

import bisect
import re
import struct
from collections.abc import Iterator

from tdprof.linux.elf import EM_AARCH64, EM_X86_64, PF_X, PT_LOAD, Elf

_HEADER = struct.Struct("<BBBBiI")  # version, three encodings, .eh_frame, number of rows
_ENCODINGS = (0x1B, 0x03, 0x3B)  # what all linkers write: rows of two signed distances from the header's address
_ENTRY = struct.Struct("<IIiI")  # length, distance back to what is shared, begin (from the field on), size
_MOST_ROWS = 1 << 20
_MOST_CODE_BYTES = 1 << 20
_FEWEST_JUMPS = 2
_X86_JUMP = re.compile(rb"\x0f[\x80-\x8f]|\xe9", re.DOTALL)  # jcc, jmp with a distance of 32 bits
# Mask and value of the instruction, and bits and place of the distance in it: b; b.cond; cbz, cbnz; tbz, tbnz.
_AARCH64_JUMPS = (
    (0xFC000000, 0x14000000, 26, 0),
    (0xFF000000, 0x54000000, 19, 5),
    (0x7E000000, 0x34000000, 19, 5),
    (0x7E000000, 0x36000000, 14, 5),
)


def other_parts(elf: Elf, start: int, end: int) -> list[tuple[int, int]]:
    """Start and end, as ELF addresses, of the parts that the function from ``start`` to ``end`` jumps into."""
    header, entries = elf.section(".eh_frame_hdr"), elf.section(".eh_frame")
    code = _code(elf, start, min(end, start + _MOST_CODE_BYTES))
    if header is None or entries is None or not code:
        return []
    table, described = bytes(elf.section_data(header)), elf.section_data(entries)
    if len(table) < _HEADER.size or tuple(table[1:4]) != _ENCODINGS:
        return []
    count = min(_HEADER.unpack_from(table)[5], (len(table) - _HEADER.size) // 8, _MOST_ROWS)
    words = struct.unpack_from(f"<{2 * count}i", table, _HEADER.size)
    begins = words[::2]
    jumps: dict[int, list[int]] = {}
    for target in _targets(code, start, elf.machine):
        row = bisect.bisect_right(begins, target - header.address) - 1
        if not start <= target < end and row >= 0:
            jumps.setdefault(row, []).append(target)
    parts = []
    for row, targets in jumps.items():
        begin, place = begins[row] + header.address, words[2 * row + 1] + header.address - entries.address
        if not 0 <= place <= len(described) - _ENTRY.size:
            continue
        _, _, distance, size = _ENTRY.unpack_from(described, place)
        # An entry of another form has something else in that field.
        is_read = entries.address + place + 8 + distance == begin
        if is_read and sum(begin < target < begin + size for target in targets) >= _FEWEST_JUMPS:
            parts.append((begin, begin + size))
    return sorted(parts)


def _code(elf: Elf, start: int, end: int) -> bytes:
    for segment in elf.segments:
        if segment.type == PT_LOAD and segment.flags & PF_X and 0 <= start - segment.address < segment.file_size:
            return bytes(elf.content.read(segment.offset + start - segment.address, max(end - start, 0)))
    return b""


def _targets(code: bytes, start: int, machine: int) -> Iterator[int]:
    """Where direct jumps lead; on x86-64 also what only looks like one, which leads anywhere."""
    if machine == EM_X86_64:
        for match in _X86_JUMP.finditer(code):
            if match.end() + 4 <= len(code):
                yield (
                    start + match.end() + 4 + int.from_bytes(code[match.end() : match.end() + 4], "little", signed=True)
                )
    elif machine == EM_AARCH64:
        for number, (word,) in enumerate(struct.iter_unpack("<I", code[: len(code) & ~3])):
            bits, low = next(((b, at) for mask, value, b, at in _AARCH64_JUMPS if word & mask == value), (0, 0))
            if bits:
                distance = word >> low & (1 << bits) - 1
                yield start + 4 * (number + distance - (distance >> bits - 1 << bits))
