"""The one file that a command writes its result to, wherever the user wants it.

Links on the way are the user's wish where he, root, or who called sudo made them; those of others are not followed.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tdprof.linux.folder_path import MOST_LINKS, open_folder, user_name
from tdprof.linux.sudo import invoking_user, is_trusted
from tdprof.values import dataclass

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SPECIAL = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC


def no_links_of_others(status: os.stat_result, shown: str) -> None:
    """For root, refuse links that another user than root and who called sudo made; a check for ``open_folder``.

    Others have the kernel for that (fs.protected_symlinks), and no more to lose than their own files.

    Raises:
        PermissionError: it is such a link.
    """
    if stat.S_ISLNK(status.st_mode) and os.geteuid() == 0 and not is_trusted(status.st_uid):
        raise PermissionError(errno.EPERM, f"{shown} is a link that {user_name(status.st_uid)} made", shown)


@dataclass(frozen=True, slots=True)
class _Place:
    """A name in an open folder.

    Attributes:
        parent: descriptor of the folder (O_PATH).
        name: what the file is called there.
        special: of a device or a pipe that stands there, which is written to as it is: (device, inode); None: of none.
        flags: with which that is opened.
    """

    parent: int
    name: str
    special: tuple[int, int] | None = None
    flags: int = _SPECIAL | os.O_NOFOLLOW


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """A file (0600) that takes the place of ``path`` once it is complete; a device or a pipe is written directly.

    Raises:
        OSError: it cannot be written; what was there before stays.
    """
    with _place_of(path) as place:
        if place.special:
            with _open_special(place) as file:
                yield file
            return
        unfinished = f".{place.name}.{os.urandom(6).hex()}"
        fd = os.open(unfinished, _NEW_FILE, 0o600, dir_fd=place.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                yield file
                file.flush()
                _give(file.fileno(), place)
            os.rename(unfinished, place.name, src_dir_fd=place.parent, dst_dir_fd=place.parent)
        except BaseException:  # Ctrl-C as well must not leave a part behind
            with contextlib.suppress(OSError):
                os.unlink(unfinished, dir_fd=place.parent)
            raise


def new_file(path: Path) -> BinaryIO:
    """An empty file (0600) at ``path``, to be written bit by bit; one that was there goes, a device or a pipe stays.

    Raises:
        OSError: it cannot be made.
    """
    with _place_of(path) as place:
        if place.special:
            return _open_special(place)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place.name, dir_fd=place.parent)
        file = os.fdopen(os.open(place.name, _NEW_FILE, 0o600, dir_fd=place.parent), "wb")
        _give(file.fileno(), place)
        return file


def _give(fd: int, place: _Place) -> None:
    """Who called sudo gets the file where he could have made it himself."""
    user = invoking_user()
    if user and user.could_write(os.fstat(place.parent)):
        user.give(fd)


@contextlib.contextmanager
def _place_of(path: Path) -> Iterator[_Place]:
    """Where ``path`` leads, link by link."""
    parent, name = open_folder(path.parent, no_links_of_others), path.name
    try:
        for _ in range(MOST_LINKS):
            try:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                yield _Place(parent, name)
                return
            if not stat.S_ISLNK(status.st_mode):
                _check_reader(status, path)
                is_special = not stat.S_ISREG(status.st_mode)
                yield _Place(parent, name, (status.st_dev, status.st_ino) if is_special else None)
                return
            if not is_trusted(status.st_uid):
                raise PermissionError(errno.EPERM, f"it is a link that {user_name(status.st_uid)} made", str(path))
            if found := _no_file(name, parent):
                yield _Place(parent, name, (found.st_dev, found.st_ino), _SPECIAL)
                return
            target = Path(os.readlink(name, dir_fd=parent))
            inner = open_folder(target.parent, no_links_of_others, start=parent)
            os.close(parent)
            parent, name = inner, target.name
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    finally:
        os.close(parent)


def _check_reader(status: os.stat_result, path: Path) -> None:
    """Refuse a pipe or socket of another user's, who would get the result, or let us wait for ever."""
    is_read = stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
    if is_read and not is_trusted(status.st_uid):
        raise PermissionError(errno.EPERM, f"it is a pipe that {user_name(status.st_uid)} made", str(path))


def _no_file(name: str, parent: int) -> os.stat_result | None:
    """What a link of /proc/PID/fd leads to, if no name does: a pipe, a terminal's other end, a socket."""
    if os.fstat(parent).st_dev != os.stat("/proc").st_dev:
        return None
    status = os.stat(name, dir_fd=parent)
    return None if stat.S_ISREG(status.st_mode) else status


def _open_special(place: _Place) -> BinaryIO:
    fd = os.open(place.name, place.flags, dir_fd=place.parent)
    status = os.fstat(fd)
    # Who may rename here could have put another user's pipe there, or a link to any device, which only root may write.
    if (status.st_dev, status.st_ino) != place.special:
        os.close(fd)
        raise OSError(errno.EAGAIN, "it was exchanged while it was opened", place.name)
    return os.fdopen(fd, "wb")
