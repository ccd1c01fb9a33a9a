"""The capture that a command makes: a new folder, taken back where nothing comes of it, and given to whom it is for.

It is root's until it is complete. Under sudo it then goes to who called sudo, files first and the folder itself last:
until that moment he can reach nothing in it, and after it root touches nothing there any more.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Self

from tdprof.capture.files import MANIFEST_FILE
from tdprof.capture.spool import SPE_FOLDER, SPOOL_FOLDER
from tdprof.errors import TdprofError
from tdprof.linux.folder_path import open_folder
from tdprof.linux.output_file import no_links_of_others
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.sudo import InvokingUser, invoking_user

_ANOTHER = "name another folder with -o"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputFolder:
    """A folder that does not exist yet. Use as a context manager: what was not published by its end is removed.

    Attributes:
        path: its name.
        is_published: whether it stays.
        stays_roots: whether it should have become who called sudo's, and the file system did not let it.

    Args:
        path: its name.
        replaces_older: whether an older capture of that name becomes ``NAME.old``, which then goes, as perf does with
            perf.data. It is moved when the new one is published, not before.
    """

    def __init__(self, path: Path, *, replaces_older: bool = False) -> None:
        self.path = path
        self._replaces_older = replaces_older
        self._stack = contextlib.ExitStack()
        self._folder: OwnFolder | None = None
        self._name = path.name  # that it has now
        self.is_published = False
        self.stays_roots = False

    @property
    def folder(self) -> OwnFolder:
        """The open folder."""
        assert self._folder is not None, "make() comes first"
        return self._folder

    def make(self) -> OwnFolder:
        """Create it; beside an older capture under another name.

        Raises:
            TdprofError: there is something of that name that may not be replaced, or it cannot be created.
        """
        try:
            self._parent = open_folder(self.path.parent, no_links_of_others)
            self._stack.callback(os.close, self._parent)
            if self._replaces_older and self._is_taken(self.path.name):
                for name in (self.path.name, f"{self.path.name}.old"):
                    if self._is_taken(name):
                        os.close(open_capture(self._parent, name))
                self._name = f".{self.path.name}.{os.urandom(6).hex()}"
            self._folder = self._stack.enter_context(OwnFolder.make(self._name, self._parent, self.path))
        except FileExistsError as error:
            hint = f"{_ANOTHER}, or remove it"
            raise TdprofError(f"{self.path} exists already", hint=hint) from error
        except OSError as error:
            raise TdprofError(f"cannot create {self.path}: {error.strerror}", hint=_ANOTHER) from error
        return self._folder

    def publish(self) -> None:
        """Something has come of it: let it have its name, out of whose way an older capture is moved.

        Raises:
            TdprofError: the older one cannot be moved, or something else has taken the name.
        """
        name, old = self.path.name, f"{self.path.name}.old"
        try:
            if self._name != name:
                if self._is_taken(old):
                    remove_capture(self._parent, old)
                if self._is_taken(name):
                    os.rename(name, old, src_dir_fd=self._parent, dst_dir_fd=self._parent)
                os.rename(self._name, name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        except OSError as error:
            raise TdprofError(
                f"cannot move the older {self.path} out of the way: {error.strerror}", hint=_ANOTHER
            ) from error
        self._name = name
        self.is_published = True

    def keep_name(self) -> Path:
        """Where `publish` failed: the capture stays, under the name that it was made with, which is returned."""
        self.path = self.path.with_name(self._name)
        self.is_published = True
        return self.path

    def _is_taken(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with self._stack:
            if self._folder is None:
                return
            if not self.is_published:
                self._folder.remove_all()
                with contextlib.suppress(OSError):
                    os.rmdir(self._name, dir_fd=self._parent)
            elif (user := invoking_user()) and user.could_write(os.fstat(self._parent)):
                self.stays_roots = not _give(self._folder.fd, user)


def open_capture(parent: int, name: str) -> int:
    """A descriptor of a capture in a folder, that may be moved or removed.

    Raises:
        FileExistsError: it is no capture, or that of another user.
    """
    fd = _open_own(parent, name)
    try:
        os.stat(MANIFEST_FILE, dir_fd=fd, follow_symlinks=False)
    except OSError as error:
        os.close(fd)
        raise FileExistsError(errno.EEXIST, "it is no capture") from error
    return fd


def _open_own(parent: int, name: str) -> int:
    try:
        fd = os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        raise FileExistsError(errno.EEXIST, "it is no capture") from error
    user = invoking_user()
    if os.fstat(fd).st_uid not in (os.geteuid(), user.uid if user else os.geteuid()):
        os.close(fd)
        raise FileExistsError(errno.EEXIST, "it is another user's")
    return fd


def remove_capture(parent: int, name: str) -> None:
    """Empty it through its descriptor, so that what may have taken its name meanwhile is not touched; then remove it.

    Raises:
        OSError: it is no capture, another user's, or cannot be removed.
    """
    with OwnFolder(open_capture(parent, name), Path(name)) as older:
        older.remove_all()
    os.rmdir(name, dir_fd=parent)


def remove_prepared(parent: int, name: str) -> None:
    """Remove what was made for a capture that never began: it has no manifest, and room for raw records at most.

    Raises:
        OSError: it is something else, another user's, or cannot be removed.
    """
    with OwnFolder(_open_own(parent, name), Path(name)) as prepared:
        if set(os.listdir(prepared.fd)) - {SPOOL_FOLDER, SPE_FOLDER}:
            raise FileExistsError(errno.EEXIST, "it was begun")
        prepared.remove_all()
    os.rmdir(name, dir_fd=parent)


def _give(folder: int, user: InvokingUser) -> bool:
    """Give a folder of root, and all that root made in it, to a user: itself last. Returns whether all of it is his."""
    is_given = True
    for name in os.listdir(folder):
        kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
            continue
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            is_given &= _give(fd, user) if stat.S_ISDIR(kind) else user.give(fd)
        finally:
            os.close(fd)
    return user.give(folder) and is_given
