"""Maps of code made at run time, ``perf-PID.map``, as just-in-time compilers write them for perf.

Format: tools/perf/Documentation/jit-interface.txt in the Linux sources: one ``START SIZE name`` per line, hex.
"""

import os
import re
from pathlib import Path

import numpy as np

from tdprof.linux.file_bytes import open_inside
from tdprof.symbolize.symbol_table import SymbolTable, names_with_replaced, paint_ranges

_LINE = re.compile(rb"^(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) ([^\r\n]+)[\r\n]", re.MULTILINE)


def parse_perf_map(text: bytes) -> SymbolTable:
    """The table of a map's text. A line that does not fit the format is skipped, and one without an end: half a name.

    Where ranges overlap the runtime has freed and reused the memory: the later line holds, and names the earlier, since
    a map has no times.
    """
    lines = _LINE.findall(text)
    start = np.array([int(line[0], 16) for line in lines], np.uint64)
    size = np.array([int(line[1], 16) for line in lines], np.uint64)
    names = [line[2].decode("utf-8", "replace") for line in lines]
    return paint_ranges(start, size, names_with_replaced(start, size, names))


def read_perf_map(folder: Path, pid: int) -> SymbolTable | None:
    """The map of a process in a folder of maps, or None if it has none that can be read."""
    try:
        with os.fdopen(open_inside(folder, f"perf-{pid}.map"), "rb") as file:
            return parse_perf_map(file.read())
    except OSError:
        return None
