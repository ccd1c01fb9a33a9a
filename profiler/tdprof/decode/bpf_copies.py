"""User stacks that the BPF programs copied because no table led through them yet, walked now. Layout: bpf/sample.h."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tdprof.decode.bpf_aggregates import StackBatch, read_ring_file
from tdprof.decode.perf.columns import Copies
from tdprof.decode.perf.walked import Walk
from tdprof.decode.replaced_files import ReplacedFiles
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.decode.stack_walks import WALK
from tdprof.model.arrays import U32, U64
from tdprof.model.stack_ends import StackEnd
from tdprof.native.bpf_stacks import BpfCopies, BpfStacksResult
from tdprof.native.library import load_native
from tdprof.unwind.walk import Walked
from tdprof.values import dataclass

REGISTERS = 17
HEADER_BYTES = 32 + 8 * REGISTERS
_RING_HEADER = 8
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """Copied stacks as columns of n.

    Attributes:
        identity: uint64[n], what rows refer to each by.
        time_ns: uint64[n], CLOCK_MONOTONIC.
        pid: uint32[n].
        copies: the stacks and registers.
    """

    identity: U64
    time_ns: U64
    pid: U32
    copies: Copies


def walk_spooled(path: Path, damage: SpoolDamage, walk: Walk, replaced: ReplacedFiles) -> Iterator[StackBatch]:
    """The stacks of a spool's copies, a chunk of the file at a time, under the identities that rows know them by.

    Args:
        path: the file; there need be none.
        damage: counts what cannot be read.
        walk: how a copy is walked.
        replaced: told when each was made.
    """
    for batch in read_ring_file(path, damage, decode_copies, _CHUNK_BYTES):
        replaced.add_copies(batch.identity, batch.time_ns)
        yield _stacks(batch, walk(batch.pid, batch.time_ns, batch.copies))


def decode_copies(data: bytes) -> tuple[CopyBatch, int, int]:
    """The records at the beginning of ``data``: (copies, bytes consumed, records damaged); compiled only."""
    library = load_native()
    assert library is not None, "stacks are walked in compiled code"
    capacity = len(data) // (_RING_HEADER + HEADER_BYTES) + 1
    identity, time_ns, start, pages = (np.empty(capacity, np.uint64) for _ in range(4))
    registers = np.empty((capacity, REGISTERS), np.uint64)
    pid, size = (np.empty(capacity, np.uint32) for _ in range(2))
    columns = (identity, time_ns, registers, start, pages, pid, size)
    out = BpfCopies(*(column.ctypes.data for column in columns), capacity)
    result = BpfStacksResult()
    library.tdprof_bpf_copies(data, len(data), ctypes.addressof(out), ctypes.addressof(result))
    n = result.stacks
    rows = np.arange(n, dtype=np.uint64)
    copies = Copies(rows, registers[:n], start[:n], size[:n], np.frombuffer(data, np.uint8), pages[:n])
    return CopyBatch(identity[:n], time_ns[:n], pid[:n], copies), result.consumed, result.damaged


def _stacks(batch: CopyBatch, walked: Walked) -> StackBatch:
    walk = np.zeros(len(batch.identity), WALK)
    walk["depth"], walk["end"], walk["guessed_from"] = walked.depth, walked.end, walked.guessed_from
    # No room was left for its memory, which nobody tried to read.
    is_leaf = (batch.copies.stack_bytes == 0) & (batch.copies.stack_pages != 0)
    walk["end"][is_leaf & (walk["end"] == StackEnd.UNREADABLE)] = StackEnd.NO_TABLE
    walk["by_table"], walk["by_fp"], walk["by_lr"] = walked.methods.T
    start = np.concatenate([np.zeros(1, np.uint64), np.cumsum(walked.depth, dtype=np.uint64)])
    return StackBatch(batch.identity, walk, start, walked.addresses)
