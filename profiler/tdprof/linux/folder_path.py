"""Opening a folder name by name, so that who owns each name on the way decides, and nobody can swap one meanwhile."""

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

MOST_LINKS = 40  # as the kernel follows at most (include/linux/namei.h, MAXSYMLINKS)
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
Check = Callable[[os.stat_result, str], None]
"""Told the status of a name on the way and how to call it; raises OSError where it is not to be passed."""


def open_folder(path: Path, check: Check, *, make: bool = False, start: int | None = None) -> int:
    """A descriptor (O_PATH) of a folder; the caller closes it.

    Args:
        path: where; unless absolute, relative to ``start``, which is taken as it is.
        check: asked about every folder and every link on the way, before it is entered or followed.
        make: create what is missing, for this user alone (0700).
        start: descriptor of a folder; None: the current one.

    Raises:
        OSError: a name is missing, no folder, or refused by ``check``.
    """
    left = list(reversed(path.parts))
    fd, links, shown = os.open(".", _FOLDER, dir_fd=start), 0, Path()
    try:
        while left:
            name = left.pop()
            shown /= name
            refused = _make(name, fd) if make else None
            try:
                inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except FileNotFoundError as error:
                raise refused or error from None
            try:
                status = os.fstat(inner)
                check(status, str(shown))
                if not stat.S_ISLNK(status.st_mode):
                    fd, inner = inner, fd
                    continue
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                target = Path(os.readlink("", dir_fd=inner))
                left += reversed(target.parts)
                shown = shown.parent
            finally:
                os.close(inner)
        return os.open(".", _FOLDER, dir_fd=fd)
    finally:
        os.close(fd)


def _make(name: str, folder: int) -> OSError | None:
    """Why it was not made, if it was not, which may be that it is there."""
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except OSError as error:
        # What is there already may be refused for other reasons, too.
        if error.errno not in (errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR):
            raise
        return error
    return None


def only_ours(status: os.stat_result, shown: str) -> None:
    """Refuse what another user than this one and root owns, or could put something else into.

    A folder that all may write to counts where it is sticky, as /tmp: nobody replaces there what is not theirs.

    Raises:
        PermissionError: it is refused; ``strerror`` says why.
    """
    if status.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, f"{shown} belongs to {user_name(status.st_uid)}", shown)
    is_shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    if is_shared and not stat.S_ISLNK(status.st_mode):
        raise PermissionError(errno.EPERM, f"others may write to {shown}", shown)


def user_name(uid: int) -> str:
    """The name of a user, or his number where he has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def whose(path: Path) -> str:
    """A hint for what may not be read: whose it is, or the folder that hides it; empty where it is this user's."""
    for each in (path, *path.parents):
        with contextlib.suppress(OSError):
            owner = os.stat(each).st_uid
            return "" if owner == os.geteuid() else f"sudo tdprof …: {each} belongs to {user_name(owner)}"
    return ""
