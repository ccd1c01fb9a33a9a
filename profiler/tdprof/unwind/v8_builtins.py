"""Where V8's builtins lie in a file that has V8 in it: Node and its kin.

They are code without call-frame information, and in stripped files without symbols. V8 finds each by a table in the
file's constants: rows of 32-bit words, of which the first two are where a builtin's code begins and how long it is.
``EmbeddedData`` in src/snapshot/embedded/embedded-data.h; how many words a row has is up to the version. Behind each
lies at least one byte of padding, so that only V8's own code fits a table.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tdprof.linux.elf import EM_AARCH64, EM_X86_64, SHT_NOBITS, Elf
from tdprof.values import dataclass

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

_PADDING = {EM_X86_64: b"\xcc", EM_AARCH64: b"\xcc\xcc\xcc\xcc"}  # int3, of which no code of aarch64 is made
# .eh_frame_hdr as linkers write it: version 1, and a table of signed words that count from the section on
_SORTED_WORDS = b"\x01\x1b\x03\x3b"
_ALIGNMENTS = (64, 32)  # kCodeAlignment
_ROW_WORDS = (3, 4, 8, 5, 6, 7)  # those of known versions first: 12 and later, 10, 11
_LEAST_CODE = 256 << 10  # bytes of all builtins; versions have 1 to 3 MB
_LEAST_BUILTINS = 500
_MOST_BUILTINS = 10_000
_MOST_CODE = 16 << 20
_LARGEST_BUILTIN = 1 << 16
_COMPARED = 8  # rows, before the whole table is looked at
# What a file that is made to keep us busy is given: tables looked at, of each form; places left after some builtins.
_MOST_TABLES = 4
_MOST_PLACES, _PLACES_BY = 64, 16
_MOST_GAPS = 4  # the largest
_LOOKS = 2  # places looked at for each byte of those, for all tables together
_PADDING_BYTE_LOOKS = 256  # that many places take as long as beginning with a byte of padding
_ADDRESSES = 1 << 62  # no program has higher ones, and sums of two stay in 64 bits


@dataclass(frozen=True, slots=True)
class Builtins:
    """ELF addresses of the code of all, and of where each begins, ascending, with its bytes."""

    start: int
    end: int
    starts: I64
    sizes: I64


def find_builtins(elf: Elf) -> Builtins | None:
    """V8's builtins; None if the file has none that are known for sure. Its constants are all read."""
    constants = elf.section(".rodata")
    text = elf.section(".text")
    if elf.machine not in _PADDING or not constants or not text:
        return None
    gaps = [(first, elf.content.read(first - text.address + text.offset, last - first)) for first, last in _gaps(elf)]
    if not gaps:
        return None
    data = elf.section_data(constants)
    left = _LOOKS * sum(len(code) for _, code in gaps)
    for starts, sizes, alignment in _tables(np.frombuffer(data[: len(data) & ~3], "<u4")):
        for first, code in gaps:
            at, looked = _place_of(code, first, starts, sizes, alignment, _PADDING[elf.machine])
            if at is not None:
                return Builtins(at, at + int(starts[-1] + sizes[-1]), starts + at, sizes)
            left -= looked
            if left < 0:
                return None
    return None


def _gaps(elf: Elf) -> list[tuple[int, int]]:
    """The largest stretches of the text that may be V8's, the largest first."""
    text = elf.section(".text")
    if not text or text.type == SHT_NOBITS or text.address + text.size >= _ADDRESSES:
        return []
    gaps = _code_without_entries(elf, text.address, text.address + text.size)
    return sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_MOST_GAPS]


def _code_without_entries(elf: Elf, start: int, end: int) -> list[tuple[int, int]]:
    """Large stretches of the text in which no entry of ``.eh_frame`` begins, by its header's table (LSB 10.6.2)."""
    section = elf.section(".eh_frame_hdr")
    if section is None or section.address + section.size >= _ADDRESSES:
        return []
    data = elf.section_data(section)
    if len(data) < 12 or bytes(data[:4]) != _SORTED_WORDS:
        return []
    words = np.frombuffer(data[12 : 12 + (len(data) - 12 & ~7)], "<i4")[::2].astype(np.int64) + section.address
    places = np.sort(np.concatenate([[start], words[(words > start) & (words < end)], [end]]))
    sizes = np.diff(places)
    large = np.flatnonzero((sizes >= _LEAST_CODE) & (sizes <= 2 * _MOST_CODE))
    return [(int(places[i]), int(places[i + 1])) for i in large]


def _tables(words: U32) -> Iterator[tuple[I64, I64, int]]:
    """What may be such a table: where each builtin begins from the first on, its bytes, and all builtins' alignment."""
    firsts = np.flatnonzero((words[:-2] == 0) & (words[1:-1] - 1 < _LARGEST_BUILTIN) & (words[2:] == 0))
    for row in _ROW_WORDS:
        for alignment in _ALIGNMENTS:
            at = firsts[firsts + row * _LEAST_BUILTINS < len(words)]
            for number in range(_COMPARED):
                here, there = at + row * number, at + row * (number + 1)
                at = at[words[there] == _next_start(words[here], words[here + 1], alignment)]
            for first in at[:_MOST_TABLES].tolist():
                starts, sizes = _table_at(words, first, row, alignment)
                if len(starts) >= _LEAST_BUILTINS and _LEAST_CODE <= starts[-1] < _MOST_CODE:
                    yield starts, sizes, alignment


def _next_start(starts: U32, sizes: U32, alignment: int) -> U32:
    """Behind a byte of padding at least."""
    return (starts + sizes + np.uint32(alignment)) & np.uint32(0x100000000 - alignment)


def _table_at(words: U32, first: int, row: int, alignment: int) -> tuple[I64, I64]:
    rows = words[first : first + row * _MOST_BUILTINS]
    rows = rows[: len(rows) // row * row].reshape(-1, row)
    starts, sizes = rows[:, 0], rows[:, 1]
    # Sums wrap, so that a size that none has could lead back to a beginning before.
    is_other = sizes >= _MOST_CODE
    is_other[1:] |= starts[1:] != _next_start(starts[:-1], sizes[:-1], alignment)
    others = np.flatnonzero(is_other)
    count = int(others[0]) if len(others) else len(rows)
    return starts[:count].astype(np.int64), sizes[:count].astype(np.int64)


def _place_of(
    code: memoryview, address: int, starts: I64, sizes: I64, alignment: int, padding: bytes
) -> tuple[int | None, int]:
    """Where in this code each builtin has its padding behind it: the address of the first, None where none is; and how
    many places were looked at."""
    data = np.frombuffer(code, np.uint8)
    behind = starts + (sizes + len(padding) - 1) // len(padding) * len(padding)
    at = np.arange(-address % alignment, len(data) - int(behind[-1]) - len(padding) + 1, alignment)
    looked = 0
    for number, end in enumerate(behind.tolist()):
        if number == _PLACES_BY and len(at) > _MOST_PLACES:
            return None, looked
        for i, byte in enumerate(padding):
            looked += len(at) + _PADDING_BYTE_LOOKS
            at = at[data[at + end + i] == byte]
        if not len(at):
            return None, looked
    return address + int(at[0]), looked
