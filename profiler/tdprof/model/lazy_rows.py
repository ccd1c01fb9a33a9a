"""What rows of a report hold, made when it is looked at: of half a million rows most are never shown at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

from tdprof.model.arrays import I64

T = TypeVar("T", covariant=True)


class LazyRows(Sequence[T], Generic[T]):
    """A row's value is made of its number.

    Args:
        rows: int64[n].
        make: of one of them.
    """

    def __init__(self, rows: I64, make: Callable[[int], T]) -> None:
        self._rows = rows
        self._make = make

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> LazyRows[T]: ...
    def __getitem__(self, at: int | slice) -> T | LazyRows[T]:
        if isinstance(at, slice):
            return LazyRows(self._rows[at], self._make)
        return self._make(int(self._rows[at]))
