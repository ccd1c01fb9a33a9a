"""Bytes of files that others may change, replace or cut short while they are read.

A mapping of such a file ends the process (SIGBUS) once its owner truncates it. So pieces are read, when they are
needed, and a piece that is gone is short.
"""

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tdprof.values import dataclass

LARGEST_PIECE = 4 << 30  # what 32-bit DWARF can address of a section
_SMALL_PIECE = 1 << 20
_HOLES_BYTES = 64 << 20  # so much of a file that occupies nothing is read as zeros
_MOST_HOLES = 16  # beyond that, so many times what the piece occupies
_READ_BYTES = 1 << 30  # Linux reads at most 2 GiB at once
_SPARE_HOLES_BYTES = 1 << 20


class NotRegularError(OSError):
    """The name leads to a device, a pipe, a socket, a folder, or a link where none may be."""


def open_regular(path: str | Path, *, flags: int = 0, dir_fd: int | None = None) -> int:
    """A descriptor for reading of a regular file; nothing else is opened, since that may wait or start a device.

    Args:
        path: of the file.
        flags: more flags for the lookup, such as ``O_NOFOLLOW``.
        dir_fd: the folder that ``path`` is relative to.

    Raises:
        NotRegularError: it is something else.
        OSError: it cannot be opened.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=dir_fd)
    try:
        return reopen_regular(place)
    finally:
        os.close(place)


def reopen_regular(place: int) -> int:
    """The same for a file that is held by a descriptor (``O_PATH``), whatever its name means by now."""
    if not stat.S_ISREG(os.fstat(place).st_mode):
        raise NotRegularError(errno.EINVAL, "not a regular file")
    return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def open_own(path: Path) -> BinaryIO:
    """Open a file of a folder that we may have been given by anybody, such as a capture: no link, nothing but a file.

    Raises:
        OSError: it is something else, or cannot be opened.
    """
    return os.fdopen(open_regular(path, flags=os.O_NOFOLLOW), "rb")


@contextlib.contextmanager
def inner_folder(folder: Path) -> Iterator[Path | None]:
    """A path that leads to a folder of a capture that anybody may have made, whatever its name means by now.

    It leads there from this process, inside the ``with`` block, and is of no use in a message. None: there is no such
    folder, or the name is a link.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def open_inside(folder: Path, name: str) -> int:
    """A descriptor for reading of a regular file in a folder of a capture, of which neither may be a link.

    Raises:
        NotRegularError: it is something else than a file, or a link.
        OSError: it cannot be opened, or the folder is a link.
    """
    inner = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return open_regular(name, flags=os.O_NOFOLLOW, dir_fd=inner)
    finally:
        os.close(inner)


def read_inside(folder: Path, name: str, most_bytes: int) -> bytes:
    """The content of such a file.

    Raises:
        OSError: as ``open_inside``; or (EFBIG) it is longer, be it by holes.
    """
    with os.fdopen(open_inside(folder, name), "rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
        return file.read(most_bytes)


def appended_bytes(fd: int) -> int:
    """How far an open file is read that was only ever appended to, and so has no holes but those of a file system that
    keeps no zeros: to where they come to more than 1 MiB and what stands before them. Leaves its position at the start.
    """
    size, data = os.fstat(fd).st_size, 0
    for start, end in _stretches(fd, 0, size):
        if start > 2 * data + _SPARE_HOLES_BYTES:
            break
        data += end - start
    os.lseek(fd, 0, os.SEEK_SET)
    return min(size, 2 * data + _SPARE_HOLES_BYTES)


def _stretches(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
            hole = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.EINVAL:  # a file system that does not know of holes
                yield start, end
            return
        if start < end:
            yield start, min(hole, end)
        start = hole


@dataclass(frozen=True, slots=True)
class UnreadBytes:
    """A piece of a file that is not read yet, for who needs parts of it.

    Attributes:
        area: memory for it, zeros.
        content: the file, which is open as long as this lives.
        offset: of the piece in it.
    """

    area: memoryview
    content: "FileBytes"
    offset: int

    @property
    def fd(self) -> int:
        """The file's descriptor."""
        return self.content.fd


class MemoryBytes:
    """Bytes that are in memory already, with the interface of ``FileBytes``."""

    __slots__ = ("_data", "size")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> memoryview:
        """At most ``size`` bytes from ``offset`` on."""
        return self._data[offset : offset + size]

    def reserve(self, offset: int, size: int) -> memoryview:
        """The same."""
        return self.read(offset, size)


def _memory(size: int, flags: int = 0) -> memoryview:
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags))


class FileBytes:
    """The bytes of an open file. Owns its descriptor and closes it when nobody holds this any more.

    Args:
        fd: of a regular file, for reading.
    """

    __slots__ = ("_fd", "size")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def __del__(self) -> None:
        os.close(self._fd)

    @property
    def fd(self) -> int:
        """The descriptor, which stays this object's."""
        return self._fd

    def owner(self) -> int:
        """The number of the user whose file it is."""
        return os.fstat(self._fd).st_uid

    def written_ns(self) -> int:
        """When it was written last, CLOCK_REALTIME."""
        return os.fstat(self._fd).st_mtime_ns

    def has_other_names(self) -> bool:
        """Whether hard links lead to it: who made one of them need not be its owner (fs.protected_hardlinks)."""
        return os.fstat(self._fd).st_nlink > 1

    def read(self, offset: int, size: int) -> memoryview:
        """At most ``size`` bytes from ``offset`` on: fewer where the file ends, or could not be read.

        None at all of a piece that is larger than any real one, or hardly more than a hole in a sparse file: it would
        take memory that the file itself does not take.
        """
        offset = min(offset, self.size)
        size = min(size, self.size - offset)
        if size <= _SMALL_PIECE:
            with contextlib.suppress(OSError):
                return memoryview(os.pread(self._fd, size, offset))
            return memoryview(b"")
        size = max(0, min(size, os.fstat(self._fd).st_size - offset))  # a hole reads as zeros, what is cut off does not
        stretches = list(self.stretches(offset, offset + size))
        weight = sum(end - start for start, end in stretches)
        if not size or size > min(LARGEST_PIECE, max(_HOLES_BYTES, _MOST_HOLES * weight)):
            return memoryview(b"")
        return self._read_stretches(offset, size, stretches)

    def reserve(self, offset: int, size: int) -> memoryview | UnreadBytes:
        """The same, but a large piece without holes is left for others to read."""
        size = max(0, min(size, os.fstat(self._fd).st_size - offset))
        is_whole = list(self.stretches(offset, offset + size)) == [(offset, offset + size)]
        if not _SMALL_PIECE < size <= LARGEST_PIECE or not is_whole:
            return self.read(offset, size)
        return UnreadBytes(_memory(size), self, offset)

    def _read_stretches(self, offset: int, size: int, stretches: list[tuple[int, int]]) -> memoryview:
        area = _memory(size, mmap.MAP_POPULATE if stretches == [(offset, offset + size)] else 0)
        for start, end in stretches:
            at = start
            while at < end:
                wanted = area[at - offset : min(end, at + _READ_BYTES) - offset]
                try:
                    got = os.preadv(self._fd, [wanted], at)
                except OSError:
                    got = 0
                if not got:
                    return area[: at - offset].toreadonly()
                at += got
        return area.toreadonly()

    def stretches(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(start, end) of the parts of the file between two offsets that are no holes."""
        return _stretches(self._fd, start, end)
