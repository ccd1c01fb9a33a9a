"""The compiled table of distinct call chains (``native/perf_chains.c``), and what memory it grows in."""

import ctypes
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from tdprof.decode.perf.columns import Chains
from tdprof.model.arrays import I32, U64
from tdprof.native.perf_records import PerfChains, Stop


class ChainTable:
    """Distinct chains of words, numbered in the order in which they come.

    Args:
        library: the compiled library.
        native: the table itself, which may be part of another structure.
    """

    def __init__(self, library: ctypes.CDLL, native: PerfChains) -> None:
        self._library = library
        self._native = native
        self._native.seed = int.from_bytes(os.urandom(8), "little")
        self.forget()

    def forget(self) -> None:
        """Begin with an empty table, numbered from 0."""
        self._slots = np.zeros(1 << 12, np.uint64)
        self._offsets = np.zeros(1 << 11, np.uint64)
        self._words = np.empty(1 << 15, np.uint64)
        self._native.rows = 0
        self._point()

    def chains(self, first: int = 0) -> Chains:
        """Those from number ``first`` on: views, since a table that grows never writes to what is there."""
        rows = self._native.rows
        offsets = self._offsets[min(first, rows) : rows + 1]
        return Chains(self._words[offsets[0] : offsets[-1]], offsets - offsets[0])

    def add(self, words: U64, starts: U64) -> I32:
        """The number of each chain ``words[starts[i]:starts[i + 1]]``."""
        words, starts = np.ascontiguousarray(words), np.ascontiguousarray(starts)
        numbers = np.empty(len(starts) - 1, np.int32)
        stop, done = ctypes.c_int32(), 0
        while done < len(numbers):
            done = self._library.tdprof_perf_intern(
                ctypes.byref(self._native),
                words.ctypes.data,
                starts.ctypes.data,
                len(numbers),
                done,
                numbers.ctypes.data,
                ctypes.byref(stop),
            )
            if stop.value != Stop.END:
                self.make_room(stop.value)
        return numbers

    def make_room(self, stop: int) -> None:
        """Grow what the compiled code said is full: ``Stop.CHAINS`` or ``Stop.FRAMES``."""
        if stop == Stop.FRAMES:
            self._words = grown(self._words, times=4)  # pages that nothing is written to take no memory
            self._point()
            return
        old = self._slots
        self._slots = np.zeros(2 * len(old), np.uint64)
        self._offsets = grown(self._offsets)
        self._point()
        self._library.tdprof_perf_rehash(ctypes.byref(self._native), old.ctypes.data, len(old))

    def _point(self) -> None:
        native = self._native
        native.slots, native.slot_mask = self._slots.ctypes.data, len(self._slots) - 1
        native.offsets, native.capacity = self._offsets.ctypes.data, len(self._offsets) - 1
        native.frames, native.frame_capacity = self._words.ctypes.data, len(self._words)


def grown(array: npt.NDArray[Any], times: int = 2) -> npt.NDArray[Any]:
    """The array at twice its size, or more; branch stacks need room for a whole one (up to 2,730 entries) from the
    start."""
    larger = np.empty((max(4096, times * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
