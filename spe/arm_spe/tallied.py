"""What was added up by the rows of a report: the sums of the compiled code's tables."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arm_spe.native import need_native

LATENCIES = ("total_latency", "issue_latency", "translation_latency")
NO_ROW = -1
"""Row of a group whose records are left out."""
LANES, PAGE_SIZE = 32, 6  # the numbers of tally.h
_LOW = 32
HISTOGRAM_WORDS = 65536 + 64 + 17
"""Words of `struct histogram`, which sum.c has."""
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

ROW = np.dtype([("lanes", "u1", (LANES,)), ("low", "u1", (3, _LOW))])
"""`struct spe_row`."""
WIDE = ROW.itemsize
"""Numbers of a `struct spe_wide`."""
PAGE = np.dtype([("key", "u8"), ("hits", "u4", (PAGE_SIZE,))])
"""`struct spe_page`."""


class _Part(ctypes.Structure):
    """`struct spe_part`."""

    _fields_ = (
        *((name, c_void_p) for name in ("rows", "wide_of", "wide", "pages")),
        ("row_count", c_uint64),
        ("page_count", c_uint64),
    )


class _Sums(ctypes.Structure):
    """`struct spe_sums`."""

    _fields_ = (
        ("groups", c_uint64),
        *((name, c_void_p) for name in ("group", "lanes", "cycles", "key", "count")),
        *((name, c_void_p) for name in ("row", "next_row", "page", "next_page", "first_row", "first_page")),
    )


@dataclass(frozen=True, slots=True)
class Tallied:
    """Counts by row, or by group of rows, n of them.

    Attributes:
        lanes: uint64[n, 32], see `arm_spe.tally.Lane`.
        cycles: uint64[n, 3], sums of LATENCIES.
        latency_key: uint64[m], ``(row * 3 + kind) << 16 | cycles``, ascending.
        latency_count: uint64[m], records with that latency.
    """

    lanes: U64
    cycles: U64
    latency_key: U64
    latency_count: U64

    @staticmethod
    def sum(counters: Sequence[TallyPart], group: I64 | None = None, groups: int = 0) -> Tallied:
        """The sums of several threads' counters, which may have different numbers of rows.

        Args:
            counters: of all threads.
            group: int64[n], the group of each row, or NO_ROW: left out; None: each row is one.
            groups: how many there are.

        Raises:
            NotCompiledError: the compiled library is not there.
        """
        library = need_native()
        rows = rows_of(counters)
        if group is None:
            group, groups = np.arange(rows), rows
        # A row that nothing was counted of may have a group, too, and one that nobody asks for none.
        of_row = np.full(rows, NO_ROW)
        of_row[: len(group)] = group[:rows]
        lanes, cycles = np.zeros((groups, LANES), np.uint64), np.zeros((groups, len(LATENCIES)), np.uint64)
        first_row, first_page = (
            np.cumsum([0, *(len(each) for each in column)], dtype=np.uint64)
            for column in ([part.rows for part in counters], [part.pages for part in counters])
        )
        lists = [np.zeros(size, np.uint32) for size in (groups, first_row[-1], groups * len(LATENCIES), first_page[-1])]
        parts = (_Part * len(counters))(*(part.native() for part in counters))
        sums = _Sums(groups, *(each.ctypes.data for each in (of_row, lanes, cycles)))
        sums.row, sums.next_row, sums.page, sums.next_page = (each.ctypes.data for each in lists)
        sums.first_row, sums.first_page = first_row.ctypes.data, first_page.ctypes.data
        most = library.spe_link(parts, len(parts), ctypes.byref(sums))
        key, count = np.empty(most, np.uint64), np.empty(most, np.uint64)
        sums.key, sums.count = key.ctypes.data, count.ctypes.data
        histogram = np.zeros(HISTOGRAM_WORDS, np.uint64)
        found = library.spe_sum(parts, len(parts), ctypes.byref(sums), histogram.ctypes.data)
        return Tallied(lanes, cycles, key[:found], count[:found])


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

    def has_any(self) -> NDArray[np.bool_]:
        """bool[LANES]: whether that counter is not zero in any row."""
        words = self.rows.view(np.uint64).reshape(len(self.rows), ROW.itemsize // 8)[:, : LANES // 8]
        narrow = np.bitwise_or.reduce(words, axis=0, initial=0).view(np.uint8)
        found: NDArray[np.bool_] = (narrow != 0) | self.wide[:, :LANES].any(axis=0)
        return found

    def native(self) -> _Part:
        """The structure that points to these arrays."""
        return _Part(
            *(each.ctypes.data for each in (self.rows, self.wide_of, self.wide, self.pages)),
            row_count=len(self.rows),
            page_count=len(self.pages),
        )


def rows_of(counters: Sequence[TallyPart]) -> int:
    """Rows of the thread that has the most."""
    return max((len(each.rows) for each in counters), default=0)


def lane_of(counters: Sequence[TallyPart], lane: int) -> U64:
    """uint64[rows]: one counter of each row, of all threads."""
    found = np.zeros(rows_of(counters), np.uint64)
    for each in counters:
        found[: len(each.rows)] += each.lane(lane)
    return found
