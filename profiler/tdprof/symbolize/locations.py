"""Making ``Locations`` from what a symbol source found."""

import numpy as np

from tdprof.model import U64, Locations, Unknown
from tdprof.symbolize.symbol_table import SymbolTable


def unknown_locations(count: int, reason: Unknown) -> Locations:
    """``count`` addresses without frames, all for one reason."""
    none = np.zeros(0, np.int32)
    return Locations(
        frame_start=np.zeros(count + 1, np.uint32),
        function=none,
        file=none,
        line=np.zeros(0, np.uint32),
        reason=np.full(count, reason, np.uint8),
        strings=(),
    )


def table_locations(table: SymbolTable, addresses: U64, missing: Unknown) -> Locations:
    """One frame, without file and line, for each address that a symbol covers; ``missing`` for the others."""
    rows = table.lookup(addresses)
    found = rows >= 0
    used, function = np.unique(rows[found], return_inverse=True)
    frame_start = np.zeros(len(addresses) + 1, np.uint32)
    np.cumsum(found, out=frame_start[1:])
    return Locations(
        frame_start=frame_start,
        function=function.astype(np.int32),
        file=np.full(len(function), -1, np.int32),
        line=np.zeros(len(function), np.uint32),
        reason=np.where(found, Unknown.KNOWN, missing).astype(np.uint8),
        strings=table.names(used.tolist()),
    )
