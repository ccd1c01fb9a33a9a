"""The values and column sets that flow between stages, with their units."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]


class FileKind(StrEnum):
    """What kind of code a mapping holds, which decides where its symbols come from."""

    ELF = "elf"  # a user-space executable or library
    KERNEL = "kernel"  # the kernel's own text
    KERNEL_MODULE = "kernel-module"
    VDSO = "vdso"
    ANONYMOUS = "anonymous"  # memory without a file: code made at run time


@dataclass(frozen=True, slots=True)
class MappedFile:
    """One file (or file-like origin) of code that samples fell into.

    Attributes:
        path: the path in the recorded process's mount namespace, or ``[kernel]``, ``[vdso]``, ``[anon]``.
        build_id: GNU build-id in lower-case hex, or empty where the recording could not tell.
        kind: what it is.
        pid: the process the code belongs to where that matters (anonymous code; files of a container), else 0.
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
    WRONG_BUILD_ID = 3  # the file was replaced since the recording
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
        file: int32[m], index into ``strings``, or -1.
        line: uint32[m], 0 where there is none.
        reason: uint8[n], an ``Unknown``.
        strings: names and paths.
    """

    frame_start: U32
    function: I32
    file: I32
    line: U32
    reason: U8
    strings: Sequence[str]


class Unit(StrEnum):
    """The unit in which an event counts; pprof's and speedscope's spelling is up to the exporter."""

    NANOSECONDS = "nanoseconds"
    COUNT = "count"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event as it was recorded.

    Attributes:
        name: as given, or tdprof's canonical name.
        unit: what one unit of weight is.
        period: events per sample asked for, or 0 in frequency mode.
        frequency_hz: samples per second asked for, or 0 in period mode.
        total: exact count from ``read()``, over all tasks and CPUs; None if it could not be read.
        enabled_ns, running_ns: multiplexing times that go with ``total``; None with it.
    """

    name: str
    unit: Unit
    period: int = 0
    frequency_hz: int = 0
    total: int | None = None
    enabled_ns: int | None = None
    running_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Losses:
    """Samples and records that a capture does not hold, by the way they went missing. Each is a count."""

    samples_map_full: int = 0  # the kernel-side table had no room
    samples_ring_full: int = 0  # PERF_RECORD_LOST(_SAMPLES) on a sampling ring buffer
    samples_outside_namespace: int = 0  # the process is not in the recorder's pid namespace
    user_stacks_unreadable: int = 0  # the sample is counted, with no user call chain
    kernel_stacks_unreadable: int = 0
    stack_id_collisions: int = 0  # two stacks with one hash: the sample is counted, with no call chain
    stacks_truncated: int = 0  # deeper than the kernel's limit (perf_event_max_stack)
    side_band_records_lost: int = 0
    throttled: int = 0  # times the kernel stopped an event for interrupting too often
    bytes_damaged: int = 0  # of the capture's own files, when read
    by_reason: dict[str, int] = field(default_factory=dict)  # others, named by their source
