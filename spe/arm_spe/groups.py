"""Pairs of keys, numbered in compiled code."""

from __future__ import annotations

import ctypes
from ctypes import c_uint64, c_void_p

import numpy as np
from numpy.typing import NDArray

from arm_spe.native import need_native

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
_FIRST_CAPACITY = 1 << 12
_SLOTS = 4  # for each group: few of them meet


class SpeGroups(ctypes.Structure):
    """`struct spe_groups`."""

    _fields_ = (
        ("slots", c_uint64),
        ("capacity", c_uint64),
        ("count", c_uint64),
        *((name, c_void_p) for name in ("slot", "pair")),
    )


class GroupTable:
    """Numbers pairs of uint64 keys in the order of their first appearance.

    Raises:
        NotCompiledError: the compiled library is not there.
    """

    def __init__(self) -> None:
        self._library = need_native()
        self._allocate(_FIRST_CAPACITY)

    def __len__(self) -> int:
        return int(self.struct.count)

    @property
    def first(self) -> U64:
        """uint64: first key of each group."""
        return self._pairs[: len(self), 0]

    @property
    def second(self) -> U64:
        """uint64: second key of each group."""
        return self._pairs[: len(self), 1]

    @property
    def capacity(self) -> int:
        """Groups that there is room for."""
        return int(self.struct.capacity)

    def _allocate(self, capacity: int) -> None:
        self._slot = np.zeros(_SLOTS * capacity, np.uint32)
        self._pairs = np.zeros((capacity, 2), np.uint64)
        self.struct = SpeGroups(
            slots=_SLOTS * capacity,
            capacity=capacity,
            slot=self._slot.ctypes.data,
            pair=self._pairs.ctypes.data,
        )

    def grow(self) -> None:
        """Make room for twice as many groups; `struct` is a new one."""
        first, second = self.first, self.second
        self._allocate(2 * self.capacity)
        self.number(first, second)

    def number(self, first: U64, second: U64) -> U32:
        """uint32[n]: the group of each of n pairs."""
        first, second = np.ascontiguousarray(first, np.uint64), np.ascontiguousarray(second, np.uint64)
        groups = np.empty(len(first), np.uint32)
        done = 0
        while True:
            places = (array[done:].ctypes.data for array in (first, second, groups))
            first_at, second_at, groups_at = places
            rows = len(first) - done
            done += self._library.spe_group(first_at, second_at, rows, ctypes.byref(self.struct), groups_at)
            if done == len(first):
                return groups
            self.grow()
