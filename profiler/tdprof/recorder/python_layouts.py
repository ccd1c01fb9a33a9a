"""Where the structures of each CPython keep what its frames are walked by.

From 3.13 on the interpreter says so itself (``_Py_DebugOffsets``, Include/internal/pycore_debug_offsets.h); before, the
offsets are those of its headers on 64-bit machines, which do not change within a minor version.
"""

import itertools
import os
import struct
from collections.abc import Sequence
from enum import IntEnum

from tdprof.recorder.bpf.python_walk import NONE, PythonRuntime

OFFSETS_BYTES = 1024  # what is read of the runtime's beginning
_COOKIE = b"xdebugpy"
# `tid` of glibc's struct pthread: its number is not a part of any interface, and has not changed since 2.10.
_PTHREAD_ID = {"x86_64": 720, "aarch64": 208}
# Bytes of the frame that the program reads, and of the widest field.
_FRAME_BYTES = 112
_WORD = 8
_LINE_DISTANCE = 88  # PYTHON_LINE_DISTANCE


# How many numbers describe each of interpreter, thread, frame and code object, which follow each other.
_OWN_FIELDS = {(3, 13): (13, 9, 6, 10), (3, 14): (16, 9, 8, 11)}


class PythonEntry(IntEnum):
    """``enum python_entry`` of bpf/python_frames.h."""

    ALWAYS = 0
    FLAG = 1
    OWNER = 2


class PythonInstruction(IntEnum):
    """``enum python_instruction``."""

    ADDRESS = 0
    INDEX = 1


class UnknownLayoutError(Exception):
    """The text says why a process's frames cannot be walked."""


# Offset of the first interpreter's pointer in _PyRuntime, then `PythonRuntime`'s fields from `next_interpreter` on.
_BY_VERSION = {
    (3, 9): (
        32,
        (0, 8, 8, 176, NONE, 24, NONE, 32, 24, 104, 0, 72, 104, 40, 0, PythonEntry.ALWAYS, PythonInstruction.INDEX, 0),
    ),
    (3, 10): (
        32,
        (0, 8, 8, 176, NONE, 24, NONE, 32, 24, 96, 0, 80, 104, 40, 0, PythonEntry.ALWAYS, PythonInstruction.INDEX, 0),
    ),
    (3, 11): (
        40,
        (0, 16, 8, 160, NONE, 56, 8, 32, 48, 56, 68, 64, 112, 72, 184, PythonEntry.FLAG, PythonInstruction.ADDRESS, 1),
    ),
    (3, 12): (
        40,
        (0, 72, 8, 144, NONE, 56, 0, 0, 8, 56, 70, 0, 112, 68, 192, PythonEntry.OWNER, PythonInstruction.ADDRESS, 1),
    ),
}


def runtime_of(version: tuple[int, int], address: int, beginning: bytes) -> PythonRuntime:
    """How to walk the frames of a process.

    Args:
        version: of its CPython, major and minor.
        address: of ``_PyRuntime`` in the process.
        beginning: the first ``OFFSETS_BYTES`` that stand there.

    Raises:
        UnknownLayoutError: this version's frames are not known.
    """
    if version in _BY_VERSION:
        first, fields = _BY_VERSION[version]
        runtime = PythonRuntime(address + first, 0, 0, 0, *fields)
        if version < (3, 11):  # a thread does not keep its number: the C library does
            number = _PTHREAD_ID.get(os.uname().machine)
            if number is None:
                raise UnknownLayoutError("threads cannot be told on this machine before CPython 3.11")
            runtime.pthread_id = number
        return runtime
    if version < (3, 9):
        raise UnknownLayoutError("CPython before 3.9")
    return _by_own_offsets(version, address, beginning)


def _by_own_offsets(version: tuple[int, int], address: int, beginning: bytes) -> PythonRuntime:
    if len(beginning) < OFFSETS_BYTES or beginning[:8] != _COOKIE:
        raise UnknownLayoutError("its own description of its structures is not there")
    words = struct.unpack_from(f"<{OFFSETS_BYTES // _WORD}Q", beginning)
    told = words[1]
    if (told >> 24, told >> 16 & 0xFF) != version:
        raise UnknownLayoutError("its own description of its structures is another version's")
    if words[2]:
        raise UnknownLayoutError("a free-threaded build")
    sizes = _OWN_FIELDS.get(version)
    if sizes is None:
        raise UnknownLayoutError(f"CPython {version[0]}.{version[1]} is newer than this tdprof")
    interpreter, thread, frame, code = _split(words[6:], sizes)
    head = words[5]
    names = code[1:5]
    if list(names) != [names[0] + _WORD * number for number in range(4)]:
        raise UnknownLayoutError("names do not stand side by side in its code objects")
    if not 4 <= names[0] - code[5] <= _LINE_DISTANCE or names[0] < _LINE_DISTANCE:
        raise UnknownLayoutError("the first line stands far from the names in its code objects")
    fields = (
        interpreter[2],
        interpreter[3],
        thread[2],
        thread[6],
        NONE,
        thread[4],
        NONE,
        frame[2],
        frame[1],
        frame[3],
        frame[5],
        0,
        names[0],
        code[5],
        code[9],
    )
    _check(head, fields, frame)
    return PythonRuntime(address + head, 0, 0, 0, *fields, PythonEntry.OWNER, PythonInstruction.ADDRESS, 1)


def _split(words: Sequence[int], sizes: Sequence[int]) -> list[Sequence[int]]:
    ends = list(itertools.accumulate(sizes))
    return [words[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _check(head: int, fields: Sequence[int], frame: Sequence[int]) -> None:
    """Raises UnknownLayoutError for what cannot be: the process may have written anything there."""
    is_wide = head >= 1 << 24 or any(offset > NONE for offset in fields)
    if is_wide or any(offset > _FRAME_BYTES - _WORD for offset in (*frame[1:4], frame[5])):
        raise UnknownLayoutError("its own description of its structures makes no sense")
