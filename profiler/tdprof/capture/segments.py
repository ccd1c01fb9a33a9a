"""The folder that a recording without end writes its segments into: each a whole capture, the oldest ones going first.

It is one recorder's at a time, which a lock on it sees to. Segments are named by the moment they began, or,
where the clock was set back, by the one after the newest's: the order of names is the order in time.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from tdprof.capture.output_folder import OutputFolder, open_capture, remove_capture, remove_prepared
from tdprof.capture.spool import SPOOL_FOLDER
from tdprof.errors import TdprofError
from tdprof.linux.folder_path import open_folder
from tdprof.linux.output_file import no_links_of_others
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.sudo import invoking_user

_NAME, _MOMENT = re.compile(r"\d{8}T\d{6}\.\d{3}Z"), "%Y%m%dT%H%M%S.%fZ"
_BLOCK_BYTES = 512  # unit of st_blocks
_ANOTHER = "name another folder with -o"


class SegmentFolder:
    """Made where it is missing, and taken back where nothing comes of it. Use as a context manager.

    Attributes:
        path: its name.
        names: of the segments in it, oldest first.

    Raises:
        TdprofError: it cannot be made, is another user's, or another recorder writes into it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.ExitStack() as opening:
            try:
                self._fd = _open(path, opening)
            except OSError as error:
                raise TdprofError(f"cannot record into {path}: {error.strerror}", hint=_ANOTHER) from error
            self._lock()
            self._closing = opening.pop_all()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.names = sorted(filter(_NAME.fullmatch, os.listdir(self._fd)))
        except OSError as error:
            raise TdprofError(f"another recorder writes into {self.path}", hint=_ANOTHER) from error

    def new(self) -> OutputFolder:
        """A segment that begins now, not made yet; by its name the newest one, though the clock were set back."""
        moment = datetime.now(UTC)
        if self.names:
            with contextlib.suppress(ValueError, OverflowError):  # no moment there is, or the last one
                newest = datetime.strptime(self.names[-1], _MOMENT).replace(tzinfo=UTC)
                moment = max(moment, newest + timedelta(milliseconds=1))
        while (name := f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03}Z") in self.names:
            moment += timedelta(milliseconds=1)
        self.names.append(name)
        return OutputFolder(self.path / name)

    def forget(self, name: str) -> None:
        """A segment came to nothing."""
        self.names.remove(name)

    def remove(self, name: str) -> None:
        """Remove a segment; what cannot be removed stays, and does not count any more."""
        self.names.remove(name)
        with contextlib.suppress(OSError):
            remove_capture(self._fd, name)

    def remove_prepared(self) -> None:
        """Remove what a recorder that was killed had prepared: the segment before has all that was recorded."""
        for name in list(self.names):
            with contextlib.suppress(OSError):
                remove_prepared(self._fd, name)
                self.names.remove(name)

    def unfinished(self) -> list[str]:
        """Segments whose recorder ended before it made their tables."""
        return [name for name in self.names if self._has_spool(name)]

    def _has_spool(self, name: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(f"{name}/{SPOOL_FOLDER}", dir_fd=self._fd, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def open(self, name: str) -> OwnFolder:
        """A segment that is there.

        Raises:
            OSError: it is no capture, or another user's.
        """
        return OwnFolder(open_capture(self._fd, name), self.path / name)

    def bytes_of(self, name: str) -> int:
        """What a segment takes on the disk."""
        with contextlib.suppress(OSError):
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                return _bytes_below(fd)
            finally:
                os.close(fd)
        return 0

    def free_bytes(self) -> int:
        """What the disk has left for this user."""
        found = os.fstatvfs(self._fd)
        return found.f_bavail * found.f_frsize

    def remove_oldest(self, kept: Collection[str]) -> str | None:
        """Remove the oldest segment that is not one of ``kept`` and return its name; None if there is none."""
        for name in self.names:
            if name not in kept:
                # What cannot be removed is no segment of ours: it does not count.
                self.names.remove(name)
                with contextlib.suppress(OSError):
                    remove_capture(self._fd, name)
                    return name
                return self.remove_oldest(kept)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()


def _open(path: Path, closing: contextlib.ExitStack) -> int:
    """A folder of this user's or of who called sudo; a new one becomes the latter's.

    Args:
        path: its name.
        closing: closes it; a new one that is empty then is removed.

    Raises:
        OSError: it is somebody else's, no folder, or cannot be made.
    """
    parent = open_folder(path.parent, no_links_of_others)
    closing.callback(os.close, parent)
    try:
        os.mkdir(path.name, 0o700, dir_fd=parent)
    except FileExistsError:
        is_new = False
    else:
        is_new = True
    found = closing.enter_context(OwnFolder.below(parent, path.name, path, allows_caller=True))
    if is_new:
        closing.callback(_remove_empty, path.name, parent)
    if is_new and (user := invoking_user()) and user.could_write(os.fstat(parent)):
        user.give(found.fd)
    if os.fstat(found.fd).st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others may write into it (chmod go-w)")
    return found.fd


def _remove_empty(name: str, parent: int) -> None:
    with contextlib.suppress(OSError):  # something was recorded
        os.rmdir(name, dir_fd=parent)


def _bytes_below(folder: int) -> int:
    """Of all files below, which may come and go meanwhile."""
    total = 0
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            total += status.st_blocks * _BLOCK_BYTES
            if stat.S_ISDIR(status.st_mode):
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    total += _bytes_below(fd)
                finally:
                    os.close(fd)
    return total
