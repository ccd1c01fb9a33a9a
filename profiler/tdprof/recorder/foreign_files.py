"""Opening and copying files whose names others choose: programs of containers, files in /tmp.

What such a name means may change at any moment, to a device, a pipe, or a link to a file that only we may read.
"""

import errno
import os
from typing import BinaryIO

from tdprof.linux.file_bytes import FileBytes, reopen_regular
from tdprof.recorder.shares import Shares

_BLOCK_BYTES = 1 << 20


def open_below(root: int, path: str) -> int:
    """A descriptor, for reading, of the regular file ``path`` below the folder ``root``; no link is followed.

    Raises:
        OSError: it is not there, behind a link, no regular file, or may not be read.
    """
    fd = hold_below(root, path)
    try:
        return reopen_regular(fd)
    finally:
        os.close(fd)


def hold_below(root: int, path: str) -> int:
    """A descriptor (O_PATH) of what ``path`` is below the folder ``root``: the last link itself, others are refused.

    Raises:
        OSError: it is not there, or behind a link.
    """
    fd = os.dup(root)
    try:
        for part in path.strip("/").split("/"):
            if part in ("", ".", ".."):
                raise OSError(errno.EINVAL, "no plain path")
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = inner
    except OSError:
        os.close(fd)
        raise
    return fd


class CopyBudget:
    """How many bytes may still be copied.

    Args:
        most_bytes: of all files together.
        largest_bytes: of one file, whether it occupies them or they are holes.
    """

    def __init__(self, most_bytes: int, largest_bytes: int) -> None:
        self.largest_bytes = largest_bytes
        self._shares = Shares(most_bytes)
        self._weight: dict[str, int] = {}

    def take(self, source: FileBytes, uid: int, name: str) -> None:
        """Count a file that is to be copied.

        Args:
            source: the file.
            uid: whose process names it.
            name: of the copy; what an older one of that name took is free again.

        Raises:
            OSError: (EFBIG) it is too large, alone or after the others.
        """
        weight = sum(end - start for start, end in source.stretches(0, source.size))
        older = self._weight.get(name, 0)
        if source.size > self.largest_bytes or weight > self.left_for(uid) + older:
            raise OSError(errno.EFBIG, "too large to be kept")
        self._count(weight - older, uid, name)

    def add(self, more_bytes: int, uid: int, name: str) -> None:
        """Count what a copy has grown by, no more than there was left for the user."""
        self._count(more_bytes, uid, name)

    def left_for(self, uid: int) -> int:
        """What files of this user may still take, of the bytes of all."""
        return self._shares.left_for(uid)

    def _count(self, more_bytes: int, uid: int, name: str) -> None:
        self._weight[name] = self._weight.get(name, 0) + more_bytes
        self._shares.take(uid, more_bytes)


def copy_file(source: FileBytes, target: BinaryIO) -> None:
    """Copy a file, as long as it was when it was opened; its holes stay holes.

    Raises:
        OSError: it cannot be read or written.
    """
    for start, end in source.stretches(0, source.size):
        target.seek(start)
        for at in range(start, end, _BLOCK_BYTES):
            target.write(source.read(at, min(_BLOCK_BYTES, end - at)))
    target.truncate(source.size)
