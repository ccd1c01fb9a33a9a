"""Recordings, too large to be read into memory: mapped, and read no further once somebody has cut one short."""

import contextlib
import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from typing import IO

import numpy as np

from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import FileBytes
from tdprof.native.library import load_native

_watching = threading.Lock()


class WatchedMap(mmap.mmap):
    """A mapping whose pages read as zeros once they are gone."""

    _library: ctypes.CDLL | None = None
    _number = -1

    def watch(self, library: ctypes.CDLL) -> bool:
        """False if too many mappings are watched; this one ends the process then (SIGBUS) when a page is gone."""
        with _watching:
            self._number = library.tdprof_watch_pages(np.frombuffer(self, np.uint8).ctypes.data, len(self))
        self._library = library
        return self._number >= 0

    def is_lost(self) -> bool:
        """Whether zeros were read for pages that are gone."""
        return self._library is not None and self._number >= 0 and bool(self._library.tdprof_pages_lost(self._number))

    def __del__(self) -> None:
        if self._library is not None and self._number >= 0:
            self._library.tdprof_unwatch_pages(self._number)


class MappedFiles:
    """The files of one input, whose bytes stay valid as long as anybody holds them."""

    def __init__(self) -> None:
        self._maps: list[tuple[WatchedMap, str]] = []
        self._cut: list[str] = []

    def add(self, file: IO[bytes], name: str) -> WatchedMap | memoryview:
        """The bytes of an open regular file; ``name`` is for people.

        What cannot be watched is read into memory: nothing can without the compiled library.

        Raises:
            OSError: it cannot be mapped.
        """
        size = os.fstat(file.fileno()).st_size
        if not size:
            return memoryview(b"")
        library = load_native()
        if library is not None:
            mapped = WatchedMap(file.fileno(), size, prot=mmap.PROT_READ)
            if mapped.watch(library):
                self._maps.append((mapped, name))
                return mapped
        data = FileBytes(os.dup(file.fileno())).read(0, size)
        if len(data) < size:
            self._cut.append(name)
        return data

    def forget(self, data: memoryview) -> None:
        """Takes pages that were read out of this process's memory; who looks at them again reads them again."""
        where = np.frombuffer(data, np.uint8).ctypes.data
        for mapped, _ in self._maps:
            start = where - np.frombuffer(mapped, np.uint8).ctypes.data
            if 0 <= start <= start + len(data) <= len(mapped):
                first = start + -start % mmap.PAGESIZE  # what shares a page with others stays
                pages = (start + len(data) - first) // mmap.PAGESIZE
                if pages > 0:
                    mapped.madvise(mmap.MADV_DONTNEED, first, pages * mmap.PAGESIZE)
                return

    def check(self) -> None:
        """To be called before what was made of the bytes is used.

        Raises:
            TdprofError: some of them were not the file's.
        """
        for name in (*self._cut, *(name for mapped, name in self._maps if mapped.is_lost())):
            raise TdprofError(
                f"{name} was cut short or could not be read while it was read",
                hint=f"cp -a {name} somewhere that nobody else writes to, and read the copy",
            )

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """For the block that reads them: whatever the zeros led to, the error says that they were there."""
        try:
            yield
        finally:
            self.check()
