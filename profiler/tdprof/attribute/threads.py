"""Which process a thread belongs to, for records that name the thread alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tdprof.model.arrays import U32, U64, distinct
from tdprof.model.profile import NO_ID
from tdprof.model.spe import NO_TID, Stages


class ThreadOwners:
    """Which process a thread belongs to.

    A thread that side-band does not name is taken for a process's first; a record without a thread belongs to the only
    process there is, if there is one.

    Args:
        mappings, processes: a capture's tables.
    """

    def __init__(self, mappings: pa.Table, processes: pa.Table) -> None:
        tids, pids = processes["tid"].to_numpy()[::-1], processes["pid"].to_numpy()[::-1]
        self._tid, last = np.unique(tids, return_index=True)
        self._pid = pids[last]
        mapped = distinct(mappings["pid"].to_numpy())
        self._only = int(mapped[0]) if len(mapped) == 1 else NO_ID

    def pids(self, tids: U64) -> U32:
        """uint32[n]: the process of each thread, ``NO_ID`` where nothing tells."""
        at = np.searchsorted(self._tid, tids)
        is_known = np.append(self._tid, np.uint32(0))[at] == tids
        is_known &= at < len(self._tid)
        pids: U32 = np.where(is_known, np.append(self._pid, np.uint32(0))[at], tids.astype(np.uint32))
        pids[tids == NO_TID] = self._only
        return pids

    def stages(self, pid: U32, time_ns: U64) -> Stages:
        """The stages of all threads.

        Args:
            pid, time_ns: of ``AddressSpaces.turns``.
        """
        named = np.union1d(self._tid.astype(np.uint64), np.append(pid, NO_TID).astype(np.uint64))
        owner = self.pids(named)
        order = np.argsort(owner, kind="stable")
        first, end = (np.searchsorted(owner[order], pid, side) for side in ("left", "right"))
        threads = end - first
        places = np.repeat(end - np.cumsum(threads), threads) + np.arange(threads.sum())
        return Stages(named[order[places]], np.repeat(time_ns, threads))
