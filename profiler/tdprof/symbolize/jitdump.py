"""Dumps of code made at run time, ``jit-PID.dump``, with names and lines, as perf's JVMTI agent and others write them.

Format: tools/perf/Documentation/jitdump-specification.txt in the Linux sources.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tdprof.capture.files import MOST_CODE_FILE_BYTES
from tdprof.linux.file_bytes import read_inside
from tdprof.symbolize.code_index import EMPTY_INDEX, NO_ID, CodeIndex
from tdprof.symbolize.code_versions import CodeVersions, RunTimeCode, find_versions
from tdprof.symbolize.compiled_names import function_of, script_of
from tdprof.symbolize.doubts import meant_in_any_order, shown
from tdprof.symbolize.symbol_table import pack_names, paint_ranges, read_name
from tdprof.symbolize.v8_lines import V8Lines
from tdprof.values import dataclass

_MAGIC = 0x4A695444
_FILE_HEADER = struct.Struct("<IIII")  # magic, version, size of the header, machine
_FLAGS = struct.Struct("<24xQQ")  # behind these and the process: when the dump was begun, and flags
_ARCH_TIMESTAMP = 1  # times are not CLOCK_MONOTONIC, but in units of the machine
_RECORD = struct.Struct("<IIQ")  # kind, size with this header, time
_LOAD = struct.Struct("<IIQQQQ")  # pid, tid, vma, address of the code, its size, index; then name, code
_MOVE = struct.Struct("<IIQQQQQ")  # pid, tid, vma, old address, new address, size, index
_DEBUG = struct.Struct("<QQ")  # address of the code, number of entries
_LINE = struct.Struct("<QII")  # address, line, discriminator; then the file's name
_JIT_CODE_LOAD, _JIT_CODE_MOVE, _JIT_CODE_DEBUG_INFO = 0, 1, 2
_SAME_FILE = b"\xff"  # instead of a name: that of the entry before
# Code that moves takes its lines along. Once all functions together have this many times the dump's, further moves
# leave them behind: a dump may move one function with many lines any number of times.
_LINES_TO_DUMP, _SPARE_LINES = 8, 1 << 16


@dataclass(slots=True)
class _Function:
    address: int
    size: int
    name: str
    lines: list[tuple[int, int, str]]  # address, line, file: as the code first stood
    time_ns: int  # when it came to stand there
    moved: int = 0  # by how many bytes since

    def at(self, address: int, name: str) -> "_Function":
        """The same elsewhere, under another name."""
        moved = self.moved + address - self.address
        return _Function(address, self.size, name, self.lines, self.time_ns, moved)


def read_jitdump(folder: Path, pid: int) -> RunTimeCode | None:
    """The dump of a process in a folder, or None if it has none that can be read."""
    try:
        return parse_jitdump(read_inside(folder, f"jit-{pid}.dump", MOST_CODE_FILE_BYTES))
    except (OSError, ValueError):
        return None


def parse_jitdump(data: bytes) -> RunTimeCode:
    """Read a dump. A record that is cut off ends it.

    Where functions overlap the later one holds at their address, and names the earlier. For who knows when an address
    was sampled, each stands at a place of its own besides (``RunTimeCode.versions``).

    Raises:
        ValueError: it is no dump of a little-endian machine.
    """
    if len(data) < _FILE_HEADER.size or _FILE_HEADER.unpack_from(data)[0] != _MAGIC:
        raise ValueError("not a little-endian jitdump file")
    v8 = V8Lines()
    functions = list(_read_functions(data, _FILE_HEADER.unpack_from(data)[2], v8))
    v8.settle()
    start = np.array([function.address for function in functions], np.uint64)
    size = np.array([function.size for function in functions], np.uint64)
    time_ns = np.array([function.time_ns for function in functions], np.uint64)
    plain = [function.name for function in functions]
    has_times = len(data) >= _FLAGS.size and not _FLAGS.unpack_from(data)[1] & _ARCH_TIMESTAMP
    versions = find_versions(start, size, time_ns, [(name,) for name in plain]) if has_times else None
    for function, meant in zip(functions, meant_in_any_order(start, size, plain), strict=True):
        function.name = shown(meant)
    if versions:
        functions += list(_placed(functions, versions))
        start = np.array([function.address for function in functions], np.uint64)
        size = np.array([function.size for function in functions], np.uint64)
    table = paint_ranges(start, size, [function.name for function in functions])
    with_lines = _within_budget(functions)
    left = len(functions) - len(with_lines)
    note = f"{left} functions that were moved have no lines, since the dump is too complex" if left else ""
    return RunTimeCode(table, _line_index(functions, with_lines), note, versions)


def _placed(functions: list[_Function], versions: CodeVersions) -> Iterator[_Function]:
    """Each version where it is looked up."""
    for places, names in zip(versions.places.tolist(), versions.names, strict=True):
        for row, place, name in zip(versions.row.tolist(), places, names, strict=True):
            yield functions[row].at(place, name)


def _read_functions(data: bytes, position: int, v8: V8Lines) -> Iterator[_Function]:
    view = memoryview(data)
    lines: dict[int, bytes] = {}  # of the function that is loaded next at an address
    loaded: dict[int, _Function] = {}  # by code index
    while position + _RECORD.size <= len(data):
        kind, size, time_ns = _RECORD.unpack_from(data, position)
        body = view[position + _RECORD.size : position + size]
        if size < _RECORD.size or position + size > len(data):
            return
        position += size
        if kind == _JIT_CODE_LOAD and len(body) >= _LOAD.size:
            _, _, _, address, code_size, number = _LOAD.unpack_from(body)
            told, name = lines.pop(address, b""), read_name(body, _LOAD.size)
            if script := script_of(name):
                own = v8.add(script.tier, script.file, told[_DEBUG.size :], range(address, address + code_size))
            else:
                own = [] if v8 else list(_read_lines(told))
            function = _Function(address, code_size, function_of(name), own, time_ns)
            loaded[number] = function
            yield function
        elif kind == _JIT_CODE_MOVE and len(body) >= _MOVE.size:
            *_, old, new, code_size, number = _MOVE.unpack_from(body)
            if number in loaded:
                before = loaded[number]
                moved = before.moved + new - old
                loaded[number] = _Function(new, code_size, before.name, before.lines, time_ns, moved)
                yield loaded[number]
        elif kind == _JIT_CODE_DEBUG_INFO and len(body) >= _DEBUG.size:
            lines[_DEBUG.unpack_from(body)[0]] = bytes(body)


def _read_lines(body: bytes) -> Iterator[tuple[int, int, str]]:
    if not body:
        return
    at, count, file = _DEBUG.size, _DEBUG.unpack_from(body)[1], ""
    for _ in range(count):
        if at + _LINE.size > len(body):
            return
        address, line, _ = _LINE.unpack_from(body, at)
        end = body.find(b"\0", at + _LINE.size)
        name = body[at + _LINE.size : end if end >= 0 else len(body)]
        at += _LINE.size + len(name) + 1
        file = file if name == _SAME_FILE else name.decode("utf-8", "replace")
        yield address, line, file


def _within_budget(functions: list[_Function]) -> set[int]:
    """The functions, by number, whose lines are taken."""
    told = {id(function.lines): len(function.lines) for function in functions}  # what moves shares its lines
    budget = _SPARE_LINES + _LINES_TO_DUMP * sum(told.values())
    taken = set()
    for number, function in enumerate(functions):
        budget -= len(function.lines)
        if budget >= 0 or not function.lines:
            taken.add(number)
    return taken


def _line_index(functions: list[_Function], with_lines: set[int]) -> CodeIndex:
    """The functions' lines as an index whose nodes are the functions."""
    rows: list[tuple[int, int, int, int]] = []  # address, function, file, line
    files: dict[str, int] = {}
    for number, function in enumerate(functions):
        lines = function.lines if number in with_lines else ()
        end = function.address + function.size
        here = ((at + function.moved, line, file) for at, line, file in lines)
        inside = sorted(row for row in here if function.address <= row[0] < end)
        if inside:
            # A function is in one file, or it would be several: what is in others was inlined, and has no line here.
            own = inside[0][2]
            number_of_file = files.setdefault(own, len(files))
            rows.append((function.address, number, number_of_file, 0))
            rows += [(at, number, number_of_file, line if file == own else 0) for at, line, file in inside]
        rows.append((end, -1, 0, 0))
    # Of functions at one address, the last loaded; an end gives way to whatever starts there.
    latest = {at: (function, file, line) for at, function, file, line in sorted(rows, key=lambda row: row[1])}
    if not files:
        return EMPTY_INDEX
    starts = sorted(latest)
    values = [latest[at] for at in starts]
    nobody = np.array([function < 0 for function, _, _ in values])
    function_text, function_name = pack_names([function.name for function in functions])
    file_text, file_name = pack_names(list(files))
    count = len(functions)
    return CodeIndex(
        range_start=np.array(starts, np.uint64),
        range_node=np.where(nobody, NO_ID, np.array([max(f, 0) for f, _, _ in values])).astype(np.uint32),
        range_file=np.where(nobody, NO_ID, np.array([file for _, file, _ in values])).astype(np.uint32),
        range_line=np.array([line for _, _, line in values], np.uint32),
        node_function=np.arange(count, dtype=np.uint32),
        node_file=np.full(count, NO_ID, np.uint32),
        node_parent=np.full(count, NO_ID, np.uint32),
        node_call_file=np.full(count, NO_ID, np.uint32),
        node_call_line=np.zeros(count, np.uint32),
        function_name=function_name,
        file_name=file_name,
        function_text=memoryview(function_text),
        file_text=memoryview(file_text),
    )
