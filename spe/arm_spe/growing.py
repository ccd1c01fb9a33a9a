"""Tables that grow without a copy."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_HUGE_PAGE = 2 << 20
_HUGE_FROM = 4 << 20  # bytes, as NumPy has it for its own arrays


@contextlib.contextmanager
def _told_as_lack_of_memory() -> Iterator[None]:
    """As NumPy tells it."""
    try:
        yield
    except OSError as error:
        raise MemoryError(f"no room for a table: {error.strerror}") from error


class GrowingTable:
    """Zeros, of pages of its own: where it has to move, the system moves its pages. Those never written to take no
    memory.

    Args:
        rows: at first.
        dtype: of a row.

    Raises:
        MemoryError: there is no room, here and where it grows.
    """

    def __init__(self, rows: int, dtype: np.dtype[np.void]) -> None:
        self._dtype = dtype
        self._rows = rows
        with _told_as_lack_of_memory():
            self._memory = mmap.mmap(-1, self._size_of(rows), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._use_huge_pages()

    def __len__(self) -> int:
        return self._rows

    @property
    def address(self) -> int:
        """Of the first row, until the table grows."""
        return int(self.array().ctypes.data)

    def array(self) -> NDArray[np.void]:
        """The rows; as long as anybody holds them, the table cannot grow.

        Returns:
            dtype[rows], a view.
        """
        return np.frombuffer(self._memory, self._dtype, self._rows)

    def grow(self, rows: int) -> None:
        """Zeros behind the rows that are there, up to so many."""
        if self._size_of(rows) > len(self._memory):
            with _told_as_lack_of_memory():
                self._memory.resize(self._size_of(rows))
            self._use_huge_pages()
        self._rows = rows

    def _size_of(self, rows: int) -> int:
        # Whole huge pages, since others are split where they move.
        return max(-(-rows * self._dtype.itemsize // _HUGE_PAGE), 1) * _HUGE_PAGE

    def _use_huge_pages(self) -> None:
        if len(self._memory) >= _HUGE_FROM:
            with contextlib.suppress(OSError):  # a kernel without them
                self._memory.madvise(mmap.MADV_HUGEPAGE)
