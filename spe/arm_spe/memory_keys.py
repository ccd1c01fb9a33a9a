"""What the keys of `Key.ADDRESS` say: a block of memory, by its data address and by a physical one if there is one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
# The layout of tally.h.
_IS_PHYSICAL, _PAGE_SHIFT, _HIGH, _LOW, _ADDRESS_BITS = 62, 12, 53, 33, 56
_PHYSICAL_BITS = 52


@dataclass(frozen=True, slots=True)
class MemoryKeys:
    """Of n groups that have a data address.

    Attributes:
        block: uint64[n], data address / the blocks' size; 2^64 less than that for the kernel's, as an address is.
        thread: uint64[n].
        physical: uint64[n], physical address / the blocks' size; 0 without one.
        is_physical: bool[n], whether there is one.
    """

    block: U64
    thread: U64
    physical: U64
    is_physical: NDArray[np.bool_]


def split_memory_keys(first: U64, second: U64, block_bytes: int) -> MemoryKeys:
    """What two keys mean; blocks are of so many bytes, a power of two."""
    shift = block_bytes.bit_length() - 1
    is_physical = first >> np.uint64(_IS_PHYSICAL) == 1
    if not is_physical.any():
        return MemoryKeys(first, second, np.zeros_like(first), is_physical)
    low = first & _ones(_ADDRESS_BITS - shift)
    block = np.where(is_physical, canonical(low << np.uint64(shift)) >> np.uint64(shift), first)
    high = first >> np.uint64(_HIGH) & _ones(_IS_PHYSICAL - _HIGH)
    page = high << np.uint64(64 - _LOW) | second >> np.uint64(_LOW)
    physical = np.where(is_physical, physical_block(low << np.uint64(shift), page, shift), np.uint64(0))
    return MemoryKeys(block, np.where(is_physical, second & _ones(_LOW), second), physical, is_physical)


def physical_address(va: U64, pa: U64, has_both: NDArray[np.bool_]) -> tuple[U64, NDArray[np.bool_]]:
    """uint64[n], bool[n]: physical addresses, 0 where there is none that can be the data address's."""
    page = pa & _ones(_ADDRESS_BITS)
    is_told = has_both & ((va ^ pa) & _ones(_PAGE_SHIFT) == 0) & (page >> np.uint64(_PHYSICAL_BITS) == 0)
    return np.where(is_told, page, np.uint64(0)), is_told


def canonical(address: U64) -> U64:
    """uint64[n]: bit 55 of each copied to the bits above it."""
    signed = address.astype(np.int64) << 8 >> 8
    return signed.view(np.uint64)


def physical_block(address: U64, page: U64, shift: int) -> U64:
    """Physical block numbers, of an address with the same bits below a page and of the page's number."""
    return (page << np.uint64(_PAGE_SHIFT) | address & _ones(_PAGE_SHIFT)) >> np.uint64(shift)


def _ones(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)
