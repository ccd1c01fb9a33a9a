"""Reads what the BPF programs sent of Python frames and code objects. Layouts: bpf/python_frames.h."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tdprof.capture.spool import CODES_FILE, PYTHON_FILE, PYTHON_STACKS_FILE
from tdprof.decode.bpf_aggregates import read_ring_file, ring_records
from tdprof.decode.side_band import NONSENSE, whole_number
from tdprof.decode.spooled_files import SpoolDamage, spooled_lines
from tdprof.model.arrays import I64, U64
from tdprof.values import dataclass

FRAME = np.dtype([("code", "<u8"), ("instruction", "<u4"), ("call", "<u4")])
CALL_ENTRY, CALL_WAITS = 1, 2  # PYTHON_CALL_ENTRY, PYTHON_CALL_WAITS
_STACK = np.dtype([("stack", "<u8"), ("process", "<u4"), ("count", "<u2"), ("is_cut", "<u2")])
CODE = np.dtype(
    [
        ("code", "<u8"),
        ("process", "<u4"),
        ("first_line", "<u4"),
        ("line_bytes", "<u4"),
        ("name_bytes", "<u2"),
        ("path_bytes", "<u2"),
        ("name", "u1", 256),
        ("path", "u1", 512),
    ]
)
MOST_FRAMES, MOST_LINE_BYTES = 192, 4096
PROCESS_BITS = 22  # PYTHON_PROCESS_BITS
_CHUNK_BYTES = 8 << 20
MOST_SPANS = 8  # parts of the evaluation loop; a compiler makes two
_MOST_PROCESS_BYTES = 16 << 20
# An object's text begins behind its header: of ASCII text and of other text, before CPython 3.12 and from then on.
_TEXT_HEADERS, _OLD_TEXT_HEADERS = (40, 56), (48, 72)
_LENGTH, _STATE = 16, 32


@dataclass(frozen=True, slots=True)
class PythonProcess:
    """A process that was found to run CPython, until it executes something else.

    Attributes:
        version: major and minor.
        mapped: where the file was mapped that has it.
        time_ns: when it was found.
        loops: parts of the evaluation loop, run-time addresses: start and end.
        switchers: likewise, of libraries that give a thread several native stacks.
    """

    version: tuple[int, int]
    mapped: int
    time_ns: int
    loops: tuple[tuple[int, int], ...]
    switchers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A code object.

    Attributes:
        function: its qualified name; empty: not known.
        file: source file, likewise.
        first_line: of its source.
        lines: its table of lines.
        is_cut: there is more of that.
    """

    function: str
    file: str
    first_line: int
    lines: bytes
    is_cut: bool


@dataclass(frozen=True, slots=True)
class PythonStacks:
    """Python frames of stacks, leaf first.

    Attributes:
        stack: uint64[n], the identity of each stack, sorted.
        process: uint32[n], with the execution above its number: ``PROCESS_BITS``.
        is_cut: bool[n], there were more.
        first_interpreters: of processes that only the BPF programs knew: by number, which program each executes, and
            where it has ``first_interpreter``.
        start: int64[n + 1], frames of stack i are ``frames[start[i]:start[i + 1]]``.
        frames: ``FRAME``.
    """

    stack: U64
    process: NDArray[np.uint32]
    is_cut: NDArray[np.bool_]
    start: I64
    frames: NDArray[np.void]
    first_interpreters: dict[int, tuple[int, int]]


def read_processes(
    spool: Path, damage: SpoolDamage, first_interpreters: Mapping[int, tuple[int, int]]
) -> dict[int, PythonProcess]:
    """By process and execution. What does not make sense is left out.

    ``first_interpreters``: of `PythonStacks`; these processes are as the program of that number was told.
    """
    found: dict[int, PythonProcess] = {}
    programs: dict[int, tuple[int, PythonProcess]] = {}
    for line in spooled_lines(spool / PYTHON_FILE, damage, _MOST_PROCESS_BYTES):
        try:
            each = json.loads(line)
            major, minor = (whole_number(number, 32) for number in each["version"])
            loops, switchers = _spans(each["loops"]), _spans(each.get("switchers", []))
            mapped, time_ns = whole_number(each["mapped"]), whole_number(each["time_ns"])
            process = PythonProcess((major, minor), mapped, time_ns, loops, switchers)
            if "program" in each:
                programs[whole_number(each["program"], 32)] = whole_number(each["first"]), process
            else:
                found[whole_number(each["process"], 32)] = process
        except NONSENSE:
            continue
    for number, (program, first) in first_interpreters.items():
        if number not in found and program in programs:
            told, process = programs[program]
            found[number] = _moved(process, first - told)
    return found


def _moved(process: PythonProcess, distance: int) -> PythonProcess:
    """Likewise at other addresses, which are of 64 bits."""

    def moved(address: int) -> int:
        return address + distance & 0xFFFF_FFFF_FFFF_FFFF

    loops = tuple((moved(start), moved(end)) for start, end in process.loops)
    return replace(process, mapped=moved(process.mapped), loops=loops)


def _spans(found: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((whole_number(start), whole_number(end)) for start, end in found[:MOST_SPANS])


def read_stacks(spool: Path, damage: SpoolDamage) -> PythonStacks:
    """All of a spool; each stack once."""
    heads, frames = [np.zeros(0, _STACK)], [np.zeros(0, FRAME)]
    for records in read_ring_file(spool / PYTHON_STACKS_FILE, damage, ring_records, _CHUNK_BYTES):
        for record in records:
            head = np.frombuffer(record[: _STACK.itemsize].ljust(_STACK.itemsize, b"\0"), _STACK)
            count = int(head["count"][0])
            if count > MOST_FRAMES or len(record) != _STACK.itemsize + FRAME.itemsize * count:
                damage.stacks += 1
                continue
            heads.append(head)
            frames.append(np.frombuffer(record, FRAME, count, _STACK.itemsize))
    all_heads, all_frames = np.concatenate(heads), np.concatenate(frames)
    ends = np.cumsum(all_heads["count"].astype(np.int64))
    stack, first = np.unique(all_heads["stack"], return_index=True)
    stack, first = stack[stack != 0], first[stack != 0]
    lengths = all_heads["count"][first].astype(np.int64)
    start = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.repeat(ends[first] - lengths - start[:-1], lengths) + np.arange(start[-1])
    chosen = all_heads[first]
    return PythonStacks(
        stack,
        chosen["process"].copy(),
        chosen["is_cut"] != 0,
        start,
        all_frames[rows],
        _first_interpreters(all_heads, all_frames, ends),
    )


def _first_interpreters(heads: NDArray[np.void], frames: NDArray[np.void], ends: I64) -> dict[int, tuple[int, int]]:
    """Of `PythonStacks`: what stands where a stack would, under the identity that none has."""
    of_processes = (heads["stack"] == 0) & (heads["count"] == 1)
    place = frames[ends[of_processes] - 1]
    columns = heads["process"][of_processes], place["instruction"], place["code"]
    rows = zip(*(each.tolist() for each in columns), strict=True)
    return {process: (program, first) for process, program, first in rows}


def read_codes(
    spool: Path, damage: SpoolDamage, versions: dict[int, tuple[int, int]]
) -> dict[int, tuple[int, CodeObject]]:
    """Code objects by identity, each with its process and execution; of those that are known.

    Args:
        spool: the folder.
        damage: counts what cannot be read.
        versions: of CPython in each of these.
    """
    codes = {}
    for records in read_ring_file(spool / CODES_FILE, damage, ring_records, _CHUNK_BYTES):
        for record in records:
            if not CODE.itemsize <= len(record) <= CODE.itemsize + MOST_LINE_BYTES:
                damage.stacks += 1
                continue
            head = np.frombuffer(record, CODE, 1)[0]
            version = versions.get(int(head["process"]))
            if version is None:
                continue
            name = head["name"].tobytes()[: int(head["name_bytes"])]
            path = head["path"].tobytes()[: int(head["path_bytes"])]
            lines = record[CODE.itemsize :]
            code = CodeObject(
                _text(name, version),
                _text(path, version),
                int(head["first_line"]),
                lines,
                is_cut=int(head["line_bytes"]) > len(lines),
            )
            codes[int(head["code"])] = int(head["process"]), code
    return codes


def _text(data: bytes, version: tuple[int, int]) -> str:
    """The text of a str object, of which there are so many bytes; empty where it makes no sense."""
    if len(data) < _STATE + 4:
        return ""
    length, state = int.from_bytes(data[_LENGTH : _LENGTH + 8], "little"), int.from_bytes(data[_STATE:][:4], "little")
    # Whether it is interned takes 2 bits, and in some builds 8 or 16, of which all but the lowest two are 0.
    kind, is_compact, is_ascii = next(
        (fields for shift in (2, 8, 16) if (fields := _text_fields(state >> shift))[0]), (0, 0, 0)
    )
    encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(kind)
    if not is_compact or encoding is None:
        return ""
    at = (_TEXT_HEADERS if version >= (3, 12) else _OLD_TEXT_HEADERS)[0 if is_ascii else 1]
    text = data[at : at + length * kind]
    found = text.decode(encoding, errors="replace")
    return found if len(text) == length * kind else f"{found}…"


def _text_fields(state: int) -> tuple[int, int, int]:
    return state & 7, state >> 3 & 1, state >> 4 & 1
