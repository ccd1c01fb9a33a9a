"""What side-band tells of processes and threads over time: address spaces, forks, names; as columns, for there may be
as many as a file has bytes."""

from array import array
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.model.arrays import I32, I64, U32, U64, distinct
from tdprof.values import dataclass

_NONE = -1
_ROWS_AT_ONCE = 1 << 16
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class History:
    """Address spaces, and names of threads. A name is an index into ``names``.

    Attributes:
        names: distinct ones.
        start_ns: uint64[spaces], when each began; 0 if before the recording.
        base: int32[spaces], the space it was forked from, or -1.
        pid, space: uint32, int32[spaces], sorted by process, and then as they began.
        named_space, space_name: int32[k], sorted by space: names of threads seen in it.
        change_tid, change_ns, change_name: uint32, uint64, int32[c], sorted by thread and time: names given.
        process_name: processes, sorted, and the last name of each one's first thread.
    """

    names: list[str]
    start_ns: U64
    base: I32
    pid: U32
    space: I32
    named_space: I32
    space_name: I32
    change_tid: U32
    change_ns: U64
    change_name: I32
    process_name: tuple[U32, I32]

    @property
    def space_count(self) -> int:
        """How many address spaces there are."""
        return len(self.space)

    def spaces_of(self, pids: U32) -> tuple[I64, I64]:
        """Where the spaces of each process begin and end in ``space``."""
        return np.searchsorted(self.pid, pids), np.searchsorted(self.pid, pids, "right")

    def spaces_at(self, pids: U32, time_ns: U64) -> I32:
        """int32[n]: the space that each process had at a time, when something began at that very time the new one."""
        times, rank = _ranked(self.start_ns[self.space])
        keys = self.pid.astype(np.uint64) << _HALF | rank
        at = np.searchsorted(keys, keys_at(pids, times, time_ns), "right") - 1
        return np.append(self.space, _NONE)[np.maximum(at, np.searchsorted(self.pid, pids))].astype(np.int32)

    def names_in(self, space: int) -> list[str]:
        """Names of threads seen in a space."""
        first, end = np.searchsorted(self.named_space, [space, space + 1])
        return [self.names[name] for name in distinct(self.space_name[first:end]).tolist()]

    def names_at(self, tids: U32, time_ns: U64) -> I32:
        """int32[n]: the name of each thread at a time, else the first after it, else -1."""
        times, rank = _ranked(self.change_ns)
        keys = self.change_tid.astype(np.uint64) << _HALF | rank
        at = np.searchsorted(keys, keys_at(tids, times, time_ns), "right") - 1
        at = np.maximum(at, np.searchsorted(self.change_tid, tids))
        is_known = np.append(self.change_tid, 0)[at] == tids
        is_known &= at < len(keys)
        return np.where(is_known, np.append(self.change_name, _NONE)[at], _NONE).astype(np.int32)

    def last_names(self, pids: U32) -> I32:
        """int32[n]: the last name of each process, or -1."""
        known, name = self.process_name
        at = np.searchsorted(known, pids)
        is_known = np.append(known, 0)[at] == pids
        is_known &= at < len(known)
        return np.where(is_known, np.append(name, _NONE)[at], _NONE).astype(np.int32)


def _ranked(time_ns: U64) -> tuple[U64, U64]:
    """The distinct times, and the number of each, from 1."""
    times = distinct(time_ns)
    return times, (np.searchsorted(times, time_ns) + 1).astype(np.uint64)


def keys_at(numbers: U32 | U64, times: U64, time_ns: U64) -> U64:
    """uint64[n]: the lower half of each number, with how many of the times, which are sorted, are up to another's.

    Of what began at these times, and is sorted by such keys, the last one up to a key is what there was then.
    """
    return numbers.astype(np.uint64) << _HALF | np.searchsorted(times, time_ns, "right").astype(np.uint64)


def replay(processes: pa.Table, mapping_pid: U32, mapping_ns: U64) -> History:
    """Follow a capture's table of processes in time order; at equal times in the table's.

    Args:
        processes: the table.
        mapping_pid, mapping_ns: of the mappings: what a process mapped before it is known to have begun, it mapped in
            an address space from before the recording.
    """
    columns = {name: processes[name].fill_null(0).to_numpy() for name in ("pid", "tid", "parent_pid", "parent_tid")}
    ids, numbers = np.unique(np.concatenate([*columns.values(), mapping_pid]), return_inverse=True)
    cuts = np.arange(1, 5) * len(processes)
    pid, tid, parent_pid, parent_tid, mapped = np.split(numbers.astype(np.int32).reshape(-1), cuts)
    kind, kinds = _coded(processes["kind"])
    name, names = _coded(processes["name"])
    is_fork = np.isin(kind, [at for at, text in enumerate(kinds) if text == "fork"])
    is_fork &= processes["parent_pid"].is_valid().to_numpy()
    is_exec = np.isin(kind, [at for at, text in enumerate(kinds) if text == "exec"])
    name[~is_exec & ~np.isin(kind, [at for at, text in enumerate(kinds) if text == "name"])] = _NONE
    time_ns = processes["time_ns"].to_numpy()
    begins = is_exec | (is_fork & (pid != parent_pid))

    replayed = _Replay(len(ids))
    first_ns, has_begun = np.full(len(ids), 2**64 - 1, np.uint64), np.zeros(len(ids), bool)
    np.minimum.at(first_ns, pid[begins], time_ns[begins])
    has_begun[pid[begins]] = True
    for early in distinct(mapped[(mapping_ns < first_ns[mapped]) | ~has_begun[mapped]]).tolist():
        replayed.space_of(early)
    order = np.argsort(time_ns, kind="stable")
    for rows in _pieces_of(order):
        parts = (time_ns, is_fork, is_exec, pid, tid, parent_pid, parent_tid, name)
        for row in zip(*(part[rows].tolist() for part in parts), strict=True):
            replayed.apply(*row)
    return replayed.history(ids, names)


def _pieces_of(order: I64) -> Iterator[I64]:
    return (order[at : at + _ROWS_AT_ONCE] for at in range(0, len(order), _ROWS_AT_ONCE))


def _coded(column: pa.ChunkedArray) -> tuple[I32, list[str]]:
    """The number of each row's text (-1: null), and the texts."""
    encoded = column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    return encoded.indices.fill_null(_NONE).to_numpy().astype(np.int32), encoded.dictionary.to_pylist()


class _Replay:
    """What is known at one time. Processes and threads are small numbers here."""

    def __init__(self, ids: int) -> None:
        self._space_of = array("i", [_NONE]) * ids  # the space of each process now
        self._name_of = array("i", [_NONE]) * ids  # the name of each thread now
        self._process_name = array("i", [_NONE]) * ids
        self._pid, self._start_ns, self._base = array("i"), array("Q"), array("i")
        self._named_space, self._space_name = array("i"), array("i")
        self._change_tid, self._change_ns, self._change_name = array("i"), array("Q"), array("i")

    def apply(
        self,
        time_ns: int,
        is_fork: bool,
        is_exec: bool,
        pid: int,
        tid: int,
        parent_pid: int,
        parent_tid: int,
        name: int,
    ) -> None:
        """One row of the table."""
        if is_fork:
            if parent_pid != pid:
                self._begin(pid, time_ns, self._space_of[parent_pid])
            name = self._name_of[parent_tid]
        elif is_exec:
            self._begin(pid, time_ns, _NONE)
        if name == _NONE:
            return
        self._named_space.append(self.space_of(pid))
        self._space_name.append(name)
        self._change_tid.append(tid)
        self._change_ns.append(time_ns)
        self._change_name.append(name)
        self._name_of[tid] = name
        if pid == tid:
            self._process_name[pid] = name

    def space_of(self, pid: int) -> int:
        """The address space of a process now; if nothing is known, one from before the recording."""
        if self._space_of[pid] == _NONE:
            self._begin(pid, 0, _NONE)
        return self._space_of[pid]

    def _begin(self, pid: int, time_ns: int, base: int) -> None:
        self._space_of[pid] = len(self._pid)
        self._pid.append(pid)
        self._start_ns.append(time_ns)
        self._base.append(base)

    def history(self, ids: U32, names: list[str]) -> History:
        """All of it; ``ids`` are the processes and threads that the numbers stand for, sorted."""
        pid, tid = np.array(self._pid, np.int32), np.array(self._change_tid, np.int32)
        named_space = np.array(self._named_space, np.int32)
        spaces, by_space = np.argsort(pid, kind="stable"), np.argsort(named_space, kind="stable")
        by_tid = np.argsort(tid, kind="stable")
        process_name = np.array(self._process_name, np.int32)
        return History(
            names,
            np.array(self._start_ns, np.uint64),
            np.array(self._base, np.int32),
            ids[pid[spaces]],
            spaces.astype(np.int32),
            named_space[by_space],
            np.array(self._space_name, np.int32)[by_space],
            ids[tid[by_tid]],
            np.array(self._change_ns, np.uint64)[by_tid],
            np.array(self._change_name, np.int32)[by_tid],
            (ids[process_name >= 0], process_name[process_name >= 0]),
        )
