"""Blocks of memory as rows of a report, and whose memory they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from arm_spe.groups import GroupTable
from arm_spe.memory_keys import split_memory_keys
from arm_spe.tallied import NO_ROW
from arm_spe.tally import NOTHING
from tdprof.model.addresses import KERNEL_ADDRESS
from tdprof.model.arrays import I64, U32, U64, distinct
from tdprof.model.profile import NO_ID
from tdprof.model.spe import NO_TID, MemoryUser
from tdprof.text import plural

KERNEL_MEMORY = np.uint64(NO_TID)
"""In `MemoryOwners.of`: above every process's number."""
_ROW_BITS = np.uint64(31)  # of a key that is a process, of 33 bits, and a row


class MemoryOwners:
    """In whose memory a thread's addresses are: the same address is the same memory in one process only.

    Args:
        pids: the processes of threads, as `ThreadOwners.last_pids` has them; None: all threads are one's.
        names: of processes, where they are known.
    """

    def __init__(
        self, pids: Callable[[U64], U32] | None, names: Callable[[U32], dict[int, str]] = lambda _: {}
    ) -> None:
        self._pids = pids
        self._names = names

    def of(self, tids: U64, blocks: U64, block_bytes: int) -> U64:
        """uint64[n]: a number for each memory: of the process, or the kernel's, which all threads share.

        Args:
            tids: uint64[n], who touched it.
            blocks: uint64[n], the numbers of the blocks of so many bytes that the addresses are in.
        """
        owners = np.zeros(len(tids), np.uint64) if self._pids is None else self._pids(tids).astype(np.uint64)
        owners[blocks >= KERNEL_ADDRESS // np.uint64(block_bytes)] = KERNEL_MEMORY
        return owners

    def names(self, owners: U64) -> dict[int, str]:
        """What each of these memories is called."""
        own = distinct(owners[owners < NO_ID])
        known = self._names(own.astype(np.uint32))
        return {pid: known.get(pid, "") for pid in own.tolist()} | {int(KERNEL_MEMORY): "kernel", NO_ID: ""}


def memory_user(owner: int, names: Mapping[int, str], address: int, threads: int) -> MemoryUser:
    """Of a memory's number, and the names of all of them; modulo 2^64, as addresses are."""
    return MemoryUser(owner if 0 < owner < NO_ID else None, names[owner], address % 2**64, threads)


class BlockRows:
    """Rows by cache line or page: by physical address where records have one, else by data address.

    Args:
        block_bytes: size of one.
        owners: of memory.
    """

    def __init__(self, block_bytes: int, owners: MemoryOwners) -> None:
        self._block_bytes = block_bytes
        self._owners = owners
        self._blocks = GroupTable()
        self._memories = GroupTable()  # of each row's block, in each process
        self._users = [np.zeros(0, np.uint32)]  # the memory of each thread that touched it
        self._touched = GroupTable()  # of physical rows: row, thread

    def place(self, first: U64, second: U64) -> I64:
        """Keys of `Key.ADDRESS`. Each pair counts once as a thread that touched the block."""
        rows = np.full(len(first), NO_ROW, np.int64)
        has_address = first != NOTHING
        keys = split_memory_keys(first[has_address], second[has_address], self._block_bytes)
        number = np.where(keys.is_physical, keys.physical, keys.block)
        rows[has_address] = self._blocks.number(number, keys.is_physical.astype(np.uint64))
        is_told = keys.thread != NO_TID
        row, block, tid = rows[has_address][is_told].astype(np.uint64), keys.block[is_told], keys.thread[is_told]
        owners = self._owners.of(tid, block, self._block_bytes)
        self._users.append(self._memories.number(row | owners << _ROW_BITS, block))
        if (is_physical := keys.is_physical[is_told]).any():
            self._touched.number(row[is_physical], tid[is_physical])
        return rows

    def threads(self) -> U64:
        """uint64[rows]: known threads that touched each; where several processes did at a data address, those of the
        one with most."""
        most = np.zeros(len(self._blocks), np.uint64)
        threads = np.bincount(np.concatenate(self._users), minlength=len(self._memories)).astype(np.uint64)
        np.maximum.at(most, self._memory_rows, threads)
        of_memory = np.bincount(self._touched.first.astype(np.int64), minlength=len(most)).astype(np.uint64)
        return np.where(self.is_physical, of_memory, most)

    def processes(self) -> Callable[[int], list[MemoryUser]]:
        """Of a row: which process knows it by which address, those with most threads first."""
        threads = np.bincount(np.concatenate(self._users), minlength=len(self._memories))
        row, owner = self._memory_rows, self._memories.first >> _ROW_BITS
        order = np.lexsort((self._memories.second, owner, -threads, row))
        memory_row = row[order]
        columns = [each[order] for each in (owner, self._memories.second, threads)]
        names = self._owners.names(owner)

        def of_row(wanted: int) -> list[MemoryUser]:
            start, end = np.searchsorted(memory_row, [wanted, wanted + 1]).tolist()
            each = zip(*(column[start:end].tolist() for column in columns), strict=True)
            return [memory_user(pid, names, number * self._block_bytes, count) for pid, number, count in each]

        return of_row

    def are_of_processes(self, rows: I64) -> NDArray[np.bool_]:
        """bool[n]: whether each of some rows is physical, and several processes have it at addresses of their own."""
        if not self.is_physical[rows].any():
            return np.zeros(len(rows), bool)
        is_own = self._memories.first >> _ROW_BITS != KERNEL_MEMORY
        views = np.bincount(self._memory_rows[is_own], minlength=len(self._blocks))
        found: NDArray[np.bool_] = self.is_physical[rows] & (views[rows] > 1)
        return found

    def notes(self, operations: U64) -> list[str]:
        """Whether rows add up what is not one memory; ``operations`` are each row's."""
        is_summed = (np.bincount(self._memory_rows, minlength=len(self._blocks)) > 1) & ~self.is_physical
        notes = []
        if several := int(is_summed.sum()):
            what = "the sum over processes, in each of which the address is other memory unless they share it"
            notes.append(f"{plural(several, 'row', 's')}: {what}")
        if self.is_physical.any():
            notes.append(
                "rows 'pa' are by physical address: one memory, whichever processes map it, as long as it is theirs"
            )
            rest = int(operations[~self.is_physical[: len(operations)]].sum())
            if rest:
                without = f"{plural(rest, 'operation', 's')} with a data address but no physical one"
                notes.append(f"{without}: in rows by data address")
        return notes

    @property
    def _memory_rows(self) -> I64:
        """int64[memories]: the row of each."""
        return (self._memories.first & ((np.uint64(1) << _ROW_BITS) - np.uint64(1))).astype(np.int64)

    @property
    def blocks(self) -> U64:
        """uint64: number of each row's block."""
        return self._blocks.first

    @property
    def is_physical(self) -> NDArray[np.bool_]:
        """bool[rows]: whether that is of a physical address."""
        found: NDArray[np.bool_] = self._blocks.second != 0
        return found

    def names(self, rows: I64) -> list[str]:
        """The blocks' addresses."""
        columns = self.blocks[rows].tolist(), self.is_physical[rows].tolist()
        return [
            f"{'pa ' if is_physical else ''}0x{number * self._block_bytes:x}"
            for number, is_physical in zip(*columns, strict=True)
        ]
