"""What was added up by the rows of a report: taken from the compiled code's tables, summed, and grouped."""

from __future__ import annotations

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
    def sum(parts: list[Tallied]) -> Tallied:
        """The sum of parts, which may have different numbers of rows."""
        rows = max((len(part.lanes) for part in parts), default=0)
        lanes, cycles = np.zeros((rows, LANES), np.uint64), np.zeros((rows, len(LATENCIES)), np.uint64)
        for part in parts:
            lanes[: len(part.lanes)] += part.lanes
            cycles[: len(part.cycles)] += part.cycles
        distinct = np.concatenate([np.zeros(0, np.uint64), *(part.latency_key for part in parts)])
        distinct.sort()  # np.unique would take several times the memory, for a hash table
        distinct = distinct[np.diff(distinct, prepend=_NOTHING) != 0]
        counts = np.zeros(len(distinct), np.uint64)
        for part in parts:
            counts[np.searchsorted(distinct, part.latency_key)] += part.latency_count  # each key once
        return Tallied(lanes, cycles, distinct, counts)

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


def counts_in_rows(rows: NDArray[np.void]) -> Tallied:
    """What stands in rows themselves, ``ROW``; those that filled a counter have more of it in pages."""
    low = rows["low"]
    cycles = (low * np.arange(_LOW, dtype=np.uint64)).sum(axis=2)
    at = np.flatnonzero(low)
    key = (at // _LOW << 16 | at % _LOW).astype(np.uint64)
    return Tallied(rows["lanes"].astype(np.uint64), cycles, key, low.reshape(-1)[at].astype(np.uint32))


def counts_in_pages(pages: NDArray[np.void]) -> Tallied:
    """What stands in pages, ``PAGE``."""
    at = np.flatnonzero(pages["hits"])
    count = pages["hits"].reshape(-1)[at]
    key = pages["key"][at // PAGE_SIZE]
    index = (key & np.uint64((1 << _PAGE_BITS) - 1)) * np.uint64(PAGE_SIZE) + (at % PAGE_SIZE).astype(np.uint64)
    row, kind = np.divmod((key >> np.uint64(_PAGE_BITS)).astype(np.int64), len(LATENCIES) + 1)
    rows = int(row.max(initial=-1)) + 1
    lanes, cycles = np.zeros((rows, LANES), np.uint64), np.zeros((rows, len(LATENCIES)), np.uint64)
    is_lane = kind == len(LATENCIES)
    lanes[row[is_lane], index[is_lane].astype(np.int64)] = count[is_lane]
    row, kind, index, count = row[~is_lane], kind[~is_lane], index[~is_lane], count[~is_lane]
    np.add.at(cycles, (row, kind), index * count)
    return Tallied(lanes, cycles, (row * len(LATENCIES) + kind).astype(np.uint64) << np.uint64(16) | index, count)
