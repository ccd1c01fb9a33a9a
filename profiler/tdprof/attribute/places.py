"""Call chains as numbered places: only distinct addresses have to be attributed (``native/stack_places.c``)."""

import ctypes
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import I32, I64, U32, U64
from tdprof.native.library import load_native
from tdprof.native.stacks import StackPlaces
from tdprof.values import dataclass

_FIRST_CAPACITY = 3 << 12  # places; three quarters of the slots


@dataclass(frozen=True, slots=True)
class Places:
    """Chains of places.

    Attributes:
        start: int64[chains + 1], places of chain i are ``place[start[i]:start[i + 1]]``.
        place: int32, number of a place, leaf first.
        address: uint64[places], return addresses one less than sampled, so that they fall into the call.
        context: uint32[places].
    """

    start: I64
    place: I32
    address: U64
    context: U32


def number_places(offsets: I32, addresses: U64, rows: I64, context: U32) -> Places:
    """Number the distinct places of some chains.

    Args:
        offsets, addresses: ragged chains, leaf first: row i is ``addresses[offsets[i]:offsets[i + 1]]``.
        rows: int64[n], the chains wanted.
        context: uint32[n], for each what decides what its addresses mean: a number for address space and time.
    """
    lengths = offsets[rows + 1].astype(np.int64) - offsets[rows]
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if (library := load_native()) is None:
        return _number_in_numpy(offsets, addresses, rows, context, start)
    return _number_in_c(library, offsets, addresses, rows, context, start)


def _number_in_c(library: ctypes.CDLL, offsets: I32, addresses: U64, rows: I64, context: U32, start: I64) -> Places:
    number, rehash = library.tdprof_number_places, library.tdprof_rehash_places
    offsets, addresses = np.ascontiguousarray(offsets), np.ascontiguousarray(addresses)
    rows, context = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(context, np.uint32)
    place = np.empty(start[-1], np.int32)
    table = StackPlaces(seed=int.from_bytes(os.urandom(8), "little"))
    slots, of_address, of_context = np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint32)
    done = 0
    capacity = _FIRST_CAPACITY
    while True:
        old, slots = slots, np.zeros(capacity // 3 * 4, np.uint64)
        of_address, of_context = _resized(of_address, capacity), _resized(of_context, capacity)
        table.slots, table.slot_mask, table.capacity = slots.ctypes.data, len(slots) - 1, capacity
        table.address, table.context = of_address.ctypes.data, of_context.ctypes.data
        rehash(ctypes.byref(table), old.ctypes.data, len(old))
        done = number(
            ctypes.byref(table),
            offsets.ctypes.data,
            addresses.ctypes.data,
            rows.ctypes.data,
            context.ctypes.data,
            len(rows),
            done,
            start.ctypes.data,
            place.ctypes.data,
        )
        if done == len(rows):
            return Places(start, place, of_address[: table.rows].copy(), of_context[: table.rows].copy())
        capacity *= 2


def _resized(array: NDArray[Any], length: int) -> NDArray[Any]:
    larger = np.empty(length, array.dtype)
    larger[: len(array)] = array
    return larger


def _number_in_numpy(offsets: I32, addresses: U64, rows: I64, context: U32, start: I64) -> Places:
    lengths = np.diff(start)
    index = np.repeat(offsets[rows] - start[:-1], lengths) + np.arange(start[-1])
    is_caller = np.ones(start[-1] + 1, np.uint64)
    is_caller[start[:-1]] = 0
    key = np.empty(start[-1], [("context", np.uint32), ("address", np.uint64)])
    key["context"], key["address"] = np.repeat(context, lengths), addresses[index] - is_caller[:-1]
    distinct, place = np.unique(key, return_inverse=True)
    return Places(start, place.astype(np.int32), distinct["address"].copy(), distinct["context"].copy())


def cut_chains(places: Places, outside: NDArray[np.bool_]) -> tuple[I64, NDArray[np.bool_]]:
    """Cut every chain in front of its first caller at a place that is ``outside``.

    Returns:
        lengths: int64[chains], how many places of each chain stay.
        used: bool[places], those that stay in any chain.
    """
    lengths = np.empty(len(places.start) - 1, np.int64)
    used = np.zeros(len(places.address), bool)
    if (library := load_native()) is not None:
        flags = np.ascontiguousarray(outside, bool)
        library.tdprof_cut_chains(
            places.start.ctypes.data,
            places.place.ctypes.data,
            len(lengths),
            flags.ctypes.data,
            lengths.ctypes.data,
            used.ctypes.data,
        )
        return lengths, used
    lengths[:] = np.diff(places.start)
    chain = np.repeat(np.arange(len(lengths)), lengths)
    position = np.arange(len(chain)) - places.start[chain]
    cut = outside[places.place] & (position > 0)
    np.minimum.at(lengths, chain[cut], position[cut])
    used[places.place[position < lengths[chain]]] = True
    return lengths, used


def with_single_places(places: Places, count: int) -> Places:
    """The chains and ``count`` more, each of a place of its own that has no address."""
    more = np.arange(count, dtype=np.int64)
    return Places(
        np.concatenate([places.start, places.start[-1] + 1 + more]),
        np.concatenate([places.place, (len(places.address) + more).astype(np.int32)]),
        np.concatenate([places.address, np.zeros(count, np.uint64)]),
        np.concatenate([places.context, np.zeros(count, np.uint32)]),
    )


def gather_numbered(places: Places, lengths: I64, number: I32, rows: I64) -> tuple[U32, I32]:
    """Stacks put together out of beginnings of chains.

    Args:
        lengths: int64[chains], how much of each chain is taken.
        number: int32[places], what stands for each place.
        rows: int64[k, m], the chains of each stack, one behind the other; -1: none.

    Returns:
        start: uint32[k + 1].
        values: int32, those of stack i are ``values[start[i]:start[i + 1]]``.
    """
    taken = np.where(rows < 0, 0, np.append(lengths, 0)[rows])
    start = np.concatenate([[0], np.cumsum(taken.sum(axis=1))]).astype(np.uint32)
    values = np.empty(start[-1], np.int32)
    flat = np.ascontiguousarray(rows, np.int64).reshape(-1)
    if (library := load_native()) is not None:
        number = np.ascontiguousarray(number, np.int32)
        library.tdprof_gather_numbered(
            places.start.ctypes.data,
            lengths.ctypes.data,
            places.place.ctypes.data,
            number.ctypes.data,
            flat.ctypes.data,
            len(flat),
            values.ctypes.data,
        )
        return start, values
    length = taken.reshape(-1)
    begin = np.append(places.start, 0)[flat]
    index = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(len(values))
    return start, number[places.place[index]]
