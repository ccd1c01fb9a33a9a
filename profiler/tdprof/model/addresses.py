"""Code addresses: the files they lie in, what was found for them, and why nothing was."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum

import numpy as np

from tdprof.model.arrays import I32, U8, U32, U64
from tdprof.values import dataclass

# From here on addresses are the kernel's on the 64-bit machines that perf and SPE know.
KERNEL_ADDRESS = np.uint64(1 << 63)


NO_BEGIN = np.uint64(2**64 - 1)

INTERPRETED_ADDRESS = np.uint64(1 << 56)
"""From here on addresses are numbers of places in interpreted code; no machine that is known has memory there."""
PYTHON = "[python]"
"""The path of what CPython interprets."""
JAVA = "[java]"
"""The path of what JVMs interpret, and of what they compile, which is code made at run time."""
INTERPRETED_PATHS = (PYTHON, JAVA)
"""Of each language whose interpreter's frames are walked."""

DELETED = " (deleted)"
"""What the kernel appends to the path of a mapped file that is gone."""


class FileKind(StrEnum):
    """What kind of code a mapping holds, which decides where its symbols come from."""

    ELF = "elf"  # a user-space executable or library
    KERNEL = "kernel"  # the kernel's own text
    KERNEL_MODULE = "kernel-module"
    VDSO = "vdso"
    ANONYMOUS = "anonymous"  # memory without a file: code made at run time
    INTERPRETED = "interpreted"  # no machine code at all: the functions of a language that an interpreter runs


@dataclass(frozen=True, slots=True)
class MappedFile:
    """One file (or file-like origin) of code that samples fell into.

    Attributes:
        path: the path in the recorded process's mount namespace, or ``[kernel]``, ``[vdso]``, ``[anon]``.
        build_id: GNU build-id in lower-case hex, or empty where the recording could not tell.
        kind: what it is.
        pid: the process the code belongs to where that matters (anonymous code), else 0.
    """

    path: str
    build_id: str = ""
    kind: FileKind = FileKind.ELF
    pid: int = 0


class Unknown(IntEnum):
    """Why an address has no function. Stored as uint8 beside each location."""

    KNOWN = 0
    NO_MAPPING = 1  # no mapping of the process covers the address
    NO_FILE = 2  # the mapped file cannot be found or read
    WRONG_BUILD_ID = 3  # another file has the path: it was replaced, or the process had another root
    STRIPPED = 4  # the file has no symbols and no debug data was found
    NO_SYMBOL = 5  # the file has symbols, none covers the address
    DAMAGED = 6  # the file's symbol data cannot be read
    NO_PERF_MAP = 7  # code made at run time, and its program left no map of it
    HIDDEN_KERNEL = 8  # kernel symbols were not readable when recording (kptr_restrict)


@dataclass(frozen=True, slots=True)
class Locations:
    """What each of n looked-up addresses is: its inlined frames, innermost first.

    Attributes:
        frame_start: uint32[n + 1]; address i has the frames ``frame_start[i]:frame_start[i + 1]``; none if unknown.
        function: int32[m], index into ``strings``: the linkage (mangled) name.
        file: int32[m], index into ``strings``, or -1: the line's.
        line: uint32[m], 0 where there is none.
        reason: uint8[n], an ``Unknown``.
        strings: names and paths.
        begin: uint64[n], where the function begins that an address without frames is in, in what was looked up;
            ``NO_BEGIN`` where that is not known. None: nowhere.
        end: uint64[n], likewise, where what begins at ``begin`` ends, if that is no function but all the code between
            those that are known; ``NO_BEGIN`` elsewhere. None: everywhere.
        own_file: int32[m], as ``file``: the one that the function stands in, whose lines may come from others
            (``#include`` in its body, ``#line``). None: those of the lines.
    """

    frame_start: U32
    function: I32
    file: I32
    line: U32
    reason: U8
    strings: Sequence[str]
    begin: U64 | None = None
    end: U64 | None = None
    own_file: I32 | None = None

    @property
    def own_files(self) -> I32:
        """``own_file``, whether or not it differs from the lines' files."""
        return self.file if self.own_file is None else self.own_file
