"""Maps of code made at run time, ``perf-PID.map``, as just-in-time compilers write them for perf."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tdprof.capture.perf_maps import MAP_LINE, MapTimes, times_name
from tdprof.linux.file_bytes import open_inside
from tdprof.model.arrays import I64, U64
from tdprof.symbolize.code_index import EMPTY_INDEX
from tdprof.symbolize.code_versions import CodeVersions, RunTimeCode, find_versions
from tdprof.symbolize.symbol_table import names_with_replaced, or_replaced, paint_ranges


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
    found = list(MAP_LINE.finditer(text))
    lines = _Lines(
        np.array([int(line[1], 16) for line in found], np.uint64),
        np.array([int(line[2], 16) for line in found], np.uint64),
        [line[3].decode("utf-8", "replace") for line in found],
        np.array([line.end() for line in found], np.int64),
    )
    start, size = lines.start, lines.size
    names = names_with_replaced(start, size, lines.names)
    timed = _with_doubt(lines, times) if times else None
    versions = find_versions(timed.start, timed.size, timed.time_ns, timed.names) if timed else None
    if versions and timed:
        row = versions.row
        start = np.concatenate([start, versions.place, versions.place + timed.size[row]])
        size = np.concatenate([size, timed.size[row], timed.size[row]])
        names += [*_names_by_time(versions, timed), *_names_of_two(versions, timed)]
    return RunTimeCode(paint_ranges(start, size, names), EMPTY_INDEX, versions=versions)


class _Timed(NamedTuple):
    start: U64
    size: U64
    time_ns: U64
    names: list[str]
    plain: list[str]  # other than ``names`` where that is of two


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
    shown = names_with_replaced(apart, np.maximum(end - first, 0).astype(np.uint64), lines.names)
    rows = [row for row, (name, plain) in enumerate(zip(shown, lines.names, strict=True)) if name != plain]
    since = np.where(step < len(times.end), began[step], np.uint64(times.until_ns))
    return _Timed(
        np.concatenate([lines.start, lines.start[rows]]),
        np.concatenate([lines.size, lines.size[rows]]),
        np.concatenate([time_ns, since[rows]]),
        [*lines.names, *(shown[row] for row in rows)],
        [*lines.names, *(lines.names[row] for row in rows)],
    )


def _names_by_time(versions: CodeVersions, timed: _Timed) -> Iterator[str]:
    """What each version is called where it was sampled for sure. In doubt, what was there before is as likely."""
    plain_of = dict(zip(timed.names, timed.plain, strict=True))
    for row, before in zip(versions.row.tolist(), versions.replaced, strict=True):
        name, plain = timed.names[row], timed.plain[row]
        yield or_replaced(plain, plain_of[before]) if name != plain and before else name


def _names_of_two(versions: CodeVersions, timed: _Timed) -> Iterator[str]:
    """What each version is called where a sample may be of what it replaced."""
    plain_of = dict(zip(timed.names, timed.plain, strict=True))
    for row, before in zip(versions.row.tolist(), versions.replaced, strict=True):
        is_said = before and plain_of[before] == timed.plain[row]  # of two, of which this is one
        yield before if is_said else or_replaced(timed.plain[row], plain_of.get(before, ""))


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
        with os.fdopen(open_inside(folder, name), "rb") as file:
            return file.read()
    except OSError:
        return None
