"""Which stacks belong to which function or source line: the rows that reports and metrics add up by."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import I32, I64, U32
from tdprof.model.profile import Profile
from tdprof.profile.frames import frame_stacks, number_values


@dataclass(frozen=True, slots=True)
class CodeRows:
    """One row for each function, or for each source line of each function; inlined frames are functions too.

    Attributes:
        function: int32[n], function id; -1 for samples without a call stack.
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
    stacks = frame_stacks(profile)
    line = stacks.line if by_line else np.zeros_like(stacks.line)
    distinct, row = number_values((stacks.function + np.int64(1)).astype(np.uint64) << np.uint64(32) | line)
    anywhere, stack = rows_in_stacks(row, stacks.start)
    return CodeRows(
        function=(distinct >> np.uint64(32)).astype(np.int32) - np.int32(1),
        line=(distinct & np.uint64(0xFFFF_FFFF)).astype(np.uint32),
        leaf=row[stacks.start[:-1]].astype(np.int64),
        row=anywhere,
        stack=stack,
    )


def rows_in_stacks(row_of_frame: NDArray[np.integer], start: I64) -> tuple[I64, I64]:
    """Each row with each stack that has it, once also where it has it more often: rows and stacks, sorted by stack.

    Args:
        row_of_frame: the row of every frame of every stack.
        start: int64[stacks + 1], as in ``FrameStacks``.
    """
    stack = np.repeat(np.arange(len(start) - 1), np.diff(start))
    width = int(row_of_frame.max(initial=0)) + 1
    # Sorting beats numpy.unique by far here: its hash table suffers from keys of this form.
    pair = np.sort(stack * width + row_of_frame)
    pair = pair[np.diff(pair, prepend=-1) != 0]
    return pair % width, pair // width
