"""A folder of ours, all of whose files are reached through its descriptor: whatever its name means by now, to whom.

Every writer of more than one file goes through here: captures, caches, temporary tables. What a name inside stands for
is never followed: no link, no device, no pipe, and nothing that another user wrote.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

from tdprof.errors import TdprofError
from tdprof.linux.folder_path import user_name
from tdprof.linux.sudo import invoking_user

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnFolder:
    """An open folder that belongs to this user. Use as a context manager, or close it.

    Names are those of files in it, never paths. Every method raises OSError for what cannot be had. In a folder of who
    called sudo, what root makes is his as well.

    Attributes:
        fd: its descriptor.
        shown: how to call it in a message.
    """

    def __init__(self, fd: int, shown: Path) -> None:
        self.fd = fd
        self.shown = shown
        user = invoking_user()
        self._heir = user if user and os.fstat(fd).st_uid == user.uid else None

    @classmethod
    def open(cls, path: Path) -> Self:
        """An existing folder.

        Raises:
            OSError: it is not there, a link, or (PermissionError) another user's; that of who called sudo will do.
        """
        return cls._checked(os.open(path, _FOLDER), path, allows_caller=True)

    @classmethod
    def below(cls, parent: int, name: str, shown: Path, *, make: bool = False, allows_caller: bool = False) -> Self:
        """The folder ``name`` in the one whose descriptor is ``parent``; with ``make`` created where it is missing.

        Raises:
            OSError: as ``open``; that of who called sudo only where ``allows_caller``.
        """
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(_plain(name), 0o700, dir_fd=parent)
        return cls._checked(os.open(_plain(name), _FOLDER, dir_fd=parent), shown, allows_caller=allows_caller)

    @classmethod
    def make(cls, name: str, parent: int, shown: Path) -> Self:
        """A new folder in the one whose descriptor is ``parent``, for this user alone.

        Raises:
            OSError: it exists already, or cannot be made; or somebody else's stood there when it was opened.
        """
        os.mkdir(_plain(name), 0o700, dir_fd=parent)
        found = cls._checked(os.open(name, _FOLDER, dir_fd=parent), shown)
        # Who may write to the parent may have put another folder of ours there.
        if os.fstat(found.fd).st_mode & 0o077 or os.listdir(found.fd):
            found.close()
            raise FileExistsError(errno.EEXIST, "it was exchanged for another", str(shown))
        return found

    @classmethod
    def _checked(cls, fd: int, shown: Path, *, allows_caller: bool = False) -> Self:
        uid, user = os.fstat(fd).st_uid, invoking_user() if allows_caller else None
        if uid != os.geteuid() and not (user and user.uid == uid):
            os.close(fd)
            raise PermissionError(errno.EPERM, f"it belongs to {user_name(uid)}", str(shown))
        return cls(fd, shown)

    @property
    def path(self) -> Path:
        """A path that leads here from this process, for readers that take no descriptor; of no use in a message."""
        return Path(f"/proc/self/fd/{self.fd}")

    @contextlib.contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Whatever error names ``path`` in this block calls the folder as the user does."""
        try:
            yield
        except TdprofError as error:
            error.message = error.message.replace(str(self.path), str(self.shown))
            raise

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until nobody else who opened this folder is in such a block, or until he has ended."""
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(self.fd, fcntl.LOCK_UN)

    def subfolder(self, name: str, *, make: bool = False) -> "OwnFolder":
        """A folder in it; with ``make`` created where it is missing."""
        shown = self.shown / name
        found = OwnFolder.below(self.fd, name, shown, make=make, allows_caller=self._heir is not None)
        # Not empty, it could be one of root's that was moved here.
        if make and self._heir and not found.names():
            self._heir.give(found.fd)
        return found

    def create(self, name: str, *, flags: int = 0) -> int:
        """The descriptor of a new file, for writing; ``flags`` of open(2) are added."""
        fd = os.open(_plain(name), _NEW_FILE | flags, 0o600, dir_fd=self.fd)
        if self._heir:
            self._heir.give(fd)
        return fd

    def append(self, name: str) -> BinaryIO:
        """A file to append to, new or begun before."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(_plain(name), flags, 0o600, dir_fd=self.fd)
        try:
            _check_file(os.fstat(fd), self.shown / name)
            return os.fdopen(fd, "ab")
        except OSError:
            os.close(fd)
            raise

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """A file that appears under its name, in place of an older one, when it is complete; or not at all."""
        unfinished = f".{_plain(name)}.{os.urandom(6).hex()}"
        fd = self.create(unfinished)
        try:
            with os.fdopen(fd, "wb") as file:
                yield file
            os.rename(unfinished, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:  # Ctrl-C as well must not leave a part behind
            with contextlib.suppress(OSError):
                os.unlink(unfinished, dir_fd=self.fd)
            raise

    def open_file(self, name: str) -> BinaryIO:
        """A regular file of ours that nobody else may write to, for reading."""
        fd = os.open(_plain(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            _check_file(os.fstat(fd), self.shown / name)
            return os.fdopen(fd, "rb")
        except OSError:
            os.close(fd)
            raise

    def read(self, name: str, most_bytes: int) -> bytes:
        """The content of such a file; OSError (EFBIG) if it is longer."""
        with self.open_file(name) as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(self.shown / name))
        return data

    def names(self) -> list[str]:
        """Of all that is in it, in no order."""
        return os.listdir(self.fd)

    def stat(self, name: str) -> os.stat_result:
        """Of a file, or of a link itself."""
        return os.stat(_plain(name), dir_fd=self.fd, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Whether anything has this name."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, or an empty folder; nothing where it is not there."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(self.stat(name).st_mode):
                os.rmdir(name, dir_fd=self.fd)
            else:
                os.unlink(name, dir_fd=self.fd)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that is in it, as far as it can be; links in it are not followed."""
        shutil.rmtree(_plain(name), ignore_errors=True, dir_fd=self.fd)

    def remove_all(self) -> None:
        """Remove all that is in it, as far as it can be."""
        for name in self.names():
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(self.stat(name).st_mode):
                    self.remove_tree(name)
                else:
                    self.remove(name)

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _plain(name: str) -> str:
    """The name, if it is one: a build-id out of a stranger's capture may be anything."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise OSError(errno.EINVAL, "no plain name", name)
    return name


def _check_file(status: os.stat_result, shown: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(shown))
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others could have written it", str(shown))
