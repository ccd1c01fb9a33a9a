"""The arrays that columns are made of."""

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
U16 = NDArray[np.uint16]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
F64 = NDArray[np.float64]
_Number = TypeVar("_Number", bound=np.integer)


def distinct(values: NDArray[_Number]) -> NDArray[_Number]:
    """The different values, in order. As ``np.unique``, which since NumPy 2.3 takes thirty times as long for integers,
    and loads NumPy's masked arrays."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: NDArray[_Number] = ordered[is_first]
    return found


def rows_by_number(numbers: NDArray[np.integer]) -> Iterator[tuple[int, I64]]:
    """Each number there is, in order, and the rows that have it."""
    order = np.argsort(numbers, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else ():
        yield int(numbers[rows[0]]), rows


def group_rows(*keys: NDArray[Any]) -> tuple[I64, I64]:
    """Bring rows with equal keys together, in the order of the keys, the first key first.

    Returns:
        order: int64[n], row numbers, group by group.
        start: int64[groups], where each group begins in ``order``; fits ``numpy.add.reduceat``.
    """
    order = np.lexsort(keys[::-1])
    differs = np.zeros(len(order), bool)
    differs[:1] = True
    for key in keys:
        differs[1:] |= np.diff(key[order]) != 0
    return order, np.flatnonzero(differs)


def group_of_row(order: I64, start: I64) -> I64:
    """int64[n]: the number of each row's group, of what `group_rows` returns."""
    group = np.empty(len(order), np.int64)
    group[order] = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(order))))
    return group


def distinct_rows(*keys: NDArray[Any]) -> tuple[I64, I32]:
    """Rows of distinct keys, in the order of the keys.

    Returns:
        first: int64[groups], the first row of each.
        group: int32[n], the group of each row.
    """
    order, start = group_rows(*keys)
    return order[start], group_of_row(order, start).astype(np.int32)
