"""Opening and copying files whose names others choose: programs of containers, files in /tmp.

What such a name means may change at any moment, to a device, a pipe, or a link to a file that only we may read.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

LARGEST_COPY = 1 << 30  # bytes


@contextlib.contextmanager
def open_below(root: str | Path, path: str) -> Iterator[int]:
    """A descriptor (O_PATH) of the regular file ``path`` below ``root``; symbolic links on the way are not followed.

    Raises:
        OSError: it is not there, behind a link, or no regular file.
    """
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.strip("/").split("/"):
            if part in ("", ".", ".."):
                raise OSError(errno.EINVAL, "no plain path")
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield _regular(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def open_mapped(pid: int, start: int, length: int) -> Iterator[int]:
    """A descriptor (O_PATH) of the very file that a process mapped there, also if it was deleted since.

    Raises:
        OSError: nothing is mapped just there any more, or only root may know what.
    """
    fd = os.open(f"/proc/{pid}/map_files/{start:x}-{start + length:x}", os.O_PATH | os.O_CLOEXEC)
    try:
        yield _regular(fd)
    finally:
        os.close(fd)


def _regular(fd: int) -> int:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def contents(fd: int) -> Path:
    """A path that opens the file of a descriptor, whatever its name means by now."""
    return Path(f"/proc/self/fd/{fd}")


def copy_file(fd: int, target: Path) -> None:
    """Copy a file of at most LARGEST_COPY bytes; ``target`` is there when it is complete.

    Raises:
        OSError: it is larger, or cannot be read or written.
    """
    left = os.fstat(fd).st_size
    if left > LARGEST_COPY:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    target.parent.mkdir(exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with contents(fd).open("rb") as source, partial.open("wb") as copy:
            while left and (data := source.read(min(left, 1 << 20))):
                copy.write(data)
                left -= len(data)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
