"""Maps of code made at run time, ``perf-PID.map``, as just-in-time compilers write them for perf."""

import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tdprof.capture.files import MOST_CODE_FILE_BYTES
from tdprof.capture.perf_maps import MAP_LINE, MapTimes, times_name
from tdprof.linux.file_bytes import read_inside
from tdprof.model.arrays import I64, U64
from tdprof.symbolize.code_index import EMPTY_INDEX
from tdprof.symbolize.code_versions import RunTimeCode, find_versions
from tdprof.symbolize.compiled_names import function_of, is_code
from tdprof.symbolize.doubts import Meant, meant_in_any_order, shown
from tdprof.symbolize.symbol_table import paint_ranges


class _Lines(NamedTuple):
    start: U64
    size: U64
    names: list[str]
    end: I64  # of each line, in the text


def parse_perf_map(text: bytes, times: MapTimes | None = None) -> RunTimeCode:
    """The functions of a map. A line that does not fit the format is skipped, and one without an end: half a name.

    Where ranges overlap the runtime has freed and reused the memory. By ``times``, if they are known, each sample is of
    what stood there then. Without them the later line holds, and names the earlier.
    """
    all_lines = ((line, line[3].decode("utf-8", "replace")) for line in MAP_LINE.finditer(text))
    found = [(line, function_of(name)) for line, name in all_lines if is_code(name)]
    lines = _Lines(
        np.array([int(line[1], 16) for line, _ in found], np.uint64),
        np.array([int(line[2], 16) for line, _ in found], np.uint64),
        [name for _, name in found],
        np.array([line.end() for line, _ in found], np.int64),
    )
    start, size = lines.start, lines.size
    names = [shown(each) for each in meant_in_any_order(start, size, lines.names)]
    timed = _with_doubt(lines, times) if times else None
    versions = find_versions(timed.start, timed.size, timed.time_ns, timed.meant) if timed else None
    if versions and timed:
        start = np.concatenate([start, *versions.places])
        size = np.concatenate([size, np.tile(timed.size[versions.row], len(versions.places))])
        names += itertools.chain(*versions.names)
    return RunTimeCode(paint_ranges(start, size, names), EMPTY_INDEX, versions=versions)


class _Timed(NamedTuple):
    start: U64
    size: U64
    time_ns: U64
    meant: list[Meant]


def _with_doubt(lines: _Lines, times: MapTimes) -> _Timed:
    """The ranges and since when they hold.

    Of lines of one memory that were seen at once nobody knows when the later took its place, and which of them stood
    there since the last look: from then on the name is that of both.
    """
    step = np.searchsorted(np.array(times.end, np.int64), lines.end)
    began = np.array([1, *times.time_ns], np.uint64)
    time_ns = np.append(began[1:], np.uint64(times.until_ns))[step]
    edges, place = np.unique(np.concatenate([lines.start, lines.start + lines.size]), return_inverse=True)
    first, end = place[: len(step)], place[len(step) :]
    # As if each look had addresses of its own.
    apart = (first + step * len(edges)).astype(np.uint64)
    meant = meant_in_any_order(apart, np.maximum(end - first, 0).astype(np.uint64), lines.names)
    rows = [row for row, each in enumerate(meant) if len(each) > 1]
    since = np.where(step < len(times.end), began[step], np.uint64(times.until_ns))
    return _Timed(
        np.concatenate([lines.start, lines.start[rows]]),
        np.concatenate([lines.size, lines.size[rows]]),
        np.concatenate([time_ns, since[rows]]),
        [*((name,) for name in lines.names), *(meant[row] for row in rows)],
    )


def read_perf_map(folder: Path, pid: int) -> RunTimeCode | None:
    """The map of a process in a folder of maps, or None if it has none that can be read."""
    name = f"perf-{pid}.map"
    text = _read(folder, name)
    if text is None:
        return None
    times = _read(folder, times_name(name))
    return parse_perf_map(text, MapTimes.from_bytes(times, text) if times else None)


def _read(folder: Path, name: str) -> bytes | None:
    try:
        return read_inside(folder, name, MOST_CODE_FILE_BYTES)
    except OSError:
        return None
