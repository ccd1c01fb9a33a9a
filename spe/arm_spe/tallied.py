"""What was added up by the rows of a report: taken from the compiled code's tables, summed, and grouped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LATENCIES = ("total_latency", "issue_latency", "translation_latency")
NO_ROW = -1
"""Row of a group whose records are left out."""
LANES, PAGE_SIZE = 32, 6  # the numbers of tally.h
_LOW = 32
_PAGE_BITS = 14  # of a page's key, below row and kind
_NOTHING = np.uint64(2**64 - 1)
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

ROW = np.dtype([("lanes", "u1", (LANES,)), ("low", "u1", (3, _LOW))])
"""`struct spe_row`."""
PAGE = np.dtype([("key", "u8"), ("hits", "u4", (PAGE_SIZE,))])
"""`struct spe_page`."""


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
        distinct = np.concatenate([np.zeros(0, np.uint64), *(part.latency_key for part in parts)])
        # Each part's keys ascend, which a stable sort merges; np.unique would take several times the memory.
        distinct.sort(kind="stable")
        distinct = distinct[np.diff(distinct, prepend=_NOTHING) != 0]
        counts = np.zeros(len(distinct), np.uint64)
        for part in parts:
            counts[np.searchsorted(distinct, part.latency_key)] += part.latency_count  # each key once
        return Tallied(lanes, cycles, distinct, counts)

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
        order = np.argsort(key, kind="stable")
        key, count = key[order], self.latency_count[kept[order]].astype(np.uint64)
        start = np.flatnonzero(np.diff(key, prepend=_NOTHING))
        return Tallied(lanes, cycles, key[start], np.add.reduceat(count, start) if len(start) else count)


@dataclass(frozen=True, slots=True)
class TallyPart:
    """What one thread counted, as the compiled code left it: a fraction of the memory of `Tallied`.

    Attributes:
        rows: ROW[n].
        pages: PAGE[m], latencies that rows have no counter for, and what filled one.
    """

    rows: NDArray[np.void]
    pages: NDArray[np.void]

    def lane(self, lane: int) -> U64:
        """uint64[n]: one of the counters, of each row."""
        counts = self.rows["lanes"][:, lane].astype(np.uint64)
        row, kind, first = _keys(self.pages)
        at = np.flatnonzero((kind == len(LATENCIES)) & (first == lane // PAGE_SIZE * PAGE_SIZE))
        counts[row[at]] += self.pages["hits"][at, lane % PAGE_SIZE]
        return counts

    def has_any(self, lane: int) -> bool:
        """Whether one of the counters is not zero in any row."""
        return bool(self.rows["lanes"][:, lane].any()) or bool(self.lane(lane).any())

    def tallied(self, rows_wanted: I64 | None) -> list[Tallied]:
        """The counts in rows, and those in pages; as for `Tallied.sum`."""
        rows, pages = self.rows, self.pages
        if rows_wanted is not None:
            place = np.full(max(len(rows), int(rows_wanted.max(initial=-1)) + 1), NO_ROW)
            place[rows_wanted] = np.arange(len(rows_wanted))
            is_here = rows_wanted < len(rows)
            rows = np.zeros(len(rows_wanted), ROW)
            rows[is_here] = self.rows[rows_wanted[is_here]]
            row, kind, first = _keys(pages)
            kept = place[row] != NO_ROW
            pages = pages[kept]
            key = (place[row[kept]] * (len(LATENCIES) + 1) + kind[kept]).astype(np.uint64) << np.uint64(_PAGE_BITS)
            pages["key"] = key | (first[kept] // PAGE_SIZE).astype(np.uint64)
        return [_counts_in_rows(rows), _counts_in_pages(pages)]


def lane_of(counters: Sequence[TallyPart], lane: int) -> U64:
    """uint64[rows]: one counter of each row, of all threads."""
    found = np.zeros(max((len(each.rows) for each in counters), default=0), np.uint64)
    for each in counters:
        found[: len(each.rows)] += each.lane(lane)
    return found


def _keys(pages: NDArray[np.void]) -> tuple[I64, I64, I64]:
    """int64[m] each: row, kind and first neighbour of pages."""
    row, kind = np.divmod((pages["key"] >> np.uint64(_PAGE_BITS)).astype(np.int64), len(LATENCIES) + 1)
    return row, kind, (pages["key"] & np.uint64((1 << _PAGE_BITS) - 1)).astype(np.int64) * PAGE_SIZE


def _counts_in_rows(rows: NDArray[np.void]) -> Tallied:
    low = rows["low"]
    cycles = (low * np.arange(_LOW, dtype=np.uint64)).sum(axis=2)
    at = np.flatnonzero(low)
    key = (at // _LOW << 16 | at % _LOW).astype(np.uint64)
    return Tallied(rows["lanes"].astype(np.uint64), cycles, key, low.reshape(-1)[at].astype(np.uint32))


def _counts_in_pages(pages: NDArray[np.void]) -> Tallied:
    pages = pages[np.argsort(pages["key"])]  # latencies come out sorted, as they are searched for
    at = np.flatnonzero(pages["hits"])
    count = pages["hits"].reshape(-1)[at]
    row, kind, first = (column[at // PAGE_SIZE] for column in _keys(pages))
    index = first + at % PAGE_SIZE
    rows = int(row.max(initial=-1)) + 1
    lanes, cycles = np.zeros((rows, LANES), np.uint64), np.zeros((rows, len(LATENCIES)), np.uint64)
    is_lane = kind == len(LATENCIES)
    lanes[row[is_lane], index[is_lane]] = count[is_lane]
    row, kind, index, count = row[~is_lane], kind[~is_lane], index[~is_lane], count[~is_lane]
    np.add.at(cycles, (row, kind), index.astype(np.uint64) * count)
    return Tallied(lanes, cycles, ((row * len(LATENCIES) + kind) << 16 | index).astype(np.uint64), count)
