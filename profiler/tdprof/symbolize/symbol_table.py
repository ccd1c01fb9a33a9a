"""A table of named address ranges, looked up by the million: from ELF symbols, the kernel's, or a perf map."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.linux.elf import SHF_EXECINSTR, SHT_DYNSYM, SHT_SYMTAB, Elf, ElfSection
from tdprof.model.addresses import NO_BEGIN
from tdprof.model.arrays import I32, I64, U8, U64, distinct
from tdprof.symbolize.code_extents import NO_EXTENTS, CodeExtents
from tdprof.symbolize.label_reach import label_ends
from tdprof.values import dataclass

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_Records = NDArray[Any]  # of _SYMBOL
_STT_NOTYPE, _STT_FUNC, _STT_FILE, _STT_GNU_IFUNC = 0, 2, 4, 10
_STB_LOCAL = 0
_SHN_UNDEF, _SHN_ABS = 0, 0xFFF1
LONGEST_NAME_BYTES = 1 << 16
_ORDINARY_NAME_BYTES = 256
_NAMES_TO_TEXT, _SPARE_NAME_BYTES = 8, 8 << 20
_LAST_ADDRESS = 2**64 - 1
_FEW_NAMES = 500
# What a label may reach whose end nothing tells, where all symbols are known and where only some are: behind that may
# be other code, whose own labels the assembler kept to itself.
_LABELLED_BYTES, _EXPORTED_BYTES = 4096, 256


@dataclass(frozen=True, slots=True)
class SymbolTable:
    """Named ranges, sorted by start.

    Attributes:
        start, end: uint64[n], the half-open range of each symbol.
        name_offset: uint64[n], where each name stands in ``name_bytes``.
        name_bytes: NUL-terminated names.
        file: int32[n], row in ``file_offset`` of the source file that the linker noted for it, or -1.
        file_offset: uint64[f], where file names (without a path) stand in ``name_bytes``.
        latest_end: uint64[n], the greatest ``end`` of rows 0 to i: tells when a symbol further up may enclose.
    """

    start: U64
    end: U64
    name_offset: U64
    name_bytes: bytes | memoryview
    file: I32
    file_offset: U64
    latest_end: U64

    def __len__(self) -> int:
        return len(self.start)

    def lookup(self, addresses: U64) -> I64:
        """int64[n]: the row of the innermost symbol that covers each address, or -1."""
        if not len(self):
            return np.full(len(addresses), -1, np.int64)
        row = np.searchsorted(self.start, addresses, "right").astype(np.int64) - 1
        # A miss on the nearest symbol may still lie inside a longer one that starts further up.
        missed = np.flatnonzero(row >= 0)
        missed = missed[self.end[row[missed]] <= addresses[missed]]
        enclosed = missed[self.latest_end[row[missed]] > addresses[missed]]
        outer = _last_that_reaches(self.end, row[enclosed], addresses[enclosed])
        row[missed] = -1
        row[enclosed] = outer
        return row

    def names(self, rows: Sequence[int]) -> list[str]:
        """The names of some rows."""
        return read_names(self.name_bytes, self.name_offset[np.asarray(rows, np.int64)])

    def file_names(self, rows: Sequence[int]) -> list[str]:
        """The names of some rows of ``file_offset``."""
        return read_names(self.name_bytes, self.file_offset[np.asarray(rows, np.int64)])


_NONE = np.zeros(0, np.uint64)
EMPTY_TABLE = SymbolTable(_NONE, _NONE, _NONE, b"", np.zeros(0, np.int32), _NONE, _NONE)


def _last_that_reaches(end: U64, row: I64, address: U64) -> I64:
    """int64[n]: the last of the rows 0 to ``row`` whose ``end`` is beyond the address; there has to be one.

    A table may lay any number of short symbols behind a long one, so the rows are not tried one by one: of a tree of
    greatest ends, the blocks that make up the rows are tried from the right, and the one that reaches is descended.
    """
    levels = [end]  # level k: the greatest of each 2^k rows
    while len(levels[-1]) > 1:
        below = levels[-1][: len(levels[-1]) // 2 * 2]
        levels.append(np.maximum(below[::2], below[1::2]))
    rows_left = row + 1
    level, block = np.full(len(row), -1, np.int64), np.zeros(len(row), np.int64)
    for k, greatest in enumerate(levels):
        at = np.flatnonzero(rows_left >> k & 1)
        block[at] = (rows_left[at] >> k) - 1
        reaches = greatest[block[at]] > address[at]
        level[at[reaches]] = k
        rows_left[at] -= 1 << k
        rows_left[at[reaches]] = 0
    for k in range(len(levels) - 1, 0, -1):
        at = np.flatnonzero(level == k)
        right = 2 * block[at] + 1
        block[at] = np.where(levels[k - 1][right] > address[at], right, right - 1)
        level[at] = k - 1
    return block


def read_name(name_bytes: bytes | memoryview, offset: int, longest_bytes: int = LONGEST_NAME_BYTES) -> str:
    """The NUL-terminated name at ``offset``, of a longer one the beginning; bytes that are no UTF-8 become U+FFFD."""
    step = 256
    while True:
        piece = bytes(name_bytes[offset : offset + min(step, longest_bytes)])
        end = piece.find(b"\0")
        if end >= 0 or len(piece) < step:
            return piece[: end if end >= 0 else None].decode("utf-8", "replace")
        step *= 8


def read_names(name_bytes: bytes | memoryview, offsets: U64) -> list[str]:
    """``read_name`` for many offsets.

    All names together have at most a few times the bytes that they stand in: offsets of a damaged table may lead to
    all the ends of one long text. Once that much was read, the others are cut to the length of an ordinary name.
    """
    if len(offsets) < _FEW_NAMES:
        return [read_name(name_bytes, offset) for offset in offsets.tolist()]
    # Worth a copy: searching bytes is several times faster than cutting pieces of a memoryview.
    text = bytes(name_bytes)
    if not text.endswith(b"\0"):
        text += b"\0"
    find = text.find
    offsets = np.minimum(offsets, np.uint64(len(text) - 1))
    longest_bytes, budget = LONGEST_NAME_BYTES, _NAMES_TO_TEXT * len(text) + _SPARE_NAME_BYTES
    names = []
    for at in offsets.tolist():
        end = find(0, at, at + longest_bytes)
        names.append(str(text[at : end if end >= 0 else at + longest_bytes], "utf-8", "replace"))
        budget -= len(names[-1])
        if budget < 0:
            longest_bytes = _ORDINARY_NAME_BYTES
    return names


def make_table(
    start: U64,
    size: U64,
    name_offset: U64,
    name_bytes: bytes | memoryview,
    *,
    limit: U64 | None = None,
    rank: U8 | None = None,
    file: I32 | None = None,
    file_offset: U64 = _NONE,
) -> SymbolTable:
    """Sort symbols; of those at one address keep the longest, then the highest ``rank``, then the last.

    A size of 0 means unknown: the symbol reaches to the next one, but not past ``limit`` (its section's end).
    """
    rank = np.zeros(len(start), np.uint8) if rank is None else rank
    order = np.argsort(start)
    last = np.ones(len(start), bool)
    last[:-1] = start[order][1:] != start[order][:-1]
    # Sorting by four keys is slow, and few symbols share an address.
    shared = ~last
    shared[1:] |= ~last[:-1]
    rows = order[shared]
    order[shared] = rows[np.lexsort((rows, rank[rows], size[rows], start[rows]))]
    order = order[last]
    start, size = start[order], size[order]
    following = np.append(start[1:], np.uint64(_LAST_ADDRESS))
    if limit is not None:
        following = np.minimum(following, limit[order])
    # A wrapped-around end is damage: such a symbol covers nothing.
    end = np.where(size == 0, np.maximum(start, following), np.maximum(start, start + size))
    files = np.full(len(order), -1, np.int32) if file is None else file[order]
    return SymbolTable(
        start, end, name_offset[order], name_bytes, files, file_offset, np.maximum.accumulate(end, dtype=np.uint64)
    )


def paint_ranges(start: U64, size: U64, names: Sequence[str]) -> SymbolTable:
    """A table of ranges given in time order, where a later one replaces what it overlaps (reused code memory)."""
    cells = Cells(start, size)
    if not len(cells.edges):
        return EMPTY_TABLE
    owner = cells.owner()
    kept_names = [names[row] for row in cells.row.tolist()]
    name_bytes, name_offset = pack_names(kept_names)
    used = np.flatnonzero(owner >= 0)
    return make_table(cells.edges[used], np.diff(cells.edges)[used], name_offset[owner[used]], name_bytes)


class Cells:
    """The pieces that ranges of addresses cut each other to; empty ranges and those that wrap are left out.

    Attributes:
        row: int64[n], the ranges that are kept.
        edges: uint64, sorted: where pieces begin, and the end of the last.
        low, high: int64[n], of the ranges that are kept: the first of the pieces of each, and one past its last.
    """

    def __init__(self, start: U64, size: U64) -> None:
        self.row = np.flatnonzero((size > 0) & (start + size > start))
        first, end = start[self.row], (start + size)[self.row]
        self.edges = distinct(np.concatenate([first, end]))
        self.low, self.high = np.searchsorted(self.edges, first), np.searchsorted(self.edges, end)

    def owner(self) -> I64:
        """int64[edges]: the number in ``row`` of the last range that covers what begins at each edge, or -1."""
        return self.highest(np.arange(len(self.row)))

    def highest(self, value: I64) -> I64:
        """int64[edges]: the highest value, from 0, of the ranges that cover what begins at each edge, or -1.

        Each range is noted as two blocks of 2^k pieces that overlap, and blocks are handed down to halves of them.
        """
        length = (self.high - self.low).astype(np.float64)
        level = np.frexp(length)[1] - 1  # the largest k with 2^k <= length
        found = np.full(len(self.edges), -1, np.int64)
        for k in range(int(level.max(initial=0)), -1, -1):
            for first in (self.low, self.high - (1 << k)):
                rows = np.flatnonzero(level == k)
                np.maximum.at(found, first[rows], value[rows])
            if k:
                half = 1 << k - 1
                found[half:] = np.maximum(found[half:], found[:-half])
        return found

    def total(self, value: I64) -> I64:
        """int64[edges]: the values, added up, of the ranges that cover what begins at each edge; modulo 2^64."""
        steps = np.zeros(len(self.edges), np.int64)
        np.add.at(steps, self.low, value)
        np.subtract.at(steps, self.high, value)
        return np.cumsum(steps)


def pack_names(names: Sequence[str]) -> tuple[bytes, U64]:
    """The names as one NUL-terminated blob, equal ones once, and uint64[n] offsets into it."""
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    encoded = [name.encode("utf-8", "replace") for name in number]
    lengths = np.fromiter((len(name) + 1 for name in encoded), np.uint64, len(encoded))
    offsets = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths)[:-1]])
    which = np.fromiter((number[name] for name in names), np.int64, len(names))
    return b"\0".join(encoded) + b"\0", offsets[which]


def join_tables(first: SymbolTable, second: SymbolTable) -> SymbolTable:
    """One table of two whose symbols do not repeat each other; at one address the longer holds."""
    start = np.concatenate([first.start, second.start])
    end = np.concatenate([first.end, second.end])
    shift = np.uint64(len(first.name_bytes))
    names = bytes(first.name_bytes) + bytes(second.name_bytes)
    return make_table(
        start,
        end - start,
        np.concatenate([first.name_offset, second.name_offset + shift]),
        names,
        limit=end,
        file=np.concatenate([first.file, np.where(second.file < 0, -1, second.file + len(first.file_offset))]),
        file_offset=np.concatenate([first.file_offset, second.file_offset + shift]),
    )


def read_elf_symbols(elf: Elf, kind: int, extents: Callable[[], CodeExtents] = lambda: NO_EXTENTS) -> SymbolTable:
    """The functions of the file's ``.symtab`` (``SHT_SYMTAB``) or ``.dynsym`` (``SHT_DYNSYM``); empty if none.

    Labels without a type count where they stand in code: hand-written assembly often has nothing else. Those without a
    size end with the function around them, else where their instructions do, else where the next symbol, the next
    function or the section's end is, but within ``_LABELLED_BYTES``, in ``.dynsym`` ``_EXPORTED_BYTES``: nobody can say
    how far they reach.

    Args:
        extents: of the functions, asked for where there are symbols without a size.
    """
    assert kind in (SHT_SYMTAB, SHT_DYNSYM)
    section = next((section for section in elf.sections if section.type == kind), None)
    if section is None:
        return EMPTY_TABLE
    raw = elf.section_data(section)
    symbols = np.frombuffer(raw, _SYMBOL, len(raw) // _SYMBOL.itemsize)
    names = elf.section_data(elf.sections[section.link]) if section.link < len(elf.sections) else memoryview(b"")
    letters = np.frombuffer(names, np.uint8)
    rows = np.flatnonzero(_is_code(symbols, elf.sections) & (symbols["name"] < len(letters)))
    first = letters[symbols["name"][rows]]
    named = (first != 0) & (first != ord("$"))  # $x, $d: the Arm ABI's mapping symbols, not functions
    rows, first = rows[named], first[named]
    kept = symbols[rows]
    section_end = np.array([min(section.address + section.size, _LAST_ADDRESS) for section in elf.sections], np.uint64)
    limit = section_end[np.minimum(kept["section"], len(section_end) - 1)]
    unmeasured = np.flatnonzero(kept["size"] == 0)
    if len(unmeasured):
        limit[unmeasured] = _reach(elf, kind, kept, unmeasured, limit[unmeasured], extents())
    file, file_offset = _source_files(symbols, letters, rows)
    return make_table(
        kept["value"],
        kept["size"],
        kept["name"].astype(np.uint64),
        names,
        limit=limit,
        rank=_rank(kept, letters, first),
        file=file,
        file_offset=file_offset,
    )


def _reach(elf: Elf, kind: int, symbols: _Records, rows: I64, limit: U64, known: CodeExtents) -> U64:
    """uint64[rows]: how far those symbols reach at most, which have no size, within a limit."""
    start = symbols["value"][rows]
    most = np.minimum(limit, known.end_of(start))
    alone = np.flatnonzero(known.around(start) == NO_BEGIN)
    within = _EXPORTED_BYTES if kind == SHT_DYNSYM else _LABELLED_BYTES
    addresses = distinct(symbols["value"])
    following = np.append(addresses, np.uint64(_LAST_ADDRESS))[np.searchsorted(addresses, start[alone], "right")]
    first, which = np.unique(start[alone], return_index=True)
    section = np.minimum(symbols["section"][rows][alone][which].astype(np.int64), len(elf.sections) - 1)
    told = label_ends(elf, first, section, np.minimum(most[alone], following)[which])
    told = told[np.searchsorted(first, start[alone])]
    guess = np.minimum(start[alone], np.uint64(_LAST_ADDRESS - within)) + np.uint64(within)
    most[alone] = np.where(told > 0, told, np.minimum(most[alone], guess))
    return most


def _source_files(symbols: _Records, letters: U8, rows: I64) -> tuple[I32, U64]:
    """Which file each row's symbol was defined in, and where the files' names stand. Only for local symbols: those
    follow the STT_FILE symbol of their object; public ones stand behind them all."""
    marks = np.flatnonzero((symbols["info"] & 0xF) == _STT_FILE)
    named = marks[symbols["name"][marks] < len(letters)]
    named = named[letters[symbols["name"][named]] != 0]
    # An STT_FILE symbol without a name heads symbols that the linker made itself.
    number = np.full(len(marks) + 1, -1, np.int32)
    number[np.searchsorted(marks, named) + 1] = np.arange(len(named), dtype=np.int32)
    file = number[np.searchsorted(marks, rows)]
    file[(symbols["info"][rows] >> 4) != _STB_LOCAL] = -1
    return file, symbols["name"][named].astype(np.uint64)


def _is_code(symbols: _Records, sections: Sequence[ElfSection]) -> NDArray[np.bool_]:
    kind = symbols["info"] & 0xF
    defined = (symbols["section"] != _SHN_UNDEF) & (symbols["section"] != _SHN_ABS)
    executable = np.array([bool(section.flags & SHF_EXECINSTR) for section in sections] or [False])
    in_code = executable[np.minimum(symbols["section"], len(executable) - 1)] & (symbols["section"] < len(executable))
    is_function = (kind == _STT_FUNC) | (kind == _STT_GNU_IFUNC)
    code: NDArray[np.bool_] = defined & (is_function | ((kind == _STT_NOTYPE) & in_code))
    return code


def _rank(symbols: _Records, letters: U8, first: U8) -> U8:
    """Which of several names of one address to show: a function's before a label's, then public before local,
    then ``malloc`` before ``__libc_malloc``."""
    second = letters[np.minimum(symbols["name"].astype(np.int64) + 1, len(letters) - 1)]
    is_function = (symbols["info"] & 0xF) != _STT_NOTYPE
    is_public = (symbols["info"] >> 4) != _STB_LOCAL
    is_plain = ~((first == ord("_")) & (second == ord("_")))
    rank: U8 = (is_function * 4 + is_public * 2 + is_plain).astype(np.uint8)
    return rank
