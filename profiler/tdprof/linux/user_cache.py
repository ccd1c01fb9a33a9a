"""This user's caches: where they are, and the one rule by which any of them is trusted.

What stands in a cache is believed, up to programs that go into the kernel. So a cache counts only where nobody but root
and its user could have put anything: every folder on the way to it and every link there belongs to one of the two and
is not writable for others, it is itself the user's and no link, and files in it are opened through its descriptor.
"""

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from tdprof.linux.folder_path import only_ours, open_folder
from tdprof.linux.own_folder import OwnFolder
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """One cache. It may not be there yet, and may not be trusted: then its users do without.

    Attributes:
        path: where it is.
    """

    path: Path

    @contextlib.contextmanager
    def opened(self, *, make: bool = False) -> Iterator[OwnFolder]:
        """The folder, open; with ``make`` created with all that is missing on the way.

        Raises:
            OSError: it is not there (FileNotFoundError), or not to be trusted (PermissionError: ``strerror`` says why).
        """
        parent = open_folder(self.path.parent, only_ours, make=make)
        try:
            folder = OwnFolder.below(parent, self.path.name, self.path, make=make)
        finally:
            os.close(parent)
        with folder:
            if os.fstat(folder.fd).st_mode & (stat.S_IWGRP | stat.S_IWOTH):  # sticky or not
                raise PermissionError(errno.EPERM, f"others may write to {self.path}", str(self.path))
            yield folder

    def refusal(self) -> str:
        """Why it cannot be used, for people; "" if it can, or could once it is made."""
        try:
            with self.opened():
                return ""
        except FileNotFoundError:
            return ""
        except OSError as error:
            return error.strerror or str(error)


def cache_folder(name: str) -> CacheFolder:
    """The user's cache of that name."""
    return CacheFolder(user_cache(name))


def user_cache(name: str) -> Path:
    """The folder ``tdprof/NAME`` below ``cache_home()``; it need not exist."""
    return cache_home() / "tdprof" / name


def cache_home() -> Path:
    """``$XDG_CACHE_HOME``, else ``~/.cache``; it need not exist.

    Root that kept another user's environment (``sudo -E``) has root's own: files of root in that user's cache would be
    in the user's way, and files of that user are nothing for root to trust.
    """
    return _own("XDG_CACHE_HOME", ".cache")


def data_home() -> Path:
    """``$XDG_DATA_HOME``, else ``~/.local/share``; as `cache_home`."""
    return _own("XDG_DATA_HOME", ".local/share")


def _own(variable: str, usual: str) -> Path:
    home = os.path.expanduser("~")  # noqa: PTH111  Path's fails without a home
    # A user without a home has folders that nobody can write.
    found = Path(home if Path(home).is_absolute() else "/") / usual
    base = os.environ.get(variable, "")
    if Path(base).is_absolute():
        found = Path(base)
    if os.geteuid() == 0 and _is_of_others(found):
        found = Path(pwd.getpwuid(0).pw_dir) / usual
    return found


def _is_of_others(path: Path) -> bool:
    """Whether a folder, or the part of the way to it that is there, is another user's, who could have changed it."""
    try:
        os.close(open_folder(path, only_ours))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
