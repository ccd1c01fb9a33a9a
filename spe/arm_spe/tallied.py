"""What was added up by the rows of a report: taken from the compiled code's tables, summed, and grouped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

LATENCIES = ("total_latency", "issue_latency", "translation_latency")
NO_ROW = -1
"""Row of a group whose records are left out."""
LANES, PAGE_SIZE = 32, 6  # the numbers of tally.h
_LOW = 32
_PAGE_BITS, _CYCLE_BITS = 14, 16  # of a page's and of a latency's key, below row and kind
_Number = TypeVar("_Number", bound=np.integer)
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

ROW = np.dtype([("lanes", "u1", (LANES,)), ("low", "u1", (3, _LOW))])
"""`struct spe_row`."""
WIDE = ROW.itemsize
"""Numbers of a `struct spe_wide`."""
PAGE = np.dtype([("key", "u8"), ("hits", "u4", (PAGE_SIZE,))])
"""`struct spe_page`."""
_PAGE_WORDS = PAGE.itemsize // 4


@dataclass(frozen=True, slots=True)
class Tallied:
    """Counts by row, n of them.

    Attributes:
        lanes: uint64[n, 32], see `arm_spe.tally.Lane`.
        cycles: uint64[n, 3], sums of LATENCIES.
        latency_key: uint64[m], ``(row * 3 + kind) << 16 | cycles``, each once; ascending in what `sum` returns.
        latency_count: uint32[m] or uint64[m], records with that latency.
    """

    lanes: U64
    cycles: U64
    latency_key: U64
    latency_count: NDArray[np.unsignedinteger]

    @staticmethod
    def sum(counters: Sequence[TallyPart], rows_wanted: I64 | None = None) -> Tallied:
        """The sum of several threads' counters, which may have different numbers of rows.

        Args:
            counters: of all threads.
            rows_wanted: int64[n], distinct: the n rows of the result; None: all, by number.
        """
        parts = [part for each in counters for part in each.tallied(rows_wanted)]
        rows = max((len(part.lanes) for part in parts), default=0)
        lanes, cycles = np.zeros((rows, LANES), np.uint64), np.zeros((rows, len(LATENCIES)), np.uint64)
        for part in parts:
            lanes[: len(part.lanes)] += part.lanes
            cycles[: len(part.cycles)] += part.cycles
        key = np.concatenate([np.zeros(0, np.uint64), *(part.latency_key for part in parts)])
        count = np.concatenate([np.zeros(0, np.uint64), *(part.latency_count for part in parts)], dtype=np.uint64)
        order = np.argsort(key, kind="stable")  # each part's keys ascend, which it merges
        return Tallied(lanes, cycles, *_summed(key[order], count[order]))

    def of_rows(self, rows: I64) -> Tallied:
        """The sums of some rows, ascending: row i of the result is ``rows[i]``."""
        place = np.full(len(self.lanes), NO_ROW)
        place[rows] = np.arange(len(rows))
        row, kind = np.divmod((self.latency_key >> np.uint64(16)).astype(np.int64), len(LATENCIES))
        kept = place[row] != NO_ROW
        key = (place[row[kept]] * len(LATENCIES) + kind[kept]).astype(np.uint64) << np.uint64(16)
        key |= self.latency_key[kept] & np.uint64(0xFFFF)
        return Tallied(self.lanes[rows], self.cycles[rows], key, self.latency_count[kept])

    def grouped(self, group: NDArray[np.int64], groups: int) -> Tallied:
        """The sums of groups of rows.

        Args:
            group: int64[n], the group of each row, or NO_ROW: left out.
            groups: how many there are.
        """
        lanes, cycles = np.zeros((groups, LANES), np.uint64), np.zeros((groups, len(LATENCIES)), np.uint64)
        rows = np.argsort(group, kind="stable")
        rows = rows[group[rows] != NO_ROW]
        if not len(rows):
            return Tallied(lanes, cycles, np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        start = np.flatnonzero(np.diff(group[rows], prepend=NO_ROW))
        lanes[group[rows[start]]] = np.add.reduceat(self.lanes[rows], start)
        cycles[group[rows[start]]] = np.add.reduceat(self.cycles[rows], start)
        row, kind = np.divmod((self.latency_key >> np.uint64(16)).astype(np.int64), len(LATENCIES))
        kept = np.flatnonzero(group[row] != NO_ROW)
        key = (group[row[kept]] * len(LATENCIES) + kind[kept]).astype(np.uint64) << np.uint64(16)
        key |= self.latency_key[kept] & np.uint64(0xFFFF)
        count = self.latency_count[kept].astype(np.uint64)
        order = np.argsort(key, kind="stable")
        return Tallied(lanes, cycles, *_summed(key[order], count[order]))


def _summed(key: NDArray[_Number], count: U64) -> tuple[NDArray[_Number], U64]:
    """Each of some ascending keys once, and the sum of its counts."""
    start = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]])) if len(key) else np.zeros(0, np.intp)
    return key[start], np.add.reduceat(count, start) if len(start) else count


@dataclass(frozen=True, slots=True)
class TallyPart:
    """What one thread counted, as the compiled code left it: a fraction of the memory of `Tallied`.

    Attributes:
        rows: ROW[n].
        wide_of: uint32[n], 1 + the wide counters of each row, 0 if it has none.
        wide: uint32[m, 128], what the row's own counters did not hold.
        pages: PAGE[k], latencies that rows have no counter for.
    """

    rows: NDArray[np.void]
    wide_of: NDArray[np.uint32]
    wide: NDArray[np.uint32]
    pages: NDArray[np.void]

    def lane(self, lane: int) -> U64:
        """uint64[n]: one of the counters, of each row."""
        counts = self.rows["lanes"][:, lane].astype(np.uint64)
        has_wide = np.flatnonzero(self.wide_of)
        counts[has_wide] += self.wide[self.wide_of[has_wide] - 1, lane]
        return counts

    def has_any(self, lane: int) -> bool:
        """Whether one of the counters is not zero in any row."""
        return bool(self.rows["lanes"][:, lane].any()) or bool(self.wide[:, lane].any())

    def tallied(self, rows_wanted: I64 | None) -> list[Tallied]:
        """The counts in rows, and those in pages; as for `Tallied.sum`."""
        rows, wide_of, pages = self.rows, self.wide_of, self.pages
        if rows_wanted is None:
            return [_counts_in_rows(rows, wide_of, self.wide), _counts_in_pages(pages, None)]
        place = np.full(max(len(rows), int(rows_wanted.max(initial=-1)) + 1), NO_ROW)
        place[rows_wanted] = np.arange(len(rows_wanted))
        is_here = rows_wanted < len(rows)
        kept, kept_wide = np.zeros(len(rows_wanted), ROW), np.zeros(len(rows_wanted), np.uint32)
        kept[is_here], kept_wide[is_here] = rows[rows_wanted[is_here]], wide_of[rows_wanted[is_here]]
        return [_counts_in_rows(kept, kept_wide, self.wide), _counts_in_pages(pages, place)]


def lane_of(counters: Sequence[TallyPart], lane: int) -> U64:
    """uint64[rows]: one counter of each row, of all threads."""
    found = np.zeros(max((len(each.rows) for each in counters), default=0), np.uint64)
    for each in counters:
        found[: len(each.rows)] += each.lane(lane)
    return found


def _counts_in_rows(rows: NDArray[np.void], wide_of: NDArray[np.uint32], wide: NDArray[np.uint32]) -> Tallied:
    counts = rows.view(np.uint8).reshape(len(rows), ROW.itemsize).astype(np.uint32)
    has_wide = np.flatnonzero(wide_of)
    counts[has_wide] += wide[wide_of[has_wide] - 1]
    low = counts[:, LANES:].reshape(len(rows), len(LATENCIES), _LOW)
    cycles = np.einsum("rkc,c->rk", low, np.arange(_LOW, dtype=np.uint64))
    at = np.flatnonzero(low)
    key = (at // _LOW << _CYCLE_BITS | at % _LOW).astype(np.uint64)
    return Tallied(counts[:, :LANES].astype(np.uint64), cycles, key, low.reshape(-1)[at])


def _counts_in_pages(pages: NDArray[np.void], place: I64 | None) -> Tallied:
    """Of rows in their ``place`` of the result, or left out, where it is NO_ROW; None: each in its own."""
    row, kind = np.divmod((pages["key"] >> np.uint64(_PAGE_BITS)).astype(np.int64), len(LATENCIES))
    if place is not None:
        kept = np.flatnonzero(place[row] != NO_ROW)
        pages, row, kind = pages[kept], place[row[kept]], kind[kept]
    first = (pages["key"] & np.uint64((1 << _PAGE_BITS) - 1)).astype(np.int64) * PAGE_SIZE
    key = (row * len(LATENCIES) + kind) << _CYCLE_BITS | first
    order = np.argsort(key)  # latencies come out sorted, as they are searched for
    # Whole pages are moved as words: NumPy takes eight times as long for the hits alone.
    words = pages.view(np.uint32).reshape(len(pages), _PAGE_WORDS).take(order, axis=0)
    hits = np.ascontiguousarray(words[:, -PAGE_SIZE:]).reshape(-1)
    at = np.flatnonzero(hits)
    key = (key[order][:, None] + np.arange(PAGE_SIZE)).reshape(-1)[at]
    count = hits[at]
    cycles = np.zeros((int(row.max(initial=-1)) + 1, len(LATENCIES)), np.uint64)
    histogram, sums = _summed(key >> _CYCLE_BITS, (key & ((1 << _CYCLE_BITS) - 1)).astype(np.uint64) * count)
    cycles.reshape(-1)[histogram] = sums
    return Tallied(np.zeros((len(cycles), LANES), np.uint64), cycles, key.astype(np.uint64), count)
