"""CPython's tables of lines: which source line each instruction of a code object is of.

Formats: Objects/lnotab_notes.txt (up to 3.9), Objects/locations.md (3.11 on) of CPython; PEP 626 (3.10).
"""

from bisect import bisect_right
from collections.abc import Iterator

_UNIT = 2  # bytes of an instruction, in which tables from 3.11 on count
_NO_LOCATION, _LONG, _NO_COLUMNS, _FIRST_ONE_LINE, _LAST_ONE_LINE = 15, 14, 13, 10, 12
_BEFORE_THE_FIRST = 1 << 31
_NO_LINE = -128  # of 3.10's tables
_LAST_LINE = (1 << 31) - 1  # an int of C; a table that is none may say anything


class LineTable:
    """The lines of one code object.

    Args:
        version: of CPython.
        table: ``co_lnotab``, or ``co_linetable`` from 3.10 on.
        first_line: of the code object.
        is_cut: the table goes on; its last stretch may, too, or may have more of its line's number to come.
    """

    def __init__(self, version: tuple[int, int], table: bytes, first_line: int, *, is_cut: bool = False) -> None:
        self._first_line = first_line
        self._scale = _UNIT if version == (3, 10) else 1
        read = _pairs if version < (3, 10) else _signed_pairs if version == (3, 10) else _locations
        stretches = list(read(table, first_line))[: -1 if is_cut else None]
        self._ends = [end for end, _ in stretches]
        begun = next((at for at, (_, line) in enumerate(stretches) if line), 0)
        # What readies a closure's or generator's frame has no line: it is part of the call, as what precedes it is.
        self._lines = [first_line] * begun + [line for _, line in stretches[begun:]]

    def line(self, instruction: int) -> int:
        """The line of an instruction; 0 where the table does not tell.

        Args:
            instruction: where it stands, in 32 bits: bytes from 3.11 on, ``f_lasti`` before (bytes up to 3.9,
                instructions in 3.10); a function that has not begun stands before its first one.
        """
        if instruction >= _BEFORE_THE_FIRST:
            return self._first_line
        at = bisect_right(self._ends, instruction * self._scale)
        line = self._lines[at] if at < len(self._lines) else 0
        return line if 0 <= line <= _LAST_LINE else 0


def _pairs(table: bytes, line: int) -> Iterator[tuple[int, int]]:
    """(end, line) of each stretch, in bytes, as the others; the last one has no end."""
    end = 0
    for at in range(0, len(table) - 1, 2):
        if table[at]:
            end += table[at]
            yield end, line
        line += table[at + 1] - 256 if table[at + 1] >= 128 else table[at + 1]
    yield _BEFORE_THE_FIRST, line


def _signed_pairs(table: bytes, line: int) -> Iterator[tuple[int, int]]:
    end = 0
    for at in range(0, len(table) - 1, 2):
        end += table[at]
        change = table[at + 1] - 256 if table[at + 1] >= 128 else table[at + 1]
        if change == _NO_LINE:
            yield end, 0
        else:
            line += change
            yield end, line


def _locations(table: bytes, line: int) -> Iterator[tuple[int, int]]:
    end = at = 0
    while at < len(table):
        kind, length = table[at] >> 3 & 15, (table[at] & 7) + 1
        at += 1
        end += length * _UNIT
        if kind in (_LONG, _NO_COLUMNS):
            change, at = _varint(table, at)
            line += -(change >> 1) if change & 1 else change >> 1
        elif _FIRST_ONE_LINE <= kind <= _LAST_ONE_LINE:
            line += kind - _FIRST_ONE_LINE
        yield end, 0 if kind == _NO_LOCATION else line
        while at < len(table) and not table[at] & 0x80:  # columns: entries begin with the highest bit
            at += 1


def _varint(table: bytes, at: int) -> tuple[int, int]:
    """A number of 6-bit groups, the lowest first, and where it ends."""
    value = shift = 0
    while at < len(table) and shift < 30:
        byte = table[at]
        at += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return value, at
