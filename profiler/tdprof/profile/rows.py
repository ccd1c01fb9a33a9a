"""Which stacks belong to which function or source line: the rows that reports and metrics add up by."""

import numpy as np

from tdprof.model.arrays import I32, I64, U32, distinct
from tdprof.model.profile import FrameStacks, Profile
from tdprof.native.library import load_native
from tdprof.profile.frames import as_column, frame_stacks
from tdprof.values import dataclass

_FRAMES_AT_ONCE = 1 << 20
_HALF, _LOWER = np.uint64(32), np.uint64(2**32 - 1)


@dataclass(frozen=True, slots=True)
class CodeRows:
    """One row for each function, or for each source line of each function; inlined frames are functions too.

    Attributes:
        function: int32[n], function id, of lines that of their file; -1 for samples without a call stack.
        line: uint32[n], 0 where unknown or where rows are functions.
        leaf: int64[stacks], the row at the leaf of each stack.
        row, stack: int64[pairs], each row with each stack that holds it, once also where a recursion holds it more
            often; sorted by stack.
    """

    function: I32
    line: U32
    leaf: I64
    row: I64
    stack: I64

    def __len__(self) -> int:
        return len(self.function)


def code_rows(profile: Profile, *, by_line: bool = False) -> CodeRows:
    """The rows of a profile, in no meaningful order."""
    stacks = frame_stacks(profile, of_lines=by_line)
    function, line, row = _source_lines(stacks) if by_line else _functions(stacks)
    anywhere, stack = rows_in_stacks(row, stacks.start, len(function))
    return CodeRows(function, line, leaf=row[stacks.start[:-1]].astype(np.int64), row=anywhere, stack=stack)


def _functions(stacks: FrameStacks) -> tuple[I32, U32, I32]:
    """Each function, no line of each, and int32[frames]: the row of each frame."""
    # Row 0 of both is no function, which -1 finds at their end once they are rolled.
    is_used = np.zeros(int(stacks.function.max(initial=-1)) + 2, bool)
    is_used[stacks.function.astype(np.int64)] = True  # what NumPy looks up by as it is
    is_used = np.roll(is_used, 1)
    function = np.flatnonzero(is_used).astype(np.int32) - np.int32(1)
    row = np.roll(np.cumsum(is_used, dtype=np.int32) - np.int32(1), -1)
    return function, np.zeros(len(function), np.uint32), row.take(stacks.function)


def _source_lines(stacks: FrameStacks) -> tuple[I32, U32, I32]:
    """Function and line of each row, and int32[frames]: the row of each frame."""
    encoded = []
    # Piece by piece: the keys of all frames would take twice the memory of what they are made of.
    for begin in range(0, len(stacks.function), _FRAMES_AT_ONCE):
        piece = slice(begin, begin + _FRAMES_AT_ONCE)
        key = (stacks.function[piece] + np.int64(1)).astype(np.uint64) << _HALF | stacks.line[piece]
        encoded.append(as_column(key).dictionary_encode())
    known = [each.dictionary.to_numpy() for each in encoded]
    keys = distinct(np.concatenate([np.zeros(0, np.uint64), *known]))
    row = np.empty(len(stacks.function), np.int32)
    for number, each in enumerate(encoded):
        piece = slice(number * _FRAMES_AT_ONCE, (number + 1) * _FRAMES_AT_ONCE)
        row[piece] = np.searchsorted(keys, known[number]).astype(np.int32)[each.indices.to_numpy()]
    return (keys >> _HALF).astype(np.int32) - np.int32(1), (keys & _LOWER).astype(np.uint32), row


def rows_in_stacks(row_of_frame: I32, start: I64, rows: int) -> tuple[I64, I64]:
    """Each row with each stack that has it, once also where it has it more often: rows and stacks, sorted by stack.

    Args:
        row_of_frame: int32, the row of every frame of every stack, each less than ``rows``.
        start: int64[stacks + 1], as in ``FrameStacks``.
    """
    stacks = len(start) - 1
    if (library := load_native()) is not None:
        row, stack = np.empty(len(row_of_frame), np.int64), np.empty(len(row_of_frame), np.int64)
        seen = np.full(rows, -1)
        columns = (np.ascontiguousarray(row_of_frame, np.int32), np.ascontiguousarray(start, np.int64))
        pairs = library.tdprof_rows_in_stacks(
            *(column.ctypes.data for column in columns),
            stacks,
            *(column.ctypes.data for column in (seen, row, stack)),
        )
        return row[:pairs], stack[:pairs]
    stack = np.repeat(np.arange(stacks), np.diff(start))
    # Sorting beats numpy.unique by far here: its hash table suffers from keys of this form.
    pair = np.sort(stack * rows + row_of_frame)
    pair = pair[np.diff(pair, prepend=-1) != 0]
    return pair % rows, pair // rows
