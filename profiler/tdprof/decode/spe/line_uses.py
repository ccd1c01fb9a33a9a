"""A closer look at some cache lines: who touches which words of them, from which code, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from arm_spe import ColumnMemory, Kind, RecordBatch, RecordDecoder
from arm_spe.groups import GroupTable
from arm_spe.memory_keys import physical_address
from tdprof.decode.spe.row_sums import LINE_BYTES, hide_foreign_contexts, stamped_threads, thread_of
from tdprof.decode.spe.spans import AuxSpan, SpeInput
from tdprof.model.addresses import KERNEL_ADDRESS
from tdprof.model.arrays import I64, U64
from tdprof.values import dataclass

# Payload of an operation packet (Arm ARM, load/store class): the extended kind, with AT set.
_ATOMIC_BITS, _ATOMIC = 0xE6, 0x06
_CPU = np.uint64(40)  # where a CPU's number stands in a user's, above the thread's 33 bits
NO_CPU = (1 << 24) - 1
"""In `LineUses.cpu`."""
_WORD_SHIFT = np.uint64(3)
_IN_LINE = np.uint64(LINE_BYTES // 8 - 1)
_HALF = np.uint64(32)
_BATCH_RECORDS = 1 << 14
_MOST_CODES = 1 << 20  # instructions, by thread: those after them are not told apart
_MOST_KEPT = 1 << 21  # accesses in their order, of all lines: 48 MiB
_KEPT_EACH = 256  # of a line
_KEPT = np.dtype([("line", "u4"), ("user", "u4"), ("time", "u8"), ("chance", "u4"), ("is_store", "?")])


@dataclass(frozen=True, slots=True)
class CacheLines:
    """Cache lines, distinct.

    Attributes:
        number: uint64[n], address / LINE_BYTES.
        is_physical: bool[n], whether that is the physical address; else records with a physical one are not its.
        is_ordered: bool[n], whether the order of its accesses is wanted.
    """

    number: U64
    is_physical: NDArray[np.bool_]
    is_ordered: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LineUses:
    """How cache lines were used: n ways, of u users.

    Attributes:
        line: int64[n], position in the lines that were asked for.
        word: int64[n], which eight bytes of it.
        user: int64[n].
        code: int64[n], row of ``pc``.
        is_store: bool[n], of atomic operations, too, which may be marked as loads of what was there.
        count: int64[n], operations.
        tid: uint64[u].
        cpu: uint64[u], where the user's address is the kernel's and the CPU is known; else ``NO_CPU``.
        address_line: uint64[u], data address / LINE_BYTES.
        pc, pc_thread: uint64[m], instructions, and their threads with their stages.
        kept: accesses in their order: ``line``, ``user``, ``time`` in ticks, ``is_store``; by line and time. Of a line
            with very many a share that chance chose.
    """

    line: I64
    word: I64
    user: I64
    code: I64
    is_store: NDArray[np.bool_]
    count: I64
    tid: U64
    cpu: U64
    address_line: U64
    pc: U64
    pc_thread: U64
    kept: np.ndarray


class _Kept:
    """Accesses with their times, as many of each line as there is room for."""

    def __init__(self) -> None:
        self._parts, self._rows, self._each = [np.empty(0, _KEPT)], 0, _KEPT_EACH
        self._chance = np.random.default_rng(0)

    def add(self, line: I64, user: I64, time: U64, is_store: NDArray[np.bool_]) -> None:
        part = np.empty(len(line), _KEPT)
        chance = self._chance.integers(0, 1 << 32, len(line), np.uint32)
        for name, values in zip(_KEPT.names or (), (line, user, time, chance, is_store), strict=True):
            part[name] = values
        self._parts.append(part)
        self._rows += len(part)
        if self._rows > _MOST_KEPT:
            self._thin()
            while self._rows > _MOST_KEPT // 2:
                self._each //= 2
                self._thin()

    def _thin(self) -> None:
        """Of each line those of the least chance, whenever they came."""
        rows = np.concatenate(self._parts)
        rows = rows[np.lexsort((rows["chance"], rows["line"]))]
        first = np.searchsorted(rows["line"], rows["line"])
        self._parts = [rows[np.arange(len(rows)) - first < self._each]]
        self._rows = len(self._parts[0])

    def finish(self) -> np.ndarray:
        self._thin()
        rows = self._parts[0]
        return rows[np.lexsort((rows["user"], rows["time"], rows["line"]))]


def look_at_lines(source: SpeInput, lines: CacheLines) -> LineUses:
    """Accesses of these lines by word, user, instruction, and whether they store.

    Args:
        source: the data; without lines it is not read. With stages instructions are told apart by them.
        lines: those wanted.
    """
    users, codes, ways, counts, kept = GroupTable(), GroupTable(), GroupTable(), np.zeros(0, np.int64), _Kept()
    keys = _line_keys(lines.number, lines.is_physical)
    order = np.argsort(keys)
    wanted = keys[order]
    for batch, span in _batches(source) if len(wanted) else ():
        address, has_physical = batch["va"].view(np.uint64), batch.has(Kind.PA)
        key = address // np.uint64(LINE_BYTES)
        if has_physical.any():
            pa = batch["pa"].view(np.uint64)
            physical, is_physical = physical_address(address, pa, has_physical & batch.has(Kind.VA))
            key = _line_keys(np.where(is_physical, physical // np.uint64(LINE_BYTES), key), is_physical)
        at = np.minimum(np.searchsorted(wanted, key), len(wanted) - 1)
        rows = np.flatnonzero(batch.has(Kind.VA) & (batch["op_class"] == 1) & (wanted[at] == key))
        line, address = order[at[rows]], address[rows]
        op = batch["op"].view(np.uint8)[rows]
        is_store = (op & 1 != 0) | (op & _ATOMIC_BITS == _ATOMIC)
        tid = thread_of(batch, span, source)[rows]
        cpu = np.where(address >= KERNEL_ADDRESS, NO_CPU if span.cpu is None else span.cpu & NO_CPU, NO_CPU)
        user = users.number(cpu.astype(np.uint64) << _CPU | tid, address // np.uint64(LINE_BYTES)).astype(np.uint64)
        stamped = stamped_threads(batch, span, source)
        pc, thread = batch["pc"].view(np.uint64)[rows], tid if stamped is None else stamped[rows]
        if len(codes) > _MOST_CODES:
            pc, thread = np.zeros_like(pc), np.zeros_like(thread)
        code = codes.number(pc, thread).astype(np.uint64)
        place = line.astype(np.uint64) << np.uint64(4) | (address >> _WORD_SHIFT & _IN_LINE) << np.uint64(1)
        way = ways.number(place | is_store, user << _HALF | code)
        if len(ways) > len(counts):
            counts = np.pad(counts, (0, 2 * len(ways) - len(counts)))
        np.add.at(counts, way, 1)
        if lines.is_ordered.any():
            is_kept = lines.is_ordered[line] & batch.has(Kind.TS)[rows]
            times = batch["timestamp"].view(np.uint64)[rows]
            kept.add(line[is_kept], user[is_kept].astype(np.int64), times[is_kept], is_store[is_kept])
    place, who = ways.first, ways.second
    return LineUses(
        line=(place >> np.uint64(4)).astype(np.int64),
        word=(place >> np.uint64(1) & _IN_LINE).astype(np.int64),
        user=(who >> _HALF).astype(np.int64),
        code=(who & np.uint64(2**32 - 1)).astype(np.int64),
        is_store=(place & np.uint64(1)) != 0,
        count=counts[: len(ways)],
        tid=users.first & np.uint64((1 << 40) - 1),
        cpu=users.first >> _CPU,
        address_line=users.second.copy(),
        pc=codes.first.copy(),
        pc_thread=codes.second.copy(),
        kept=kept.finish(),
    )


def _line_keys(number: U64, is_physical: NDArray[np.bool_]) -> U64:
    """uint64[n]: one number for a line; those of data addresses have 58 bits."""
    return number | is_physical.astype(np.uint64) << np.uint64(62)


def _batches(source: SpeInput) -> Iterator[tuple[RecordBatch, AuxSpan]]:
    memory = ColumnMemory(_BATCH_RECORDS)
    for span in source.spans:
        for batch in RecordDecoder(span.data, memory=memory):
            hide_foreign_contexts(batch, source)
            yield batch, span
        source.files.forget(span.data)
