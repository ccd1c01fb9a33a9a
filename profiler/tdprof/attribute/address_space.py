"""Which address space a sample belongs to, and which mapping an address in it falls into.

An address space is a process between two execs. Forked children share their parent's mappings up to the fork, so a
child's space only holds what it mapped itself and points at its parent's for the rest.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.attribute.process_history import replay
from tdprof.model.arrays import I32, I64, U32, U64, distinct, group_rows
from tdprof.profile.frames import number_values
from tdprof.values import dataclass

_NONE = -1
_HALF, _LOWER = np.uint64(32), np.uint64(2**32 - 1)
# Mappings cut each other to pieces, and look-ups follow forks back: of real processes hardly, of made-up ones up to
# the square of their number. So many pieces and steps for each, and so many besides; what exceeds that is left out.
_PIECES_EACH, _SPARE_PIECES = 4, 1 << 20
_FORKS_EACH, _SPARE_FORKS = 32, 1 << 18
_SPARE_COMPARISONS = 1 << 27
ANY_TIME = 2**63 - 1
"""Later than all that a recording has: of what was mapped one after the other the last counts."""


@dataclass(frozen=True, slots=True)
class _Segments:
    """The mappings of all spaces cut at each other's borders, so that a look-up is some binary searches.

    Attributes:
        address: uint64, distinct borders, sorted.
        border: uint64, sorted; segment i of space ``border[i] >> 32`` begins at ``address[(border[i] & 2^32 - 1) - 1]``
            and ends where segment i + 1 of that space begins; the last of a space is empty.
        first: int64, where the candidates of segment i begin; one more than segments.
        time_ns: uint64, distinct times, sorted.
        when: uint64, sorted; candidate i of segment ``when[i] >> 32`` was mapped at time number ``when[i] & 2^32 - 1``,
            from 1, of ``time_ns``.
        row: int32, of the mapping table, of each candidate.
        is_ambiguous: bool[spaces], whether any segment has several candidates, so that time decides.
        left_out: mappings that are not in here.
    """

    address: U64
    border: U64
    first: I64
    time_ns: U64
    when: U64
    row: I32
    is_ambiguous: NDArray[np.bool_]
    left_out: int


class AddressSpaces:
    """Everything known about who had what mapped when.

    Args:
        mappings, processes: the capture's tables.
    """

    def __init__(self, mappings: pa.Table, processes: pa.Table) -> None:
        self._start = mappings["address"].to_numpy()
        self._end = self._start + mappings["length"].to_numpy()
        self._time = mappings["time_ns"].to_numpy()
        self._history = replay(processes, mappings["pid"].to_numpy(), self._time)
        self._owner = self._history.spaces_at(mappings["pid"].to_numpy(), self._time)
        self._forks_left = _FORKS_EACH * self._history.space_count + _SPARE_FORKS
        self._has_left_forks = False

    @property
    def is_cut(self) -> bool:
        """Whether mappings or forks were left out, since there are too many to follow."""
        return self._has_left_forks or self._segments.left_out > 0

    def space_of_samples(
        self, pid: U32, time_ns: U64, thread_name: NDArray[np.object_] | None, leaf: U64 | None = None
    ) -> I32:
        """The number of each sample's address space.

        Args:
            pid: uint32[n].
            time_ns: uint64[n], end of the samples' intervals or their exact times.
            thread_name: text[n] where samples are aggregated over intervals: it tells which side of an exec that
                happened within the interval a sample is on. None where times are exact.
            leaf: uint64[n], the innermost address of each user stack, 0 of none: where several programs have that
                name, as a script has that executes what it is called like, this tells.

        Returns:
            int32[n], -1 for a process nothing is known of.
        """
        numbers, which = number_values(pid.astype(np.uint64))
        first, end = self._history.spaces_of(numbers.astype(np.uint32))
        one = np.append(self._history.space, _NONE)
        result: I32 = np.where(end - first == 1, one[first], _NONE).astype(np.int32)[which]
        several = np.flatnonzero(end - first > 1)
        rows_of = _rows_by_number(which, len(numbers)) if len(several) else []
        for index in several.tolist():
            rows = rows_of[index]
            names = None if thread_name is None else thread_name[rows]
            of_pid = self._history.space[first[index] : end[index]]
            leaves = None if leaf is None else leaf[rows]
            result[rows] = self._among(of_pid, time_ns[rows], time_ns, names, leaves)
        return result

    def _among(
        self, numbers: I32, time_ns: U64, interval_ends: U64, names: NDArray[np.object_] | None, leaves: U64 | None
    ) -> I32:
        starts = self._history.start_ns[numbers]
        at = np.maximum(np.searchsorted(starts, time_ns, side="right") - 1, 0)
        if names is None or len(numbers) * len(names) > _SPARE_COMPARISONS:
            return numbers[at]
        ends = distinct(interval_ends)
        before = np.searchsorted(ends, time_ns) - 1
        interval_start = np.where(before >= 0, ends[np.maximum(before, 0)], 0)
        known = [self._history.names_in(number) for number in numbers.tolist()]
        for position in range(len(numbers) - 1, 0, -1):
            at[(at == position) & (starts[position] > interval_start) & ~np.isin(names, known[position])] -= 1
        if leaves is not None:
            rows = np.flatnonzero((leaves != 0) & (starts[at] > interval_start))
            rows = rows[~self._are_mapped(numbers[at[rows]], leaves[rows])]
            at[rows] = self._earlier(numbers, at[rows], interval_start[rows], leaves[rows], names[rows], known)
        return numbers[at]

    def _earlier(
        self,
        numbers: I32,
        at: I64,
        interval_start: U64,
        leaves: U64,
        names: NDArray[np.object_],
        known: Sequence[Sequence[str]],
    ) -> I64:
        """The space before, in the same interval, in which the leaf of each sample is mapped that is not in its own.

        Programs of one name may have others between them, as env is between two of a shell. Within an exec a thread has
        its new name already, and is still where it called: those of the thread's name come first.

        Args:
            numbers: the process's spaces.
            at, interval_start, leaves, names: of each sample, its space's index the first.
            known: names of threads seen in each space.

        Returns:
            int64[n], index into ``numbers``; the sample's own where there is none.
        """
        ends = self._history.start_ns[numbers][1:]
        found, rows = at.copy(), np.arange(len(at))
        for needs_name, position in product((True, False), range(len(numbers) - 2, -1, -1)):
            if not len(rows):
                break
            may_be = (at[rows] > position) & (ends[position] > interval_start[rows])
            if needs_name:
                may_be &= np.isin(names[rows], known[position])
            here = np.full(np.count_nonzero(may_be), numbers[position], np.int32)
            may_be[may_be] = self._are_mapped(here, leaves[rows[may_be]])
            found[rows[may_be]] = position
            rows = rows[~may_be]
        return found

    def _are_mapped(self, spaces: I32, addresses: U64) -> NDArray[np.bool_]:
        """Whether each space had anything mapped at an address, at whatever time."""
        found: NDArray[np.bool_] = self.find(spaces, addresses, np.full(len(addresses), ANY_TIME, np.uint64)) != _NONE
        return found

    @property
    def of_mappings(self) -> I32:
        """int32[rows of the mapping table]: the address space that each was mapped in."""
        return self._owner

    def bits(self, of_mappings: U64) -> tuple[U32, U64]:
        """uint32[spaces], uint64[spaces]: each space's process, and all bits of what it mapped or was forked with.

        Args:
            of_mappings: uint64, of each row of the mapping table.
        """
        first_ns: dict[int, dict[int, int]] = {}  # by space: of distinct bits, when they were first mapped
        rows = np.flatnonzero(of_mappings)
        of_rows = (self._owner[rows], of_mappings[rows], self._time[rows])
        for space, bits, time_ns in zip(*(column.tolist() for column in of_rows), strict=True):
            known = first_ns.setdefault(space, {})
            known[bits] = min(known.get(bits, time_ns), time_ns)
        forked_with = [0] * self._history.space_count
        # A space was numbered after the one that it was forked from.
        for space, (base, start_ns) in enumerate(
            zip(self._history.base.tolist(), self._history.start_ns.tolist(), strict=True)
        ):
            if base != _NONE:
                forked_with[space] = forked_with[base]
                for bits, time_ns in first_ns.get(base, {}).items():
                    forked_with[space] |= bits if time_ns <= start_ns else 0
        found = np.array(forked_with, np.uint64)
        np.bitwise_or.at(found, self._owner[rows], of_mappings[rows])
        return self.processes(np.arange(len(found))), found

    def first_owners(self, rows: I64) -> U32:
        """uint32[n]: who had memory first that a process shares with those that it forks, of some mappings of such.

        Each is its process's own where none that it was forked from had mapped any at its address by then.
        """
        base, start_ns = self._history.base.tolist(), self._history.start_ns.tolist()
        pids = self.processes(self._owner)
        first: dict[tuple[int, int], tuple[int, int]] = {}  # by space and address: since when, and who
        by_space = rows[np.lexsort((self._time[rows], self._owner[rows]))]
        columns = (self._owner[by_space], self._start[by_space], self._time[by_space], pids[by_space])
        # A space was numbered after the one that it was forked from.
        for space, address, time_ns, pid in zip(*(column.tolist() for column in columns), strict=True):
            if (space, address) in first:
                continue
            owner, ancestor, until = pid, base[space], start_ns[space]
            while ancestor != _NONE and self._may_follow(1):
                since, who = first.get((ancestor, address), (until + 1, pid))
                if since <= until:
                    owner = who
                    break
                ancestor, until = base[ancestor], min(until, start_ns[ancestor])
            first[space, address] = (time_ns, owner)
        found = zip(self._owner[rows].tolist(), self._start[rows].tolist(), strict=True)
        return np.array([first[each][1] for each in found], np.uint32)

    def are_time_dependent(self, spaces: I32) -> NDArray[np.bool_]:
        """Whether in each space or those it was forked from an address meant different files at different times."""
        base = np.append(self._history.base, _NONE)
        depends = np.append(self._segments.is_ambiguous, False)
        while (base != _NONE).any():
            depends |= depends[base]
            base = base[base]
        return depends[spaces]

    def find(self, spaces: I32, addresses: U64, time_ns: U64) -> I64:
        """The mapping of each address.

        Args:
            spaces: int32[n], number of the address space; -1: not known.
            addresses: uint64[n].
            time_ns: uint64[n], when each was sampled; the latest mapping up to then counts, else the earliest after.

        Returns:
            int64[n], row of the mapping table, -1 where nothing was mapped.
        """
        found = self._look_up(spaces, addresses, time_ns, or_later=True)
        base = np.append(self._history.base, _NONE)
        rest = np.flatnonzero((found == _NONE) & (base[spaces] != _NONE))
        spaces, time_ns = spaces[rest], time_ns[rest]
        self._forks_left += _FORKS_EACH * len(rest)
        while len(rest) and self._may_follow(len(rest)):
            # What the parent mapped after the fork is not the child's.
            time_ns = np.minimum(time_ns, self._history.start_ns[spaces])
            spaces = base[spaces]
            found[rest] = self._look_up(spaces, addresses[rest], time_ns, or_later=False)
            goes_on = (found[rest] == _NONE) & (base[spaces] != _NONE)
            rest, spaces, time_ns = rest[goes_on], spaces[goes_on], time_ns[goes_on]
        return found

    def changes(self, space: int) -> U64:
        """When what addresses mean may change in a space, sorted; empty where they always meant the same."""
        if not self.are_time_dependent(np.array([space], np.int32))[0]:
            return np.empty(0, np.uint64)
        first, end = np.searchsorted(self._owner[self._by_owner], [space, space + 1])
        return distinct(self._time[self._by_owner[first:end]])

    def processes(self, spaces: I32 | I64) -> U32:
        """The process of each of some spaces; 0 of none (-1)."""
        pid_of = np.zeros(self._history.space_count + 1, np.uint32)
        pid_of[self._history.space] = self._history.pid
        found: U32 = pid_of[spaces]
        return found

    def turns(self) -> tuple[U32, U64]:
        """uint32[n], uint64[n]: processes, and when addresses in each begin to mean something else; each pair once.

        At an exec, and where one mapping takes another's place.
        """
        history, cut = self._history, self._segments
        is_later = np.zeros(len(history.pid), bool)
        is_later[1:] = history.pid[1:] == history.pid[:-1]
        candidate = np.zeros(len(cut.when), bool)
        candidate[1:] = cut.when[1:] >> _HALF == cut.when[:-1] >> _HALF
        when = cut.when[candidate]
        space = (cut.border[(when >> _HALF).astype(np.int64)] >> _HALF).astype(np.int64)
        pid = np.concatenate([history.pid[is_later], self.processes(space)])
        replaced_ns = cut.time_ns[(when & _LOWER).astype(np.int64) - 1]
        time_ns = np.concatenate([history.start_ns[history.space[is_later]], replaced_ns])
        order, start = group_rows(pid, time_ns)
        return pid[order[start]], time_ns[order[start]]

    def beginnings(self, spaces: I64) -> U64:
        """uint64[n]: when each of some spaces began, by a fork or an exec; 0 where nothing is known of it."""
        return np.append(self._history.start_ns, np.uint64(0))[spaces]

    def time_of_most(self, space: int, interval_start: U64, interval_end: U64) -> U64:
        """uint64[n]: a time within each interval at which the addresses of a space mean what they meant for most of it.

        Where one mapping takes another's place within an interval, samples that were added up over it cannot be told
        apart; recorders end intervals soon after such a moment.
        """
        cut = self._segments
        low, high = np.searchsorted(cut.border, np.array([space, space + 1], np.uint64) << _HALF)
        when = cut.when[cut.first[low] : cut.first[high]]
        is_later = np.zeros(len(when), bool)
        is_later[1:] = when[1:] >> _HALF == when[:-1] >> _HALF
        replaced = cut.time_ns[distinct(when[is_later] & _LOWER).astype(np.int64) - 1]
        found = interval_end.copy()
        if len(replaced):
            interval_start = np.maximum(interval_start, cut.time_ns[int((when & _LOWER).min()) - 1])
        first = np.searchsorted(replaced, interval_start, "right")
        last = np.searchsorted(replaced, interval_end, "right")
        for row in np.flatnonzero(last > first).tolist():
            parts = interval_start[row : row + 1], replaced[first[row] : last[row]], interval_end[row : row + 1]
            borders = np.concatenate(parts)
            until_end = int(np.argmax(np.diff(borders)[::-1]))  # of equally long parts the last
            found[row] = borders[-1 - until_end] - np.uint64(until_end > 0)
        return found

    def mapped_at(self, space: int, time_ns: int) -> tuple[U64, U64, I64]:
        """All that ``find`` finds at a time: begin, end and row of stretches that do not overlap, by address."""
        borders = [self._borders(space)]
        number = space
        while (number := int(self._history.base[number])) != _NONE and self._may_follow(1):
            borders.append(self._borders(number))
        border = distinct(np.concatenate(borders))
        places = border[:-1]
        row = self.find(np.full(len(places), space, np.int32), places, np.full(len(places), time_ns, np.uint64))
        known = np.flatnonzero(row != _NONE)
        return border[known], border[known + 1], row[known]

    def _borders(self, space: int) -> U64:
        """Where mappings of a space itself begin or end."""
        border = self._segments.border
        first, end = np.searchsorted(border, np.array([space, space + 1], np.uint64) << _HALF)
        return self._segments.address[(border[first:end] & _LOWER).astype(np.int64) - 1]

    def _may_follow(self, forks: int) -> bool:
        """Whether so many more forks may be followed back."""
        self._forks_left -= forks
        self._has_left_forks |= self._forks_left < 0
        return self._forks_left >= 0

    def _look_up(self, spaces: I32, addresses: U64, time_ns: U64, *, or_later: bool) -> I64:
        """The latest mapping of each address in a space up to a time; with ``or_later`` else the first after it."""
        cut = self._segments
        found = np.full(len(addresses), _NONE, np.int64)
        inside = np.flatnonzero(spaces != _NONE)
        if not len(cut.row) or not len(inside):
            return found
        space = spaces[inside].astype(np.uint64)
        segment = np.searchsorted(cut.border, space << _HALF | _rank(cut.address, addresses[inside]), "right") - 1
        is_mapped = (segment >= 0) & (cut.border[segment] >> _HALF == space)
        is_mapped &= cut.first[segment + 1] > cut.first[segment]
        rows, segment = inside[is_mapped], segment[is_mapped]
        if or_later and (time_ns == ANY_TIME).all():  # the last of each segment
            found[rows] = cut.row[cut.first[segment + 1] - 1]
            return found
        key = segment.astype(np.uint64) << _HALF | _rank(cut.time_ns, time_ns[rows])
        choice = np.searchsorted(cut.when, key, "right") - 1
        if or_later:
            choice = np.maximum(choice, cut.first[segment])
        else:
            in_time = choice >= cut.first[segment]
            rows, choice = rows[in_time], choice[in_time]
        found[rows] = cut.row[choice]
        return found

    @cached_property
    def _by_owner(self) -> I32:
        """The rows of the mapping table by space and time."""
        return np.lexsort((self._time, self._owner)).astype(np.int32)

    @cached_property
    def _segments(self) -> _Segments:
        rows = self._by_owner
        space, start, end = self._owner[rows].astype(np.uint64), self._start[rows], self._end[rows]
        address = distinct(np.concatenate([start, end]))
        starts, ends = (space << _HALF | _rank(address, border) for border in (start, end))
        border = distinct(np.concatenate([starts, ends]))
        # Each mapping covers the segments low..high.
        low, high = np.searchsorted(border, starts), np.searchsorted(border, ends)
        counts = np.maximum(high - low, 0)
        kept = int(np.searchsorted(np.cumsum(counts), _PIECES_EACH * len(rows) + _SPARE_PIECES, "right"))
        low, counts = low[:kept], counts[:kept]
        # List them all, then sort by segment and time.
        owner = np.repeat(np.arange(kept, dtype=np.int32), counts)
        segment = np.repeat(low - (np.cumsum(counts) - counts), counts)
        segment += np.arange(len(owner))
        per_segment = np.bincount(segment, minlength=len(border))
        time_ns = distinct(self._time)
        when = segment.view(np.uint64)
        when <<= _HALF
        when |= _rank(time_ns, self._time[rows]).astype(np.uint32)[owner]
        order = np.argsort(when, kind="stable")
        is_ambiguous = np.zeros(self._history.space_count, bool)
        is_ambiguous[(border[per_segment > 1] >> _HALF).astype(np.int64)] = True
        first = np.concatenate([[0], np.cumsum(per_segment)])
        return _Segments(
            address, border, first, time_ns, when[order], rows[owner[order]], is_ambiguous, len(rows) - kept
        )

    def process_names(self, pids: U32) -> dict[int, str]:
        """The last name of each of some processes that side-band tells."""
        last = self._history.last_names(pids)
        return {
            pid: self._history.names[name] for pid, name in zip(pids.tolist(), last.tolist(), strict=True) if name >= 0
        }

    def thread_names(self, tid: U32, time_ns: U64) -> tuple[I32, list[str]]:
        """The name each thread had at a time, from side-band: its number, -1 where that never said, and the names."""
        return self._history.names_at(tid, time_ns), self._history.names


def _rows_by_number(numbers: I32, count: int) -> list[I64]:
    """For each number below ``count`` the rows that have it."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(1, count))) if count else []


def _rank(known: U64, values: U64) -> U64:
    """How many of the sorted known values are not above each value."""
    return np.searchsorted(known, values, "right").astype(np.uint64)
