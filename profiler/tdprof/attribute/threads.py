"""Which process a thread belongs to, for records that name the thread alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tdprof.model.arrays import U32, U64
from tdprof.model.profile import NO_ID
from tdprof.model.spe import NO_TID


class ThreadOwners:
    """Which process a thread belongs to.

    A thread that side-band does not name is taken for a process's first; a record without a thread belongs to the only
    process there is, if there is one.

    Args:
        mappings, processes: a capture's tables.
    """

    def __init__(self, mappings: pa.Table, processes: pa.Table) -> None:
        self._pid_of = dict(zip(processes["tid"].to_pylist(), processes["pid"].to_pylist(), strict=True))
        mapped = set(mappings["pid"].to_pylist())
        self._pid_of[NO_TID] = mapped.pop() if len(mapped) == 1 else NO_ID

    def pids(self, tids: U64) -> U32:
        """uint32[n]: the process of each thread, ``NO_ID`` where nothing tells."""
        distinct, which = np.unique(tids, return_inverse=True)
        pids: U32 = np.array([self._pid_of.get(tid, tid) for tid in distinct.tolist()], np.uint32)
        return pids[which.reshape(-1)]
