"""Walking stacks that were copied with their registers: many in one call of the compiled walker."""

import ctypes
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tdprof.linux.elf import EM_AARCH64
from tdprof.native import unwind_api
from tdprof.values import dataclass

MOST_FRAMES = 255
# A sample's registers: x86-64 by DWARF number (rax rdx rcx rbx rsi rdi rbp rsp r8 … r15 rip); aarch64 x29 x30 sp pc.
X86_64_WORDS, AARCH64_WORDS = 17, 4

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]


def words_of(machine: int) -> int:
    """Registers of a sample, by ``e_machine``."""
    return AARCH64_WORDS if machine == EM_AARCH64 else X86_64_WORDS


class MappingKind(IntEnum):
    """``enum unwind_mapping_kind``."""

    TABLE = 0
    JIT = 1  # memory of no file
    NO_TABLE = 2
    TRAMPOLINES = 3  # of CPython's -X perf, on x86-64


# struct unwind_mapping: an executable mapping; `table` is a number in the tables of a World.
MAPPING = np.dtype(
    [("start", "<u8"), ("end", "<u8"), ("file_offset", "<u8"), ("table", "<u4"), ("kind", "<u4")], align=True
)


@dataclass(frozen=True, slots=True)
class World:
    """What the walked threads had mapped.

    Attributes:
        spaces: of each address space its executable mappings (``MAPPING``), by address and not overlapping.
        tables: checked tables (``unwind_api.is_table``), which ``MAPPING``'s ``table`` numbers.
    """

    spaces: Sequence[npt.NDArray[np.void]]
    tables: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class CopiedStacks:
    """Samples of one machine, as columns of n.

    Attributes:
        machine: ``e_machine``.
        registers: uint64[n, X86_64_WORDS or AARCH64_WORDS].
        space: uint32[n]: number of the address space in ``World.spaces``.
        stack_start: uint64[n]: where in ``stack`` the copy begins; its first word was at the stack pointer.
        stack_bytes: uint32[n].
        stack: uint8[…]: all copies.
        stack_pages: uint64[n]: bit n: the n-th page of 4 KiB, from the stack pointer's on, is in the copy, the others
            left out; None: no copy has a gap.
        is_leaf_known: whether x86-64's registers are all there, and not rbp, rsp and rip only.
    """

    machine: int
    registers: U64
    space: U32
    stack_start: U64
    stack_bytes: U32
    stack: U8
    is_leaf_known: bool = True
    stack_pages: U64 | None = None


@dataclass(frozen=True, slots=True)
class Walked:
    """Call chains, as columns of n.

    Attributes:
        addresses: uint64[…]: one chain after the other, leaf first: the topmost instruction, then return addresses. An
            instruction that a signal interrupted is its address + 1, so that callers are always looked up one before.
        depth: uint32[n]: addresses of each.
        end: uint8[n]: why it ended, an index of ``unwind_api.end_words()``.
        methods: uint16[n, 3]: callers found by tables, frame pointers, and the link register.
        guessed_from: uint16[n]: index of the first address that is a guess; 0: none is.
    """

    addresses: U64
    depth: U32
    end: U8
    methods: U16
    guessed_from: U16


def walk_stacks(samples: CopiedStacks, world: World, most_frames: int = MOST_FRAMES) -> Walked:
    """Walk all samples; no sample costs anything in Python."""
    count = len(samples.space)
    words = words_of(samples.machine)
    if samples.registers.shape != (count, words):
        raise ValueError(f"registers of shape {samples.registers.shape}, not {(count, words)}")
    columns = [
        np.ascontiguousarray(column, kind)
        for column, kind in (
            (samples.registers, np.uint64),
            (samples.space, np.uint32),
            (samples.stack_start, np.uint64),
            (samples.stack_bytes, np.uint32),
            (samples.stack, np.uint8),
        )
    ]
    pages = None if samples.stack_pages is None else np.ascontiguousarray(samples.stack_pages, np.uint64)
    first = np.cumsum([0, *(len(space) for space in world.spaces)], dtype=np.uint32)
    mappings = np.concatenate([*world.spaces, np.empty(0, MAPPING)]).astype(MAPPING)
    tables = (ctypes.c_char_p * max(len(world.tables), 1))(*world.tables)
    spaces = unwind_api.UnwindWorld(
        first.ctypes.data, mappings.ctypes.data, ctypes.addressof(tables), len(world.spaces), len(world.tables)
    )
    depth, end = np.zeros(count, np.uint32), np.zeros(count, np.uint8)
    methods, guessed_from = np.zeros((count, 3), np.uint16), np.zeros(count, np.uint16)
    chunk = np.empty(max(most_frames * 64, 1 << 18), np.uint64)
    addresses: list[U64] = []
    done = 0
    while done < count:
        given = unwind_api.UnwindSamples(
            columns[0][done:].ctypes.data,
            columns[1][done:].ctypes.data,
            columns[2][done:].ctypes.data,
            columns[3][done:].ctypes.data,
            columns[4].ctypes.data,
            len(columns[4]),
            count - done,
            samples.is_leaf_known,
            samples.machine,
            most_frames,
            None if pages is None else pages[done:].ctypes.data,
        )
        out = unwind_api.UnwindStacks(
            chunk.ctypes.data,
            len(chunk),
            depth[done:].ctypes.data,
            end[done:].ctypes.data,
            methods[done:].ctypes.data,
            guessed_from[done:].ctypes.data,
            None,
        )
        walked = unwind_api.library().tdprof_unwind_walk(ctypes.byref(given), ctypes.byref(spaces), ctypes.byref(out))
        addresses.append(chunk[: int(depth[done : done + walked].sum())].copy())
        done += walked
    return Walked(np.concatenate([*addresses, np.empty(0, np.uint64)]), depth, end, methods, guessed_from)
