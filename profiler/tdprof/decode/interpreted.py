"""Rows of a capture's tables for code that is interpreted: each place in it has a number, and two addresses by that."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tdprof.capture.schema import MAPPINGS, SYMBOLS
from tdprof.model.addresses import FileKind
from tdprof.model.arrays import U64


def place_addresses(first: np.uint64, numbers: U64) -> U64:
    """uint64[n]: the addresses that stacks have. Callers are looked for one below, so that a place has two.

    Args:
        first: the first address of all places.
        numbers: uint64[n], of places.
    """
    return first + np.uint64(2) * numbers + np.uint64(1)


def place_symbols(path: str, frames: Sequence[dict[str, object]]) -> pa.Table:
    """Where in the source each place is.

    Args:
        path: of what is interpreted.
        frames: function, file and line of each place, in the order of their numbers.
    """
    count = len(frames)
    columns = {
        "path": [path] * count,
        "build_id": [""] * count,
        "kind": [FileKind.INTERPRETED.value] * count,
        "pid": [0] * count,
        "file_offset": np.arange(count, dtype=np.uint64),
        "reason": [0] * count,
        "frames": [[frame] for frame in frames],
    }
    return pa.table(columns, schema=SYMBOLS)


def place_mappings(path: str, first: np.uint64, places: int, since: Iterable[tuple[int, int]]) -> pa.Table:
    """Where processes have the places mapped.

    Args:
        path, first: as above.
        places: how many there are.
        since: each process, and from when on.
    """
    rows = [
        {
            "time_ns": time_ns,
            "pid": pid,
            "address": int(first),
            "length": 2 * places + 2,
            "file_offset": 0,
            "path": path,
            "build_id": None,
        }
        for pid, time_ns in since
    ]
    return pa.Table.from_pylist(rows, MAPPINGS)
