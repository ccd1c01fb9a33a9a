"""Where speedscope's release is, and what of it may be shown: a script in it can read the profile beside it."""

import errno
import os
import shlex
import stat
import sys
from pathlib import Path

from tdprof.errors import TdprofError
from tdprof.linux.folder_path import Check, only_ours, open_folder
from tdprof.linux.user_cache import data_home

SPEEDSCOPE = "speedscope@1.25.0"
_RELEASE = Path("node_modules/speedscope/dist/release")
_INDEX = "index.html"


def find_speedscope() -> dict[str, bytes] | None:
    """Its files by name; None if it is not installed where tools/setup or our hint puts it.

    Raises:
        TdprofError: it is in this user's folder, but others could have put it there, or it cannot be read.
    """
    # The first stands among our own code, which is believed as it is.
    for prefix, check in ((Path(sys.prefix) / "share/tdprof", _pass), (_user_folder(), only_ours)):
        try:
            files = _read(prefix / _RELEASE, check)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise TdprofError(
                f"speedscope in {prefix} is not used: {error.strerror}",
                hint=f"chmod -R go-w {shlex.quote(str(prefix))} if others may write there, else remove it",
            ) from error
        if _INDEX in files:
            return files
    return None


def how_to_install() -> str:
    """A command."""
    return f"npm install --prefix {shlex.quote(str(_user_folder()))} {SPEEDSCOPE}"


def _user_folder() -> Path:
    return data_home() / "tdprof"


def _pass(status: os.stat_result, shown: str) -> None:
    del status, shown


def _read(folder: Path, check: Check) -> dict[str, bytes]:
    fd = open_folder(folder, check)
    try:
        # By a descriptor that can list, of the very folder that was checked.
        inner = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)
    try:
        return {name: _read_file(inner, name, check) for name in sorted(os.listdir(inner))}
    finally:
        os.close(inner)


def _read_file(folder: int, name: str, check: Check) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"{name} is no regular file")
        check(status, name)
        return file.read()
