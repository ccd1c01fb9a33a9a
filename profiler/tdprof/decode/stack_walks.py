"""How user stacks were found, as columns of a capture's stack table."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.model.arrays import I64
from tdprof.model.stack_ends import StackEnd

# `struct stack_record` of bpf/sample.h after its hash.
WALK = np.dtype(
    [
        ("depth", "<u2"),
        ("is_kernel", "u1"),
        ("end", "u1"),
        ("guessed_from", "<u2"),
        ("by_table", "<u2"),
        ("by_fp", "<u2"),
        ("by_lr", "<u2"),
        ("reserved", "<u4"),
    ]
)


def walk_columns(walk: NDArray[np.void], lengths: I64) -> Iterator[tuple[str, pa.Array]]:
    """The columns of ``capture.schema.STACK_WALK``: null for the kernel's stacks, and where it is not known.

    Args:
        walk: ``WALK``[n].
        lengths: int64[n], addresses of each stack.
    """
    ends = sorted(StackEnd)
    number = np.searchsorted(np.array(ends), walk["end"])
    is_unknown = (walk["is_kernel"] != 0) | (number == len(ends)) | (walk["end"] == 0)
    numbers = pa.array(number.astype(np.int32), mask=is_unknown)
    yield "end", pa.DictionaryArray.from_arrays(numbers, pa.array([end.word for end in ends]))
    yield "guessed_from", pa.array(walk["guessed_from"], mask=is_unknown | (walk["guessed_from"] == 0))
    by_kernel = walk["end"] == StackEnd.FRAME_POINTERS_ONLY
    by_fp = np.where(by_kernel, np.maximum(lengths - 1, 0), walk["by_fp"]).astype(np.uint16)
    for name, counts in (("by_table", walk["by_table"]), ("by_fp", by_fp), ("by_lr", walk["by_lr"])):
        yield name, pa.array(counts, mask=is_unknown)
