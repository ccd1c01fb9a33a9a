"""Groups of SPE records into the rows of a report: functions, lines, instructions, data sources, blocks of memory."""

from __future__ import annotations

import threading
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from arm_spe.groups import GroupTable
from arm_spe.tally import NO_ROW, NOTHING, OTHERS
from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.addresses import address_tables
from tdprof.attribute.stacks import AttributedStacks, attribute_stacks
from tdprof.attribute.threads import ThreadOwners
from tdprof.capture.tables import read_side_table
from tdprof.decode.spe.data_sources import encoding_of, sources
from tdprof.model.addresses import MappedFile
from tdprof.model.arrays import I32, I64, U64
from tdprof.model.profile import NO_ID
from tdprof.profile.naming import Demangle, Locate, name_locations

MAX_ROWS = 1 << 19
"""What comes after so many rows shares one, so that no input fills memory."""
_ANY_TIME = 2**63 - 1


class Rows(Protocol):
    """Numbers the rows of one kind of report as groups turn up."""

    def place(self, first: U64, second: U64) -> I64:
        """int64[n]: the row of each group, or NO_ROW; a row keeps its number."""

    def names(self) -> list[str]:
        """The rows' names, in order."""


class Placement:
    """The rows of all groups, for several threads that meet the same groups.

    Row 0 is what has no row of its own, for want of room; row n + 1 is row n of ``rows``.

    Args:
        rows: knows the row of a group.
        max_rows: rows before the rest share one.
    """

    def __init__(self, rows: Rows, max_rows: int = MAX_ROWS) -> None:
        self._rows = rows
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._seen = GroupTable()
        self._row_of = np.zeros(0, np.int32)

    def place(self, first: U64, second: U64) -> I32:
        """`arm_spe.tally.Place`."""
        with self._lock:
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

    def names(self) -> list[str]:
        """The rows' names, in order."""
        return ["(others)", *self._rows.names()[: self._max_rows]]

    def groups_by_row(self, rows: int) -> U64:
        """uint64[rows]: groups of each."""
        return np.bincount(self._row_of[self._row_of >= 0], minlength=rows).astype(np.uint64)


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

    def names(self) -> list[str]:
        """Of the sources."""
        return list(self._rows)


class BlockRows:
    """Rows by cache line or page.

    Args:
        block_bytes: size of one.
    """

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._blocks = GroupTable()

    def place(self, first: U64, second: U64) -> I64:
        """First key: number of the block; second: thread."""
        rows = np.full(len(first), NO_ROW, np.int64)
        has_address = first != NOTHING
        numbers = first[has_address]
        rows[has_address] = self._blocks.number(numbers, np.zeros_like(numbers))
        return rows

    @property
    def blocks(self) -> U64:
        """uint64: number of each row's block."""
        return self._blocks.first

    def names(self) -> list[str]:
        """The blocks' addresses."""
        return [f"0x{number * self._block_bytes:x}" for number in self.blocks.tolist()]


class AddressRows:
    """Rows by instruction address, where nothing names code."""

    def __init__(self) -> None:
        self._addresses = GroupTable()

    def place(self, first: U64, second: U64) -> I64:
        """First key: address."""
        return self._addresses.number(first, np.zeros_like(first)).astype(np.int64)

    def names(self) -> list[str]:
        """The addresses."""
        return [f"0x{address:x}" for address in self._addresses.first.tolist()]


class CodeDetail(Enum):
    """What a row of code is."""

    FUNCTION = 0
    LINE = 1
    INSTRUCTION = 2


class _Function(NamedTuple):
    name: str
    linkage_name: str
    source_file: str
    mapped_file: MappedFile | None


class SymbolizedRows:
    """Rows by function, line or instruction; inlined code belongs to the function that was inlined.

    Args:
        tables: a capture's tables, which say what was mapped where.
        detail: what a row is.
        locate: looks addresses of one file up.
        demangle: makes names readable.

    Attributes:
        unreadable: sentences on tables that could not be read.
        unknown_processes: addresses of threads that belong to no known process.
    """

    def __init__(
        self,
        tables: Path,
        detail: CodeDetail,
        locate: Locate,
        demangle: Demangle,
    ) -> None:
        self._mappings, no_mappings = read_side_table(tables, "mappings")
        self._processes, no_processes = read_side_table(tables, "processes")
        self.unreadable = [*filter(None, [no_mappings, no_processes])]
        self._spaces = AddressSpaces(self._mappings, self._processes)
        self._owners = ThreadOwners(self._mappings, self._processes)
        self._detail = detail
        self._locate = locate
        self._demangle = demangle
        self._functions: dict[_Function, int] = {}
        self._files: dict[MappedFile | None, int] = {}
        self._rows: dict[tuple[int, ...], int] = {}
        self.unknown_processes = 0

    def place(self, first: U64, second: U64) -> I64:
        """First key: address of the instruction; second: thread."""
        if not len(first):
            return np.zeros(0, np.int64)
        pids = self._owners.pids(second)
        self.unknown_processes += int((pids == NO_ID).sum())
        attributed = self._attribute(first, pids)
        files = [*attributed.mapped_files, None]  # index -1: no file
        functions, locations = name_locations(
            attributed.mapped_files,
            attributed.location_file,
            attributed.location_address,
            self._locate,
            self._demangle,
        )
        innermost = locations.frame_start[:-1]
        used, which = np.unique(locations.frame_function[innermost], return_inverse=True)
        numbers = [
            self._number(
                _Function(
                    functions.name[row],
                    functions.linkage_name[row],
                    functions.file[row],
                    files[functions.mapped_file[row]],
                )
            )
            for row in used.tolist()
        ]
        function = np.array(numbers, np.int64)[which.reshape(-1)]
        columns = {
            CodeDetail.FUNCTION: [function],
            CodeDetail.LINE: [function, locations.frame_line[innermost].astype(np.int64)],
            CodeDetail.INSTRUCTION: [
                function,
                np.array([self._files.setdefault(file, len(self._files)) for file in files])[locations.mapped_file],
                locations.address.view(np.int64),
            ],
        }[self._detail]
        distinct, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
        rows = [self._rows.setdefault(tuple(key), len(self._rows)) for key in distinct.T.tolist()]
        location = attributed.stack_location[attributed.stack_start[attributed.sample_stack]]
        return np.array(rows, np.int64)[which.reshape(-1)][location]

    def _attribute(self, addresses: U64, pids: NDArray[np.uint32]) -> AttributedStacks:
        """Each address as a sample of its own, whose stack is that address."""
        any_time = np.full(len(addresses), _ANY_TIME, np.uint64)
        samples, stacks = address_tables(addresses, pids, any_time)
        return attribute_stacks(samples, stacks, self._mappings, self._spaces)

    def _number(self, function: _Function) -> int:
        return self._functions.setdefault(function, len(self._functions))

    def places(self) -> list[tuple[str, str, str, int]]:
        """Function, source file, path of the mapped file, and line (0: none) of each row; not of instructions."""
        functions = [
            (function.name, function.source_file, function.mapped_file.path if function.mapped_file else "")
            for function in self._functions
        ]
        return [(*functions[number], rest[0] if rest else 0) for number, *rest in self._rows]

    def names(self) -> list[str]:
        """Of the functions, with file and line or the address where rows are these."""
        functions = list(self._functions)
        if self._detail is CodeDetail.FUNCTION:
            return [functions[number].name for (number,) in self._rows]
        if self._detail is CodeDetail.LINE:
            return [
                f"{functions[number].name} {functions[number].source_file or '??'}:{line or '?'}"
                for number, line in self._rows
            ]
        return [f"{functions[number].name} 0x{address % 2**64:x}" for number, _, address in self._rows]
