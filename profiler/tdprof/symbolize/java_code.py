"""Methods that a JVM has inlined, and lines, for addresses of its compiled code: from what the capture keeps of it.

Formats: src/hotspot/share/code/{pcDesc,scopeDesc,compressedStream}.hpp and src/hotspot/share/utilities/unsigned5.hpp of
the JDK. A JVM says where calls are, so that the callers of a stack are known; where a sample itself was taken it says
only with -XX:+DebugNonSafepoints. Nothing is said of an address unless the outermost method has the name that the
JVM's map gives it.
"""

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tdprof.capture.files import MOST_CODE_FILE_BYTES
from tdprof.capture.java_code import JavaCode, JavaHeader, JavaMethod, code_name, read_header, read_records
from tdprof.capture.java_methods import BytecodeLines, CompressedNumbers, external_name, source_file
from tdprof.linux.file_bytes import read_inside
from tdprof.model.addresses import Locations, Unknown
from tdprof.model.arrays import I64, U64, distinct_rows, rows_by_number
from tdprof.symbolize.locations import SourcePlace, combine_locations, with_places

_PLACE = np.dtype([("offset", "<i4"), ("scope", "<i4"), ("other", "<i4", 2)])
_MOST_DEEP = 64  # MaxInlineLevel is 15, and recursive calls are inlined once
_FRAMES_EACH, _SPARE_FRAMES = 16, 1 << 16  # of all addresses together; what is beyond has the map's name alone


class Frame(NamedTuple):
    """A method, its source file, empty where there is none, and the line in it, 0 where that is not known."""

    method: str
    file: str
    line: int


class JavaCodeIndex:
    """Looks up addresses in the compiled code of a process.

    Args:
        header: of its file.
        data: the whole file.
    """

    def __init__(self, header: JavaHeader, data: bytes) -> None:
        self._header = header
        self._methods: list[JavaMethod] = []
        codes: list[JavaCode] = []
        for record in read_records(data):
            if isinstance(record, JavaMethod):
                self._methods.append(record)
            elif record.begin < record.end:
                codes.append(record)
        self._codes = sorted(codes, key=lambda code: code.begin)
        self._begin = np.array([code.begin for code in self._codes], np.uint64)
        # Up to where any code reaches that begins no later: code was freed, and other code has its place.
        ends = np.array([code.end for code in self._codes], np.uint64)
        self._reach = np.maximum.accumulate(ends) if len(ends) else ends
        self._name = functools.cache(lambda number: external_name(self._methods[number]))
        self._file = functools.cache(lambda number: source_file(self._methods[number]))
        self._lines = functools.cache(lambda number: BytecodeLines(self._methods[number].lines, header.lowest_byte))

    def improve(self, found: Locations, addresses: U64) -> Locations:
        """Locations with more frames and lines, where they are known.

        Args:
            found: by the JVM's map: of each address one function, or none.
            addresses: uint64[n], those that were looked up; of callers one less than they return to.
        """
        which = np.searchsorted(self._begin, addresses, "right").astype(np.int64) - 1
        rows = np.flatnonzero((which >= 0) & (np.diff(found.frame_start) == 1))
        scope = self._scopes(addresses[rows], which[rows])
        rows, scope = rows[scope > 0], scope[scope > 0]
        function = found.function[found.frame_start[rows]]
        found = with_places(found, lambda name: SourcePlace(self._files.get(name, ""), 0))
        if not len(rows):
            return found
        code_of_row = which[rows]
        first, place = distinct_rows(code_of_row, scope, function)
        columns = code_of_row[first], scope[first], function[first], np.bincount(place)
        budget = _FRAMES_EACH * len(addresses) + _SPARE_FRAMES
        frames = list[list[Frame]]()
        for code, at, name, count in zip(*(column.tolist() for column in columns), strict=True):
            here = self._chain(self._codes[code], at) if budget > 0 else []
            budget -= len(here) * count
            is_meant = budget >= 0 and bool(here) and here[-1].method == found.strings[name]
            frames.append(here if is_meant else [])
        is_known = np.array([bool(here) for here in frames])[place]
        return combine_locations(found, rows[is_known], _locations(frames), place[is_known].astype(np.int64))

    @functools.cached_property
    def _files(self) -> dict[str, str]:
        """The source file of each method; none of those that several class loaders have from different ones."""
        files: dict[str, str] = {}
        for number in range(len(self._methods)):
            file = self._file(number)
            if files.setdefault(self._name(number), file) != file:
                files[self._name(number)] = ""
        return files

    def _scopes(self, addresses: U64, which: I64) -> I64:
        """int64[n]: the scope that each address is in; 0 or less where that is not known.

        Args:
            addresses: as of `improve`.
            which: the number of the last code that begins there or before.
        """
        scopes = np.zeros(len(addresses), np.int64)
        for number, rows in rows_by_number(which):
            code = self._codes[number]
            places = np.frombuffer(code.places, _PLACE, len(code.places) // _PLACE.itemsize)
            if len(places) < 2:  # the last one only ends the table
                continue
            offset = places["offset"].astype(np.int64)
            behind = (addresses[rows] - np.uint64(code.begin)).astype(np.int64) + 1
            at = np.minimum(np.searchsorted(offset, behind), len(places) - 1)
            is_told = (at + 1 < len(places)) & (self._header.is_everywhere | (offset[at] == behind))
            is_told &= addresses[rows] < np.uint64(code.end)
            if number:
                is_told &= self._reach[number - 1] <= addresses[rows]
            scopes[rows] = np.where(is_told, places["scope"][at], 0)
        return scopes

    def _chain(self, code: JavaCode, scope: int) -> list[Frame]:
        """The frames of a scope and of those around it, innermost first; none if it is no scope."""
        frames = list[Frame]()
        numbers = np.frombuffer(code.methods, "<u4")
        number = -1
        with contextlib.suppress(IndexError):
            while scope and len(frames) < _MOST_DEEP:
                stream = CompressedNumbers(code.scopes, scope, self._header.lowest_byte)
                around, method, bytecode = stream.next(), stream.next(), stream.next() - 1
                if not 0 < method <= len(numbers) or around >= scope:
                    break
                number = int(numbers[method - 1])
                line = self._lines(number).line(max(bytecode, 0))
                frames.append(Frame(self._name(number), self._file(number), line))
                scope = around
        return frames if not scope and number == code.method else []


def _locations(frames: Sequence[Sequence[Frame]]) -> Locations:
    """Each address's frames as columns."""
    strings: dict[str, int] = {}
    flat = [frame for each in frames for frame in each]
    return Locations(
        frame_start=np.concatenate([[0], np.cumsum([len(each) for each in frames])]).astype(np.uint32),
        function=np.array([strings.setdefault(frame.method, len(strings)) for frame in flat], np.int32),
        file=np.array([strings.setdefault(frame.file, len(strings)) if frame.file else -1 for frame in flat], np.int32),
        line=np.array([frame.line for frame in flat], np.uint32),
        reason=np.full(len(frames), Unknown.KNOWN, np.uint8),
        strings=list(strings),
    )


def read_java_code(folder: Path, pid: int) -> JavaCodeIndex | None:
    """What a folder of maps has of a process's compiled code besides its map; None: nothing."""
    try:
        data = read_inside(folder, code_name(pid), MOST_CODE_FILE_BYTES)
    except OSError:
        return None
    header = read_header(data)
    return JavaCodeIndex(header, data) if header else None
