"""What the BPF rung spooled: rows of aggregated samples, and call stacks. Layouts: bpf/sample.h, capture/spool.py."""

import ctypes
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tdprof.capture.spool import FRAME_HEADER, FRAME_MAGIC, MAX_FRAME_ROWS, frame_checksum
from tdprof.decode.spooled_files import SpoolDamage, spooled_bytes, spooled_pieces
from tdprof.decode.stack_walks import WALK
from tdprof.linux.file_bytes import FileBytes, open_regular
from tdprof.model.arrays import U64
from tdprof.native.bpf_stacks import BpfStacksResult
from tdprof.native.library import load_native
from tdprof.values import dataclass

_Batch = TypeVar("_Batch")

MAX_STACK_DEPTH = 255
_RING_HEADER, _STACK_HEADER = 8, 24
_OLD_STACK_HEADER = 16  # until stacks said how they ended: hash, depth, is_kernel, as 64 and 32 bits
_SEARCH_BYTES = 1 << 20
_BUSY, _DISCARD = 1 << 31, 1 << 30

KEY = np.dtype(
    [
        ("user_stack", "<u8"),
        ("kernel_stack", "<u8"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("event", "<u4"),  # below CPU_SHIFT; above it a CPU's number and one, above STATE_SHIFT a `ThreadState`
        ("cgroup", "<u4"),
        ("comm", "S16"),
    ]
)
CPU_SHIFT, STATE_SHIFT = 10, 24
VALUE = np.dtype([("count", "<u8"), ("weight", "<u8")])


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Aggregated rows.

    Attributes:
        time_ns: uint64[n], end of the interval of each.
        keys: ``KEY``[n].
        values: ``VALUE``[n].
    """

    time_ns: U64
    keys: NDArray[np.void]
    values: NDArray[np.void]


@dataclass(frozen=True, slots=True)
class StackBatch:
    """Call stacks in the order they were sent; a stack may come again.

    Attributes:
        hash: uint64[n], what rows refer to it by.
        walk: ``WALK``[n], how each was found; its depth is that of ``start``.
        start: uint64[n + 1], addresses of stack i are ``address[start[i]:start[i + 1]]``, leaf first.
        address: uint64.
    """

    hash: U64
    walk: NDArray[np.void]
    start: U64
    address: U64


# What the rows of all frames so far may become when they are unpacked; they shrink to a tenth.
_ROWS_TO_FRAME, _SPARE_ROW_BYTES = 32, 1 << 20
# Of bytes that look like frames and are none so much is read, as often as the file is long.
_WASTED_TO_FILE = 64


def read_rows(path: Path, damage: SpoolDamage) -> Iterator[RowBatch]:
    """Rows of all whole frames of ``rows.bpf``, many frames at a time; bad ones are counted and the next is searched.

    What all frames together become is bounded, and so is what is read of frames that turn out to be none.
    """
    if not path.exists():
        return
    fd = open_regular(path, flags=os.O_NOFOLLOW)
    data = FileBytes(fd)
    data.size = spooled_bytes(path, fd, damage)
    search = _MagicSearch(data)
    may_waste = _WASTED_TO_FILE * data.size
    may_become = _SPARE_ROW_BYTES
    at = rows = 0
    pending: list[RowBatch] = []
    while at < data.size:
        batch, size = _read_frame(data, at, may_become)
        if batch is None:
            # A frame cut short by an interrupted recording, or foreign bytes: go on at the next magic number.
            may_waste -= size
            size = (search.next(at + 1) if may_waste >= 0 else data.size) - at
            damage.bytes += size
        else:
            may_become += _ROWS_TO_FRAME * size - batch.keys.nbytes - batch.values.nbytes
            pending.append(batch)
            rows += len(batch.keys)
        at += size
        if rows >= MAX_FRAME_ROWS:
            yield _joined(pending)
            pending, rows = [], 0
    if pending:
        yield _joined(pending)


def _joined(batches: list[RowBatch]) -> RowBatch:
    columns = ([getattr(batch, name) for batch in batches] for name in RowBatch.__slots__)
    return RowBatch(*(np.concatenate(parts) for parts in columns))


class _MagicSearch:
    """Finds where frames may begin, from front to back; reads each byte about once."""

    def __init__(self, data: FileBytes) -> None:
        self._data = data
        self._start = 0
        self._piece = b""

    def next(self, at: int) -> int:
        """The first magic number from ``at`` on, which never goes back; else the end of the file."""
        while at < self._data.size:
            if at + len(FRAME_MAGIC) > self._start + len(self._piece):
                self._start, self._piece = at, bytes(self._data.read(at, _SEARCH_BYTES))
            found = self._piece.find(FRAME_MAGIC, at - self._start)
            if found >= 0:
                return self._start + found
            at = max(at + 1, self._start + len(self._piece) - len(FRAME_MAGIC) + 1)
        return self._data.size


def _read_frame(data: FileBytes, at: int, may_become: int) -> tuple[RowBatch | None, int]:
    """The frame at a place and its size; None if there is none, and how many bytes were read to tell."""
    header = bytes(data.read(at, FRAME_HEADER.size))
    if len(header) < FRAME_HEADER.size:
        return None, len(header)
    magic, rows, time_ns, size, checksum = FRAME_HEADER.unpack(header)
    want = rows * (KEY.itemsize + VALUE.itemsize)
    if (
        magic != FRAME_MAGIC
        or rows > MAX_FRAME_ROWS
        or at + FRAME_HEADER.size + size > data.size
        or want > _ROWS_TO_FRAME * size + may_become
    ):
        return None, FRAME_HEADER.size
    payload = bytes(data.read(at + FRAME_HEADER.size, size))
    whole = FRAME_HEADER.size + size
    if frame_checksum(header, payload) != checksum:
        return None, whole
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(payload, want + 1)
    except zlib.error:
        return None, whole
    if len(raw) != want:
        return None, whole
    keys = np.frombuffer(raw, KEY, rows)
    values = np.frombuffer(raw, VALUE, rows, offset=rows * KEY.itemsize)
    return RowBatch(np.full(rows, time_ns, np.uint64), keys, values), whole


def read_stacks(path: Path, damage: SpoolDamage, chunk_bytes: int = 8 << 20) -> Iterator[StackBatch]:
    """Every whole stack of ``stacks.bpf``, a chunk of the file at a time; what is left over at its end is damage."""
    decode = _decode_native if load_native() else decode_stacks_python
    return read_ring_file(path, damage, decode, chunk_bytes)


def read_ring_file(
    path: Path, damage: SpoolDamage, decode: Callable[[bytes], tuple[_Batch, int, int]], chunk_bytes: int
) -> Iterator[_Batch]:
    """What ``decode`` makes of a file of ring-buffer records, if there is one: (batch, bytes consumed, damaged)."""
    rest = b""
    for chunk in spooled_pieces(path, damage, chunk_bytes):
        rest += chunk
        batch, consumed, damaged = decode(rest)
        damage.stacks += damaged
        rest = rest[consumed:]
        yield batch
    damage.bytes += len(rest)


def decode_stacks_python(data: bytes) -> tuple[StackBatch, int, int]:
    """The records at the beginning of ``data``: (stacks, bytes consumed, records damaged). Reference of the C."""
    hashes, walks, starts, addresses = [], [], [0], []
    records, consumed, damaged = ring_records(data)
    for record in records:
        header = _header_size(record)
        if not header:
            damaged += 1
            continue
        # A frame pointer chain may end in a return address of 0, which is no frame.
        chain = np.trim_zeros(np.frombuffer(record, "<u8", offset=header), "b")
        walk = np.zeros(1, WALK)
        if header == _STACK_HEADER:
            walk = np.frombuffer(record, WALK, 1, offset=8).copy()
        else:
            walk["is_kernel"] = record[12:16] != bytes(4)
        walk["depth"] = len(chain)
        hashes.append(int.from_bytes(record[:8], "little"))
        walks.append(walk)
        addresses.append(chain)
        starts.append(starts[-1] + len(chain))
    joined = np.concatenate(addresses) if addresses else np.empty(0, np.uint64)
    batch = StackBatch(
        np.array(hashes, np.uint64),
        np.concatenate(walks) if walks else np.empty(0, WALK),
        np.array(starts, np.uint64),
        joined.astype(np.uint64),
    )
    return batch, consumed, damaged


def ring_records(data: bytes) -> tuple[list[bytes], int, int]:
    """The BPF ring buffer's records at the beginning of ``data``: (those committed, bytes consumed, those not)."""
    records = []
    at = busy = 0
    while len(data) - at >= _RING_HEADER:
        word = int.from_bytes(data[at : at + 4], "little")
        length = word & ~(_BUSY | _DISCARD)
        whole = _RING_HEADER + (length + 7) // 8 * 8
        if whole > len(data) - at:
            break
        if not word & _DISCARD:
            busy += bool(word & _BUSY)
            if not word & _BUSY:
                records.append(data[at + _RING_HEADER : at + _RING_HEADER + length])
        at += whole
    return records, at, busy


def _header_size(record: bytes) -> int:
    """Bytes before the addresses; 0 if the record is none of a stack."""
    if len(record) >= _OLD_STACK_HEADER:
        depth = int.from_bytes(record[8:10], "little")
        if depth <= MAX_STACK_DEPTH and len(record) - 8 * depth in (_STACK_HEADER, _OLD_STACK_HEADER):
            return len(record) - 8 * depth
    return 0


def _decode_native(data: bytes) -> tuple[StackBatch, int, int]:
    """As ``decode_stacks_python``, compiled."""
    library = load_native()
    assert library is not None
    capacity = len(data) // (_RING_HEADER + _OLD_STACK_HEADER) + 1
    hashes, walks = np.empty(capacity, np.uint64), np.empty(capacity, WALK)
    starts, addresses = np.empty(capacity + 1, np.uint64), np.empty(len(data) // 8 + 1, np.uint64)
    result = BpfStacksResult()
    library.tdprof_bpf_stacks(
        data,
        len(data),
        capacity,
        hashes.ctypes.data,
        walks.ctypes.data,
        starts.ctypes.data,
        addresses.ctypes.data,
        ctypes.addressof(result),
    )
    n, total = result.stacks, result.addresses
    batch = StackBatch(hashes[:n].copy(), walks[:n].copy(), starts[: n + 1].copy(), addresses[:total].copy())
    return batch, result.consumed, result.damaged
