"""Which process a thread belongs to, for records that name the thread alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tdprof.attribute.process_history import keys_at
from tdprof.model.arrays import U32, U64, distinct, group_rows
from tdprof.model.profile import NO_ID
from tdprof.model.spe import NO_TID, Stages


class ThreadOwners:
    """Which process a thread belongs to at a time: the kernel gives ids of threads that ended to others.

    A thread that side-band does not name is taken for a process's first; a record without a thread belongs to the only
    process there is, if there is one.

    Args:
        mappings, processes: a capture's tables.
    """

    def __init__(self, mappings: pa.Table, processes: pa.Table) -> None:
        tid, pid, time_ns = (processes[name].to_numpy() for name in ("tid", "pid", "time_ns"))
        order = np.argsort(tid, kind="stable")  # the table is in order of time
        tid, pid = tid[order], pid[order]
        is_first = np.append(True, tid[1:] != tid[:-1])[: len(tid)]
        begins = is_first | np.append(False, pid[1:] != pid[:-1])[: len(tid)]
        self._tid, self._pid = tid[begins].astype(np.uint64), pid[begins]
        self._start_ns = np.where(is_first, 0, time_ns[order])[begins].astype(np.uint64)
        self._times = distinct(self._start_ns)
        self._key = keys_at(self._tid, self._times, self._start_ns)
        mapped = distinct(mappings["pid"].to_numpy())
        self._only = int(mapped[0]) if len(mapped) == 1 else NO_ID

    def pids(self, tids: U64, time_ns: U64) -> U32:
        """uint32[n]: the process of each thread at a time, ``NO_ID`` where nothing tells."""
        at = np.searchsorted(self._key, keys_at(tids, self._times, time_ns), "right") - 1
        is_known = (at >= 0) & (np.append(self._tid, np.uint64(NO_TID))[at] == tids)
        pids: U32 = np.where(is_known, np.append(self._pid, np.uint32(0))[at], tids.astype(np.uint32))
        pids[tids == NO_TID] = self._only
        return pids

    def last_pids(self, tids: U64) -> U32:
        """uint32[n]: the last process of each thread, ``NO_ID`` where nothing tells."""
        return self.pids(tids, np.full(len(tids), 2**63 - 1, np.uint64))

    def stages(self, pid: U32, time_ns: U64) -> Stages:
        """The stages of all threads: of their processes, and where a thread's id comes to another process.

        Args:
            pid, time_ns: of ``AddressSpaces.turns``.
        """
        unnamed = np.setdiff1d(np.append(pid.astype(np.uint64), np.uint64(NO_TID)), self._tid)
        tid, owner = np.append(self._tid, unnamed), np.append(self._pid, self.last_pids(unnamed))
        order = np.argsort(owner, kind="stable")
        first, end = (np.searchsorted(owner[order], pid, side) for side in ("left", "right"))
        threads = end - first
        places = np.repeat(end - np.cumsum(threads), threads) + np.arange(threads.sum())
        is_later = self._start_ns > 0
        of_all = np.append(tid[order[places]], self._tid[is_later])
        turn_ns = np.append(np.repeat(time_ns, threads), self._start_ns[is_later])
        rows, start = group_rows(of_all, turn_ns)
        return Stages(of_all[rows[start]], turn_ns[rows[start]])
