"""Where functions begin and end by a file's call-frame information, which stripped files keep.

``.eh_frame_hdr`` and ``.eh_frame``: Linux Standard Base, "Exception Frames"; encodings: DWARF extensions there.
"""

import struct

import numpy as np

from tdprof.linux.elf import Elf, ElfSection
from tdprof.model.addresses import NO_BEGIN
from tdprof.model.arrays import I64, U8, U64
from tdprof.values import dataclass

# Of a pointer's encoding: its format in the lower half, what it is relative to in the upper.
_UDATA4, _UDATA8, _SDATA4, _SDATA8, _ABSPTR = 0x03, 0x04, 0x0B, 0x0C, 0x00
_DATAREL_SDATA4 = 0x3B  # of the table: what all linkers write
_FORMAT = 0x0F
_WIDTH = {_ABSPTR: 8, _UDATA4: 4, _UDATA8: 8, _SDATA4: 4, _SDATA8: 8}
_HEADER = struct.Struct("<BBBBiI")  # version, three encodings, .eh_frame (relative to the field), number of rows
_MOST_CIES = 4096  # linkers merge equal ones: real files have a handful
_EXTENDED_LENGTH = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class CodeExtents:
    """Functions as ELF addresses, sorted: ``start[i]`` up to ``end[i]``, which may reach into the next."""

    start: U64
    end: U64

    def around(self, addresses: U64) -> U64:
        """uint64[n]: where the function around each address begins; all ones where none is known."""
        row = np.searchsorted(self.start, addresses, "right").astype(np.int64) - 1
        is_inside = (row >= 0) & (np.append(self.end, np.uint64(0))[row] > addresses)
        return np.where(is_inside, np.append(self.start, np.uint64(0))[row], NO_BEGIN)

    def end_of(self, addresses: U64) -> U64:
        """uint64[n]: where the function around each address ends, else where the next begins; all ones: neither."""
        following = np.searchsorted(self.start, addresses, "right")
        next_start = np.append(self.start, NO_BEGIN)[following]
        begin = self.around(addresses)
        return np.where(begin != NO_BEGIN, np.append(self.end, np.uint64(0))[following - 1], next_start)


NO_EXTENTS = CodeExtents(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def read_extents(elf: Elf) -> CodeExtents:
    """The extents of a file's functions; none where it has no such information, or what is there does not hold."""
    header, frames = elf.section(".eh_frame_hdr"), elf.section(".eh_frame")
    if header is None or frames is None:
        return NO_EXTENTS
    table = np.frombuffer(elf.section_data(header), np.uint8)
    if len(table) < _HEADER.size:
        return NO_EXTENTS
    version, _, count_encoding, encoding, _, count = _HEADER.unpack(table[: _HEADER.size].tobytes())
    rows = table[_HEADER.size :]
    if version != 1 or count_encoding != _UDATA4 or encoding != _DATAREL_SDATA4:
        return NO_EXTENTS
    count = min(count, len(rows) // 8)
    pairs = rows[: count * 8].view("<i4").reshape(-1, 2).astype(np.int64) + header.address
    return _extents(np.frombuffer(elf.section_data(frames), np.uint8), frames, pairs[:, 0], pairs[:, 1])


def _extents(data: U8, frames: ElfSection, start: I64, place: I64) -> CodeExtents:
    """Of functions that begin at ``start``, described by the entries at ``place``."""
    at = place - frames.address
    # An entry: length, distance back to what is common to several, first address, size.
    fits = (at >= 0) & (at <= len(data) - 24)
    start, at = start[fits], at[fits]
    fits = _words(data, at, 4) != _EXTENDED_LENGTH
    start, at = start[fits], at[fits]
    common = at + 4 - _words(data, at + 4, 4).astype(np.int64)
    distinct, which = np.unique(common, return_inverse=True)
    widths = np.array([_width(data, number) for number in distinct[:_MOST_CIES].tolist()], np.int64)
    width = np.append(widths, np.zeros(max(len(distinct) - _MOST_CIES, 0), np.int64))[which]
    size = np.zeros(len(at), np.uint64)
    for each in (4, 8):
        rows = width == each
        size[rows] = _words(data, at[rows] + 8 + each, each)
    begin = start.astype(np.uint64)
    end = begin + size
    kept = (start > 0) & (end > begin)
    order = np.argsort(begin[kept], kind="stable")
    return CodeExtents(begin[kept][order], end[kept][order])


def _words(data: U8, at: I64, width: int) -> U64:
    """Little-endian numbers of ``width`` bytes at places that are within."""
    total = np.zeros(len(at), np.uint64)
    for byte in range(width):
        total |= data[at + byte].astype(np.uint64) << np.uint64(8 * byte)
    return total


def _width(data: U8, at: int) -> int:
    """How wide addresses are in the entries that share the CIE at a place; 0 where it cannot be told."""
    if not 0 <= at <= len(data) - 16:
        return 0
    text = bytes(data[at + 8 : at + 64])  # behind length and mark: version, augmentation, factors, register
    augmentation, end, rest = text[1:].partition(b"\0")
    if not end:
        return 0
    if not augmentation.startswith(b"z"):
        return _WIDTH[_ABSPTR]
    for _ in range(4):  # factors of code and data, return register, and the length of what follows: LEB128
        while rest and rest[0] & 0x80:
            rest = rest[1:]
        rest = rest[1:]
    for letter in augmentation[1:].decode("latin-1"):
        if not rest:
            return 0
        if letter == "R":
            return _WIDTH.get(rest[0] & _FORMAT, 0)
        if letter == "L":
            rest = rest[1:]
        elif letter == "P":
            rest = rest[1 + _WIDTH.get(rest[0] & _FORMAT, len(rest)) :]
        elif letter not in "SB":
            return 0
    return 0
