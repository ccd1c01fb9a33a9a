"""Which address space a sample belongs to, and which mapping an address in it falls into.

An address space is a process between two execs. Forked children share their parent's mappings up to the fork, so a
child's space only holds what it mapped itself and points at its parent's for the rest.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.model.arrays import I32, I64, U64, distinct

_NONE = -1
# Mappings cut each other to pieces, and look-ups follow forks back: of real processes hardly, of made-up ones up to
# the square of their number. So many pieces and steps for each, and so many besides; what exceeds that is left out.
_PIECES_EACH, _SPARE_PIECES = 64, 1 << 20
_FORKS_EACH, _SPARE_FORKS = 32, 1 << 18
_SPARE_COMPARISONS = 1 << 27
ANY_TIME = 2**63 - 1
"""Later than all that a recording has: of what was mapped one after the other the last counts."""


@dataclass(slots=True)
class _Space:
    """One address space.

    Attributes:
        pid: its process.
        start_ns: when it began; 0 if before the recording.
        base: number of the space it was forked from, or -1.
        names: thread names seen in it.
        rows: its rows of the mapping table, in time order.
    """

    pid: int
    start_ns: int
    base: int = _NONE
    names: set[str] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    segments: "_Segments | None" = None


@dataclass(frozen=True, slots=True)
class _Segments:
    """Mappings cut at each other's borders, so that a look-up is two binary searches.

    Attributes:
        border: uint64, sorted; segment i is ``border[i]`` up to ``border[i + 1]``.
        first: int64, where the candidates of segment i begin; one more than segments.
        time_ns, row: the candidates of each segment in time order: when mapped, and row of the mapping table.
        is_ambiguous: whether any segment has several candidates, so that time decides.
    """

    border: U64
    first: I64
    time_ns: U64
    row: I64
    is_ambiguous: bool


class AddressSpaces:
    """Everything known about who had what mapped when.

    Args:
        mappings, processes: the capture's tables.
    """

    def __init__(self, mappings: pa.Table, processes: pa.Table) -> None:
        self._start = mappings["address"].to_numpy()
        self._end = self._start + mappings["length"].to_numpy()
        self._time = mappings["time_ns"].to_numpy()
        self._spaces: list[_Space] = []
        self._of_pid: dict[int, list[int]] = defaultdict(list)
        self._name_changes: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.process_names: dict[int, str] = {}
        self._follow(mappings, processes)
        self._pieces_left = _PIECES_EACH * len(mappings) + _SPARE_PIECES
        self._forks_left = _FORKS_EACH * len(self._spaces) + _SPARE_FORKS
        self.is_cut = False  # whether mappings or forks were left out, since there are too many to follow

    def _follow(self, mappings: pa.Table, processes: pa.Table) -> None:
        """Replay what happened, in time order; at equal times processes come before mappings."""
        names = ("time_ns", "kind", "pid", "tid", "parent_pid", "parent_tid", "name")
        events = zip(*(processes[name].to_pylist() for name in names), strict=True)
        pids = mappings["pid"].to_pylist()
        times = self._time.tolist()
        order = np.argsort(self._time, kind="stable").tolist()
        at = 0
        for time_ns, kind, pid, tid, parent_pid, parent_tid, name in sorted(events, key=lambda event: event[0]):
            while at < len(order) and times[order[at]] < time_ns:
                self._space_of(pids[order[at]]).rows.append(order[at])
                at += 1
            self._apply(time_ns, kind, pid, tid, parent_pid, parent_tid, name)
        for row in order[at:]:
            self._space_of(pids[row]).rows.append(row)

    def _apply(
        self,
        time_ns: int,
        kind: str,
        pid: int,
        tid: int,
        parent_pid: int | None,
        parent_tid: int | None,
        name: str | None,
    ) -> None:
        if kind == "fork" and parent_pid is not None:
            if parent_pid != pid:
                base = self._of_pid[parent_pid][-1] if parent_pid in self._of_pid else _NONE
                self._begin(_Space(pid, time_ns, base))
            changes = self._name_changes.get(parent_tid or 0)
            if changes:
                self._rename(time_ns, pid, tid, changes[-1][1])
        elif kind in ("exec", "name"):
            if kind == "exec":
                self._begin(_Space(pid, time_ns))
            if name is not None:
                self._rename(time_ns, pid, tid, name)

    def _rename(self, time_ns: int, pid: int, tid: int, name: str) -> None:
        self._space_of(pid).names.add(name)
        self._name_changes[tid].append((time_ns, name))
        if pid == tid:
            self.process_names[pid] = name

    def _begin(self, space: _Space) -> None:
        self._of_pid[space.pid].append(len(self._spaces))
        self._spaces.append(space)

    def _space_of(self, pid: int) -> _Space:
        if pid not in self._of_pid:
            self._begin(_Space(pid, 0))
        return self._spaces[self._of_pid[pid][-1]]

    def space_of_samples(self, pid: NDArray[np.uint32], time_ns: U64, thread_name: NDArray[np.object_] | None) -> I32:
        """The number of each sample's address space.

        Args:
            pid: uint32[n].
            time_ns: uint64[n], end of the samples' intervals or their exact times.
            thread_name: text[n] where samples are aggregated over intervals: it tells which side of an exec that
                happened within the interval a sample is on. None where times are exact.

        Returns:
            int32[n], -1 for a process nothing is known of.
        """
        distinct, which = np.unique(pid, return_inverse=True)
        spaces = np.full(len(distinct), _NONE, np.int32)
        result = np.empty(len(pid), np.int32)
        several = []
        for index, number in enumerate(distinct.tolist()):
            numbers = self._of_pid.get(number, [])
            if len(numbers) == 1:
                spaces[index] = numbers[0]
            elif numbers:
                several.append(index)
        result[:] = spaces[which]
        rows_of = _rows_by_number(which, len(distinct))
        for index in several:
            rows = rows_of[index]
            names = None if thread_name is None else thread_name[rows]
            result[rows] = self._among(self._of_pid[int(distinct[index])], time_ns[rows], time_ns, names)
        return result

    def _among(self, numbers: list[int], time_ns: U64, interval_ends: U64, names: NDArray[np.object_] | None) -> I32:
        starts = np.array([self._spaces[number].start_ns for number in numbers], np.uint64)
        at = np.maximum(np.searchsorted(starts, time_ns, side="right") - 1, 0)
        if names is not None and len(numbers) * len(names) <= _SPARE_COMPARISONS:
            ends = distinct(interval_ends)
            before = np.searchsorted(ends, time_ns) - 1
            interval_start = np.where(before >= 0, ends[np.maximum(before, 0)], 0)
            for position in range(len(numbers) - 1, 0, -1):
                known = list(self._spaces[numbers[position]].names)
                began_within = starts[position] > interval_start
                at[(at == position) & began_within & ~np.isin(names, known)] -= 1
        return np.array(numbers, np.int32)[at]

    def is_time_dependent(self, space: int) -> bool:
        """Whether the same address meant different files at different times in a space or those it was forked from."""
        while space != _NONE and self._may_follow():
            if self._segments(space).is_ambiguous:
                return True
            space = self._spaces[space].base
        return False

    def find(self, space: int, addresses: U64, time_ns: U64) -> I64:
        """The mapping of each address.

        Args:
            space: number of the address space.
            addresses: uint64[n].
            time_ns: uint64[n], when each was sampled; the latest mapping up to then counts, else the earliest after.

        Returns:
            int64[n], row of the mapping table, -1 where nothing was mapped.
        """
        found = _look_up(self._segments(space), addresses, time_ns, or_later=True)
        while (base := self._spaces[space].base) != _NONE and self._may_follow():
            rest = np.flatnonzero(found == _NONE)
            # What the parent mapped after the fork is not the child's.
            time_ns = np.minimum(time_ns, np.uint64(self._spaces[space].start_ns))
            found[rest] = _look_up(self._segments(base), addresses[rest], time_ns[rest], or_later=False)
            space = base
        return found

    def changes(self, space: int) -> U64:
        """When what addresses mean may change in a space, sorted; empty where they always meant the same."""
        rows = self._spaces[space].rows
        return distinct(self._time[rows]) if rows and self.is_time_dependent(space) else np.empty(0, np.uint64)

    def mapped_at(self, space: int, time_ns: int) -> tuple[U64, U64, I64]:
        """All that ``find`` finds at a time: begin, end and row of stretches that do not overlap, by address."""
        borders = [self._segments(space).border]
        number = space
        while (number := self._spaces[number].base) != _NONE and self._may_follow():
            borders.append(self._segments(number).border)
        border = distinct(np.concatenate(borders))
        row = self.find(space, border[:-1], np.full(max(len(border) - 1, 0), time_ns, np.uint64))
        known = np.flatnonzero(row != _NONE)
        return border[known], border[known + 1], row[known]

    def _may_follow(self) -> bool:
        """Whether one more space that another was forked from may be looked at."""
        self._forks_left -= 1
        self.is_cut |= self._forks_left < 0
        return self._forks_left >= 0

    def find_each(self, space: I32, addresses: U64, time_ns: U64) -> I64:
        """As `find`, of addresses each in a space of its own (int32[n]; -1: nothing is known to be mapped)."""
        found = np.full(len(space), _NONE, np.int64)
        order = np.argsort(space, kind="stable")
        borders = np.flatnonzero(np.diff(space[order])) + 1
        for mine in np.split(order, borders) if len(order) else ():
            number = int(space[mine[0]])
            if number != _NONE:
                found[mine] = self.find(number, addresses[mine], time_ns[mine])
        return found

    def _segments(self, number: int) -> _Segments:
        space = self._spaces[number]
        if space.segments is None:
            rows = np.array(space.rows, np.int64)
            pieces = np.cumsum(_pieces(self._start[rows], self._end[rows]))
            kept = int(np.searchsorted(pieces, self._pieces_left, "right"))
            self._pieces_left -= int(pieces[kept - 1]) if kept else 0
            self.is_cut |= kept < len(rows)
            rows = rows[:kept]
            space.segments = _cut(self._start[rows], self._end[rows], self._time[rows], rows)
        return space.segments

    def thread_names(self, tid: NDArray[np.uint32], time_ns: U64) -> list[str | None]:
        """The name each thread had at a time, from side-band; None where that never said."""
        result: list[str | None] = [None] * len(tid)
        distinct, which = np.unique(tid, return_inverse=True)
        for number, rows in zip(distinct.tolist(), _rows_by_number(which, len(distinct)), strict=True):
            changes = self._name_changes.get(number)
            if changes:
                times = np.array([change[0] for change in changes], np.uint64)
                at = np.maximum(np.searchsorted(times, time_ns[rows], side="right") - 1, 0)
                for row, position in zip(rows.tolist(), at.tolist(), strict=True):
                    result[row] = changes[position][1]
        return result


def _rows_by_number(numbers: I64, count: int) -> list[I64]:
    """For each number below ``count`` the rows that have it."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(1, count))) if count else []


def _pieces(start: U64, end: U64) -> I64:
    """int64[n]: into how many pieces each mapping is cut at the borders of all."""
    border = distinct(np.concatenate([start, end]))
    counts: I64 = np.maximum(np.searchsorted(border, end) - np.searchsorted(border, start), 0)
    return counts


def _cut(start: U64, end: U64, time_ns: U64, rows: I64) -> _Segments:
    border = distinct(np.concatenate([start, end]))
    low, high = np.searchsorted(border, start), np.searchsorted(border, end)
    counts = np.maximum(high - low, 0)
    # Each mapping covers the segments low..high; list them all, then sort by segment and time.
    owner = np.repeat(np.arange(len(rows)), counts)
    offsets = np.concatenate([[0], np.cumsum(counts)])[:-1]
    segment = np.arange(len(owner)) - np.repeat(offsets, counts) + np.repeat(low, counts)
    order = np.lexsort((time_ns[owner], segment))
    per_segment = np.bincount(segment, minlength=len(border)) if len(border) else np.zeros(0, np.int64)
    first = np.concatenate([[0], np.cumsum(per_segment)]).astype(np.int64)
    return _Segments(border, first, time_ns[owner][order], rows[owner][order], bool((per_segment > 1).any()))


def _look_up(segments: _Segments, addresses: U64, time_ns: U64, *, or_later: bool) -> I64:
    """The latest mapping of each address up to a time; with ``or_later`` else the first after it."""
    found = np.full(len(addresses), _NONE, np.int64)
    if not len(segments.row):
        return found
    segment = np.searchsorted(segments.border, addresses, side="right") - 1
    first = segments.first[np.maximum(segment, 0)]
    last = segments.first[np.maximum(segment, 0) + 1]
    rows = np.flatnonzero((segment >= 0) & (last > first))
    choice = first[rows]
    if segments.is_ambiguous:
        for at in np.flatnonzero(last[rows] - choice > 1):
            candidates = segments.time_ns[first[rows[at]] : last[rows[at]]]
            choice[at] += max(int(np.searchsorted(candidates, time_ns[rows[at]], side="right")) - 1, 0)
    if not or_later:
        in_time = segments.time_ns[choice] <= time_ns[rows]
        rows, choice = rows[in_time], choice[in_time]
    found[rows] = segments.row[choice]
    return found
