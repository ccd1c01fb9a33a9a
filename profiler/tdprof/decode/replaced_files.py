"""Files that took each other's addresses while samples were added up: when was mapped what a stack leads through."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.capture.spool import REPLACED, UNCERTAIN
from tdprof.decode.bpf_aggregates import RowBatch
from tdprof.decode.spooled_files import SpoolDamage, spooled_beginning
from tdprof.model.arrays import U64, distinct

_MOST_BYTES = 64 << 20  # recorders write some hundred entries a second at most
_HALF = np.uint64(32)


class ReplacedFiles:
    """Of one recording.

    Args:
        path: the spool's file; there need be none.
        damage: counts what cannot be read.
    """

    def __init__(self, path: Path, damage: SpoolDamage) -> None:
        data = spooled_beginning(path, damage, _MOST_BYTES)
        damage.bytes += len(data) % REPLACED.size
        pid, time_ns = np.frombuffer(data, "<u8", len(data) // REPLACED.size * 2).reshape(-1, 2).T
        is_uncertain = (pid & np.uint64(UNCERTAIN)) != 0
        self._ended_ns = distinct(time_ns[is_uncertain])
        ended = np.searchsorted(self._ended_ns, time_ns[is_uncertain]).astype(np.uint64)
        self._uncertain = distinct(pid[is_uncertain] << _HALF | ended)  # process, and place in `_ended_ns`
        pid, time_ns = pid[~is_uncertain], time_ns[~is_uncertain]
        self._time_ns = distinct(time_ns)
        # Process, and number of the time among those, from 1; sorted.
        self._when = distinct(pid << _HALF | np.searchsorted(self._time_ns, time_ns, "right").astype(np.uint64))
        self._copy = np.empty(0, np.uint64)  # identities of stacks that were copied, sorted
        self._copied_ns = np.empty(0, np.uint64)

    def __bool__(self) -> bool:
        return len(self._when) > 0

    def add_copies(self, identity: U64, time_ns: U64) -> None:
        """Tell when stacks were copied: theirs is the time of the copy."""
        if self:
            identity, time_ns = np.append(self._copy, identity), np.append(self._copied_ns, time_ns)
            order = np.argsort(identity, kind="stable")
            self._copy, self._copied_ns = identity[order], time_ns[order]

    def are_uncertain(self, rows: RowBatch) -> NDArray[np.bool_]:
        """bool[n]: whose stacks may have been walked by the tables of files that were not mapped any more."""
        if not len(self._uncertain):
            return np.zeros(len(rows.keys), bool)
        at = np.minimum(np.searchsorted(self._ended_ns, rows.time_ns), len(self._ended_ns) - 1)
        is_in = np.isin(rows.keys["pid"].astype(np.uint64) << _HALF | at.astype(np.uint64), self._uncertain)
        is_copy = np.isin(rows.keys["user_stack"], self._copy)  # walked later, by what was mapped then
        found: NDArray[np.bool_] = is_in & (self._ended_ns[at] == rows.time_ns) & ~is_copy
        return found

    def mapped_ns(self, rows: RowBatch) -> pa.Array:
        """The column ``mapped_ns`` of some rows: null of processes of which nothing of the kind is told.

        An interval that ends at a time that was noted is still of what was there before.
        """
        pid = rows.keys["pid"].astype(np.uint64)
        is_told = np.isin(pid, self._when >> _HALF)
        before = np.searchsorted(self._time_ns, rows.time_ns, "left").astype(np.uint64)
        at = np.searchsorted(self._when, pid << _HALF | before, "right") - 1
        when = self._when[np.maximum(at, 0)]
        is_first = (at < 0) | (when >> _HALF != pid)
        number = (when & np.uint64(2**32 - 1)).astype(np.int64) - 1
        found = np.where(is_first, 0, self._time_ns[number])
        if len(self._copy):
            at = np.minimum(np.searchsorted(self._copy, rows.keys["user_stack"]), len(self._copy) - 1)
            found = np.where(self._copy[at] == rows.keys["user_stack"], self._copied_ns[at], found)
        return pa.array(found.astype(np.uint64), mask=~is_told)
