"""Where a store, or captures, lie: a folder, or a place in an object store; and their files, each written whole.

A folder may have come from anywhere: no link in it is followed, and nothing but regular files is opened. What root
writes goes where nobody else could have put anything in its way.
"""

import atexit
import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.fs

from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import open_regular
from tdprof.linux.folder_path import only_ours, open_folder
from tdprof.text import first_words

_T = TypeVar("_T")

UNFINISHED = ".unfinished-"
# Arrow asks a server again that fails, but not where what that says of it is longer than what was asked for.
_WORDS_TOO_LONG, _PAUSES_S = "Failed to flush response stream", (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_MOST_DEPTH = 8  # folders in folders: roll-ups lie in the fifth


class Files(Protocol):
    """The files below a place, by their whole paths. What fails raises OSError, FileNotFoundError what is not there.

    Attributes:
        root: path of the place.
    """

    root: str

    def is_empty(self) -> bool:
        """Whether nothing is there, or a folder with nothing in it."""

    def make(self) -> None:
        """Make the folder, where places are folders."""

    def below(self, folder: str) -> list[str]:
        """The paths of all files below a folder, which need not be there, in order."""

    def open(self, path: str) -> contextlib.AbstractContextManager[Any]:
        """pyarrow's file, for reading."""

    def write(self, path: str, content: bytes) -> None:
        """Put a file, which appears when it is whole, in place of an older one."""

    def remove(self, path: str) -> None:
        """Take a file out, if it is there."""


def open_place(place: str) -> Files:
    """The files of a folder's path, or of a URI such as ``s3://bucket/prefix``.

    Raises:
        TdprofError: there is no such kind of place.
    """
    if "://" not in place:
        return FolderFiles(str(Path(place).absolute()))
    try:
        files, root = _asked(pa.fs.FileSystem.from_uri, place)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TdprofError(
            f"no store can be at {place}: {first_words(error)}",
            hint="a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
            status=2,
        ) from error
    return FolderFiles(root) if isinstance(files, pa.fs.LocalFileSystem) else ObjectFiles(files, root.rstrip("/"))


class FolderFiles:
    """Those of a folder; see ``Files``."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._is_checked = False

    def is_empty(self) -> bool:
        """See ``Files``."""
        try:
            return not os.listdir(self.root)
        except FileNotFoundError:
            return True
        except NotADirectoryError:
            return False

    def make(self) -> None:
        """See ``Files``: for this user alone. One that is there stays as it is."""
        self._check(make=True)
        Path(self.root).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            Path(self.root).mkdir(mode=0o700)

    def below(self, folder: str) -> list[str]:
        """See ``Files``; a link is an error, so that nothing is left out in silence."""
        return sorted(_files_below(folder, _MOST_DEPTH))

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[Any]:
        """See ``Files``."""
        fd = open_regular(path, flags=os.O_NOFOLLOW)
        try:
            with pa.OSFile(f"/proc/self/fd/{fd}") as file:
                yield file
        finally:
            os.close(fd)

    def write(self, path: str, content: bytes) -> None:
        """See ``Files``."""
        self._check()
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"{UNFINISHED}{os.urandom(6).hex()}-{target.name[:60]}")
        try:
            with unfinished.open("xb") as file:
                file.write(content)
            unfinished.replace(target)
        except BaseException:  # Ctrl-C as well must not leave a part behind
            unfinished.unlink(missing_ok=True)
            raise

    def remove(self, path: str) -> None:
        """See ``Files``."""
        self._check()
        Path(path).unlink(missing_ok=True)

    def _check(self, *, make: bool = False) -> None:
        """For root, refuse a folder that others could lead elsewhere while it is written to."""
        if os.geteuid() == 0 and not self._is_checked:
            os.close(open_folder(Path(self.root), only_ours, make=make))
        self._is_checked = True


class ObjectFiles:
    """Those of an object store, which appear when they are whole; see ``Files``."""

    def __init__(self, files: Any, root: str) -> None:
        self.root = root
        self._files = files

    def is_empty(self) -> bool:
        """See ``Files``."""
        kind = _asked(self._files.get_file_info, self.root).type
        if kind is pa.fs.FileType.Directory:
            return not _asked(self._files.get_file_info, pa.fs.FileSelector(self.root))
        return kind is pa.fs.FileType.NotFound

    def make(self) -> None:
        """See ``Files``."""
        _asked(functools.partial(self._files.create_dir, self.root, recursive=True))

    def below(self, folder: str) -> list[str]:
        """See ``Files``."""
        found = _asked(self._files.get_file_info, pa.fs.FileSelector(folder, allow_not_found=True, recursive=True))
        return sorted(info.path for info in found if info.type is pa.fs.FileType.File)

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[Any]:
        """See ``Files``."""
        with _asked(self._files.open_input_file, path) as file, pa.PythonFile(_AskedAgain(file), mode="r") as patient:
            yield patient

    def write(self, path: str, content: bytes) -> None:
        """See ``Files``."""
        _asked(self._write, path, content)

    def _write(self, path: str, content: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(content)

    def remove(self, path: str) -> None:
        """See ``Files``."""
        if _asked(self._files.get_file_info, path).type is not pa.fs.FileType.NotFound:
            _asked(self._files.delete_file, path)


def _asked(ask: Callable[..., _T], *given: Any) -> _T:
    """What it returns, from a thread of its own: of a server that hangs Arrow waits for minutes, deaf to Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return ask(*given)
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask(*given))
        except BaseException as error:  # handed over to who asked
            answer.set_exception(error)

    try:
        threading.Thread(target=run, daemon=True).start()  # which waits, too, until it runs
        return answer.result()
    except KeyboardInterrupt:
        atexit.unregister(pa.fs.ensure_s3_finalized)  # which would wait for the answer
        raise


class _AskedAgain:
    """An object to be read, for ``pyarrow.PythonFile``."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def read(self, most: int) -> bytes:
        at = self._file.tell()
        for pause_s in _PAUSES_S:
            try:
                return bytes(_asked(self._file.read, most))
            except OSError as error:
                if _WORDS_TOO_LONG not in str(error):
                    raise
            time.sleep(pause_s)
            self._file.seek(at)
        return bytes(_asked(self._file.read, most))


def _files_below(folder: str, depth: int) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_symlink():
            raise OSError(f"{entry.path} is a link, and none is followed there")
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _files_below(entry.path, depth - 1)
        elif entry.is_file(follow_symlinks=False):
            yield entry.path
