"""Functions, files, lines and inlined calls of a Go program by the table that it carries, also stripped."""

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np

from tdprof.linux.elf import Elf
from tdprof.linux.go_module import MAGIC_1_16, GoModule, find_go_module, section_at
from tdprof.model.arrays import I64, U32, U64, distinct
from tdprof.native.go_lines import NODE_COLUMNS, RANGE_COLUMNS, GoColumns, GoFunctions
from tdprof.native.library import load_native
from tdprof.symbolize.code_index import EMPTY_INDEX, NO_ID, CodeIndex
from tdprof.symbolize.symbol_table import EMPTY_TABLE, SymbolTable, make_table

_NO_TREES = 2**64 - 1
# A function's values are read once, and again for each call that is inlined into it.
_STEPS_TO_BYTES, _SPARE_STEPS = 64, 1 << 20
# A place takes two bytes of a table at least, but functions may share one.
_FIRST_ROWS, _BYTES_TO_ROW, _SPARE_ROWS = 1 << 12, 2, 1 << 16


def open_go_lines(elf: Elf) -> "GoLines | None":
    """What a file's Go table says; None where it has none that is known."""
    module = find_go_module(elf)
    return GoLines(elf, module) if module else None


class GoLines:
    """Of one file. ``is_spent``: some functions' lines were not read, since the table asks for too much."""

    def __init__(self, elf: Elf, module: GoModule) -> None:
        self._module = module
        self._data = elf.section_data(module.table)
        inlined = None if module.inlined is None else section_at(elf, module.inlined)
        self._inlined = elf.section_data(inlined) if inlined else memoryview(b"")
        self._inlined_base = module.inlined - inlined.address if inlined and module.inlined else _NO_TREES
        self._asked: U64 = np.zeros(0, np.uint64)
        self._index = EMPTY_INDEX
        self.is_spent = False

    def functions(self) -> SymbolTable:
        """All of them; names as in Go's own stack traces."""
        module, width = self._module, 8 if self._module.magic == MAGIC_1_16 else 4
        lines = self._data[min(module.lines, len(self._data)) :]
        cells = np.frombuffer(lines, f"<u{width}", len(lines) // width)
        count = min(module.functions, (len(cells) - 1) // 2 if len(cells) else 0)
        if count <= 0:
            return EMPTY_TABLE
        start = cells[: 2 * count : 2].astype(np.uint64)
        end = cells[2 : 2 * count + 1 : 2].astype(np.uint64)
        name_place = cells[1 : 2 * count : 2].astype(np.uint64) + np.uint64(width)  # behind where the function begins
        words = np.frombuffer(lines, "<u4", len(lines) // 4)
        known = (end > start) & (name_place % np.uint64(4) == 0) & (name_place // np.uint64(4) < len(words))
        rows = np.flatnonzero(known)
        names = self._names()
        name = words[name_place[rows] // np.uint64(4)].astype(np.uint64)
        letters = np.frombuffer(names, np.uint8)
        is_named = name < len(letters)
        is_named[is_named] = letters[name[is_named]] != 0
        rows, name = rows[is_named], name[is_named]
        return make_table(start[rows] + np.uint64(module.text), (end - start)[rows], name, names)

    def index_for(self, addresses: U64) -> CodeIndex:
        """Lines and inlined calls of the functions that some ELF addresses, and those asked for before, fall into."""
        wanted = distinct(np.concatenate([self._asked, addresses]))
        if len(wanted) > len(self._asked):
            self._asked, self._index = wanted, self._read(wanted)
        return self._index

    def _names(self) -> memoryview:
        module = self._module
        end = module.units if module.units > module.names else len(self._data)
        return self._data[min(module.names, len(self._data)) : end]

    def _read(self, wanted: U64) -> CodeIndex:
        library = load_native()
        assert library is not None, "is_available() was not asked"
        module = self._module
        data, inlined = (np.frombuffer(part, np.uint8) for part in (self._data, self._inlined))
        table = GoFunctions(
            data=data.ctypes.data,
            inlined=inlined.ctypes.data,
            size=len(data),
            inlined_size=len(inlined),
            inlined_base=self._inlined_base,
            text=module.text,
            functions=module.functions,
            units=module.units,
            files=module.files,
            values=module.values,
            lines=module.lines,
            magic=module.magic,
            quantum=module.quantum,
        )
        steps = _STEPS_TO_BYTES * len(data) + _SPARE_STEPS
        rows, most = _FIRST_ROWS, len(data) // _BYTES_TO_ROW + _SPARE_ROWS
        while True:
            arrays = _arrays(rows)
            columns = GoColumns(range_room=rows, node_room=rows, steps=steps)
            for name, array in arrays.items():
                setattr(columns, name, array.ctypes.data)
            is_full = library.tdprof_go_lines(
                ctypes.byref(table), wanted.ctypes.data or 1, len(wanted), ctypes.byref(columns)
            )
            if not is_full or rows == most:
                break
            rows = min(4 * rows, most)
        if is_full and columns.ranges:  # what follows the last place is not known
            arrays["range_node"][columns.ranges - 1] = arrays["range_file"][columns.ranges - 1] = NO_ID
        self.is_spent = self.is_spent or not columns.steps or bool(is_full)
        columns_read = {name: array[: columns.ranges] for name, array in arrays.items() if name in RANGE_COLUMNS}
        columns_read |= {name: array[: columns.nodes] for name, array in arrays.items() if name in NODE_COLUMNS}
        return self._make_index(columns_read)

    def _make_index(self, columns: dict[str, Any]) -> CodeIndex:
        """The columns with numbers of names instead of their places."""
        function_name, function = _number([columns["node_function"]])
        file_name, file = _number([columns["range_file"], columns["node_call_file"]])
        names, ranges = self._names(), len(columns["range_file"])
        files = self._data[min(self._module.files, len(self._data)) :]
        index = replace(
            EMPTY_INDEX,
            range_start=columns["range_start"].copy(),
            range_node=columns["range_node"].copy(),
            range_file=file[:ranges],
            range_line=columns["range_line"].copy(),
            node_function=function,
            node_file=np.full(len(function), NO_ID),
            node_parent=columns["node_parent"].copy(),
            node_call_file=file[ranges:],
            node_call_line=columns["node_call_line"].copy(),
            function_name=np.minimum(function_name, np.uint64(max(len(names) - 1, 0))),
            file_name=file_name,
            function_text=names,
            file_text=files,
        )
        return index if len(names) and len(files) else EMPTY_INDEX


def _arrays(rows: int) -> dict[str, Any]:
    kinds: dict[str, Any] = {"range_start": np.uint64, "node_tree": np.int32}
    return {name: np.empty(rows, kinds.get(name, np.uint32)) for name in RANGE_COLUMNS + NODE_COLUMNS}


def _number(columns: list[U32]) -> tuple[U64, U32]:
    """The distinct places but for ``NO_ID``, and all columns, one behind the other, as numbers of them."""
    places = np.concatenate(columns)
    known = distinct(places[places != NO_ID])
    number: I64 = np.searchsorted(known, places)
    return known.astype(np.uint64), np.where(places == NO_ID, NO_ID, number).astype(np.uint32)
