"""Groups of SPE records into the rows of a report: functions, lines, instructions, data sources, blocks of memory."""

from __future__ import annotations

import threading
from enum import Enum
from typing import NamedTuple, Protocol, Self

import numpy as np

from arm_spe.groups import GroupTable
from arm_spe.tallied import NO_ROW
from arm_spe.tally import NOTHING, OTHERS
from tdprof.attribute.addresses import attribute_addresses
from tdprof.decode.spe.data_sources import encoding_of, sources
from tdprof.model.addresses import MappedFile
from tdprof.model.arrays import I32, I64, U32, U64, group_of_row, group_rows
from tdprof.model.profile import NO_ID
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.frames import FunctionIdentity
from tdprof.profile.naming import name_locations
from tdprof.symbolize.demangling import demangle
from tdprof.text import plural

MAX_ROWS = 1 << 19
"""What comes after so many rows shares one, so that no input fills memory."""
OTHERS_NAME = "(others)"
"""Of that row."""
_HALF = np.uint64(32)  # bits, of a key that is a function and a file


class Rows(Protocol):
    """Numbers the rows of one kind of report, from 0, as groups turn up."""

    def place(self, first: U64, second: U64) -> I64:
        """int64[n]: the row of each group, or NO_ROW; a row keeps its number."""


class Placement:
    """The rows of all groups.

    Row 0 is what has no row of its own, for want of room; row n + 1 is row n of ``rows``.

    Args:
        rows: knows the row of a group.
        max_rows: rows before the rest share one.
        is_shared: several threads meet the same groups; one alone asks for each once.
    """

    def __init__(self, rows: Rows, max_rows: int = MAX_ROWS, *, is_shared: bool = True) -> None:
        self._rows = rows
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._seen = GroupTable() if is_shared else None
        self._row_of = np.zeros(0, np.int32)

    def place(self, first: U64, second: U64) -> I32:
        """`arm_spe.tally.Place`."""
        with self._lock:
            numbers: U32 | slice = slice(len(self._row_of), None)
            if self._seen is not None:
                known = len(self._seen)
                numbers = self._seen.number(first, second)
                first, second = self._seen.first[known:], self._seen.second[known:]
            is_rest = (first == OTHERS) & (second == OTHERS)
            rows = np.zeros(len(first), np.int64)
            placed = self._rows.place(first[~is_rest], second[~is_rest])
            rows[~is_rest] = np.where(placed < self._max_rows, placed + 1, 0)
            rows[~is_rest] = np.where(placed == NO_ROW, NO_ROW, rows[~is_rest])
            self._row_of = np.concatenate([self._row_of, rows.astype(np.int32)])
            return self._row_of[numbers]


class SourceRows:
    """Rows by a data source's name: cores of different encodings meet in it."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def place(self, first: U64, second: U64) -> I64:
        """First key: code of the source; second: MIDR_EL1, 0 if not known."""
        rows = np.full(len(first), NO_ROW, np.int64)
        for at in np.flatnonzero(first != NOTHING).tolist():
            source = sources(encoding_of(int(second[at]) or None))[int(first[at])]
            rows[at] = self._rows.setdefault(source.name, len(self._rows))
        return rows

    def names(self, rows: I64) -> list[str]:
        """Of the sources."""
        names = list(self._rows)
        return [names[row] for row in rows.tolist()]

    def notes(self) -> list[str]:
        return []


class AddressRows:
    """Rows by instruction address, where nothing names code."""

    def __init__(self) -> None:
        self._addresses = GroupTable()

    def place(self, first: U64, second: U64) -> I64:
        """First key: address."""
        return self._addresses.number(first, np.zeros_like(first)).astype(np.int64)

    def names(self, rows: I64) -> list[str]:
        """The addresses."""
        return [f"0x{address:x}" for address in self._addresses.first[rows].tolist()]

    def notes(self) -> list[str]:
        return []


class CodeDetail(Enum):
    """What a row of code is."""

    LINE = 1
    INSTRUCTION = 2


class SampledFunction(NamedTuple):
    """A function that SPE sampled, as far as its lines are of one source file.

    Attributes:
        source_file: of the lines.
        own_file: the source file that the function stands in.
        path: that of its mapped file, "" where no mapping is known.
    """

    name: str
    linkage_name: str
    source_file: str
    own_file: str
    mapped_file: MappedFile | None

    @property
    def path(self) -> str:
        return self.mapped_file.path if self.mapped_file else ""

    @property
    def identity(self) -> FunctionIdentity:
        return self.linkage_name, self.source_file, self.own_file, self.path

    @property
    def whole(self) -> Self:
        """The function with the lines of all source files."""
        return self._replace(source_file=self.own_file)


class SymbolizedRows:
    """Rows by source line or instruction; inlined code belongs to the function that was inlined.

    Args:
        capture: says what was mapped where, and names it.
        detail: what a row is.

    Attributes:
        functions: those that rows are of, as they turned up.
        unknown_processes: addresses of threads that belong to no known process.
    """

    def __init__(self, capture: OpenCapture, detail: CodeDetail) -> None:
        self._capture = capture
        self._detail = detail
        self.functions: list[SampledFunction] = []
        # Files have numbers here, too: to compare them takes a hundred times as long.
        self._files: dict[MappedFile | None, int] = {}
        self._numbers: dict[tuple[str, str, str, str, int], int] = {}
        self._rows = GroupTable()
        self.unknown_processes = 0

    def place(self, first: U64, second: U64) -> I64:
        """First key: address of the instruction; second: thread and stage."""
        if not len(first):
            return np.zeros(0, np.int64)
        tids, time_ns = self._capture.stages.split(second)
        pids = self._capture.owners.pids(tids, time_ns)
        self.unknown_processes += int((pids == NO_ID).sum())
        files = self._capture.mapped_files
        file, offset = attribute_addresses(first, pids, time_ns, files, self._capture.spaces)
        order, start = group_rows(file, offset)
        place = order[start]
        functions, locations = name_locations(
            files, file[place], offset[place], self._capture.symbolizer.locate, demangle
        )
        innermost = locations.frame_start[:-1]
        function = locations.frame_function[innermost]
        used = np.flatnonzero(np.bincount(function, minlength=len(functions.name)))
        number = np.zeros(len(functions.name), np.uint64)
        file_of_row = functions.mapped_file[used].tolist()
        mapped = {at: files[at] if at >= 0 else None for at in {*file_of_row}}
        same = {at: self._files.setdefault(each, len(self._files)) for at, each in mapped.items()}
        numbers = []
        for row, at in zip(used.tolist(), file_of_row, strict=True):
            own_file = functions.file[row if functions.whole is None else functions.whole[row]]
            key = functions.name[row], functions.linkage_name[row], functions.file[row], own_file, same[at]
            numbers.append(self._numbers.setdefault(key, len(self.functions)))
            if numbers[-1] == len(self.functions):
                self.functions.append(SampledFunction(*key[:4], mapped[at]))
        number[used] = numbers
        number = number[function]
        keys = {
            CodeDetail.LINE: (number, locations.frame_line[innermost].astype(np.uint64)),
            # Functions and files are both fewer than 2^32; -1 stands for no file.
            CodeDetail.INSTRUCTION: (
                number << _HALF | (locations.mapped_file + 1).astype(np.uint64),
                locations.address,
            ),
        }[self._detail]
        rows = self._rows.number(*keys).astype(np.int64)
        return rows[group_of_row(order, start)]

    def lines(self) -> I64:
        """int64[rows, 2]: number of each row's function, and its line, 0 where none is known; where rows are lines."""
        return np.stack([self._rows.first, self._rows.second], axis=1).astype(np.int64)

    def names(self, rows: I64) -> list[str]:
        """Of the functions, with the address; of instructions."""
        functions = self.functions
        numbers, addresses = self._rows.first[rows] >> _HALF, self._rows.second[rows]
        return [
            f"{functions[number].name} 0x{address:x}"
            for number, address in zip(numbers.tolist(), addresses.tolist(), strict=True)
        ]

    def notes(self) -> list[str]:
        """What makes names unknown, a sentence each."""
        if not self.unknown_processes:
            return []
        return [f"{plural(self.unknown_processes, 'address', 'es')} of no known process"]
