"""Who had cache lines at the same time as others, by the order of accesses; in compiled code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arm_spe.native import need_native

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]


def join_views(
    line: U32, view: I64, time: NDArray[np.uint64], is_store: NDArray[np.bool_], lines: int, views: int
) -> tuple[I64, U32, U32]:
    """Views of lines that were of one memory at the same time: both touched it in turns, and one stored meanwhile.

    Memory that one process gives back and another is given, and that comes back once, is not: it takes four turns. A
    fork's pages are not: who stores to one has a copy.

    Args:
        line: uint32[n] below ``lines``, ascending.
        view: int64[n] below ``views``: a line as one process knows it, who accesses it so.
        time: uint64[n], ascending within a line. What came in one tick has no order.
        is_store: bool[n].

    Returns:
        int64[views], the least view of the same memory; uint32[lines] each, how often somebody else came next, and
        among how many accesses: 0 and 0 where nobody shares it. Of a line's accesses 256 are looked at.

    Raises:
        NotCompiledError: the compiled library is not there.
        ValueError: a line or a view is not below what it should be.
    """
    if len(line) and not (line.max() < lines and view.min() >= 0 and view.max() < views):
        raise ValueError("a line or a view that there is not")
    columns = [
        np.ascontiguousarray(column, dtype)
        for column, dtype in ((line, np.uint32), (view, np.int64), (time, np.uint64), (is_store, np.uint8))
    ]
    memory, turns, looked_at = np.arange(views), np.zeros(lines, np.uint32), np.zeros(lines, np.uint32)
    told = (each.ctypes.data for each in (memory, turns, looked_at))
    need_native().spe_join_views(*(column.ctypes.data for column in columns), len(line), *told)
    return memory, turns, looked_at
