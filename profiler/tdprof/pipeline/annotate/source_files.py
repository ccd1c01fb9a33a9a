"""Source files as debug data names them, found on this machine."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import open_regular
from tdprof.recorder.foreign_files import open_below
from tdprof.recorder.identity import Identity, call_as
from tdprof.text import printable

_LARGEST_BYTES = 64 << 20  # no source file is; a device or a core dump may stand at the path


def parse_source_map(text: str) -> tuple[str, str]:
    """``FROM=TO``: paths that begin with FROM begin with TO here.

    Raises:
        TdprofError: it is not of that form.
    """
    old, separator, new = text.partition("=")
    if not old or not separator:
        raise TdprofError(
            f"--source-map takes FROM=TO, not '{text}'", hint="--source-map /build/app=/home/me/app", status=2
        )
    return old, new


class SourceFiles:
    """Reads source files, each once.

    Args:
        folders: searched for a file by its whole path, then by ever shorter ends of it.
        maps: (FROM, TO): prefixes of paths to replace; the first that fits holds.
        symfs: a folder with the recorded machine's files under their own paths, or None.
    """

    def __init__(
        self, folders: Sequence[Path] = (), maps: Sequence[tuple[str, str]] = (), symfs: Path | None = None
    ) -> None:
        self._folders = folders
        self._maps = maps
        self._symfs = symfs
        self._read: dict[str, list[str] | None] = {}
        self._missing: list[str] = []
        self._changed: list[str] = []
        self._refused: list[str] = []
        self._reader = Identity.own()

    def read_as(self, reader: Identity) -> None:
        """Read what is asked for from now on with somebody else's rights: those of who had a say in the paths."""
        self._reader = reader

    @property
    def notes(self) -> list[str]:
        """What of the files asked for could not be found, or has changed, a sentence each."""
        told = [
            f"the source file {path} is not shown: the program that names it is not root's, and its owner may not "
            "read the file"
            for path in self._refused
        ]
        told += [
            f"{path} was changed after the code was built: lines may stand elsewhere now" for path in self._changed
        ]
        if self._missing:
            others = f", and {len(self._missing) - 1} more" if len(self._missing) > 1 else ""
            told.append(
                f"not here: the source file {self._missing[0]}{others} "
                "(--source-dir DIR to look below, or --source-map FROM=TO)"
            )
        return told

    def read(self, path: str, built_ns: int | None) -> list[str] | None:
        """The file's lines, printable, tabs kept as blanks; None if it cannot be found or read.

        Args:
            path: as debug data has it.
            built_ns: when the code was built, against which the file's age is checked; None if not known.
        """
        if path not in self._read:
            self._read[path] = self._find(path, built_ns)
        return self._read[path]

    def _find(self, path: str, built_ns: int | None) -> list[str] | None:
        for place in self._places(path):
            try:
                data, changed_ns = self._read_place(place)
            except PermissionError:
                if self._reader != Identity.own():
                    self._refused.append(printable(str(place.path)))
                    return None
                continue
            except OSError:
                continue
            if built_ns is not None and changed_ns > built_ns:
                self._changed.append(printable(str(place.path)))
            text = data.decode("utf-8", "replace").replace("\r\n", "\n")
            return [printable(line.expandtabs(8)) for line in text.split("\n")]
        self._missing.append(printable(path))
        return None

    def _read_place(self, place: "_Place") -> tuple[bytes, int]:
        if self._reader == Identity.own():
            return _read_open(open_regular(place.path))
        if place.folder is None:
            return call_as(self._reader, lambda: _read_open(open_regular(place.path)))
        root = os.open(place.folder, os.O_PATH | os.O_DIRECTORY)
        try:
            # That folder was asked for; where links in it lead to was not.
            return _read_open(open_below(root, place.name))
        finally:
            os.close(root)

    def _places(self, path: str) -> list["_Place"]:
        for old, new in self._maps:
            if path.startswith(old):
                rest = path[len(old) :]
                is_below = rest.startswith("/") or new.endswith("/")
                return [_Place(Path(new), rest.lstrip("/")) if is_below else _Place(None, new + rest)]
        parts = [part for part in Path(os.path.normpath(path)).parts if part not in ("/", "..")]
        places = [_Place(folder, "/".join(parts[start:])) for folder in self._folders for start in range(len(parts))]
        places.append(_Place(self._symfs, "/".join(parts)) if self._symfs else _Place(None, path))
        return places


class _Place(NamedTuple):
    """Where a file may be: below a folder that the user named, or at a path that debug data names."""

    folder: Path | None
    name: str

    @property
    def path(self) -> Path:
        return self.folder / self.name if self.folder else Path(self.name)


def _read_open(fd: int) -> tuple[bytes, int]:
    """Content of a file, which is closed, and when it was changed.

    Raises:
        OSError: it is larger than any source, or cannot be read.
    """
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if status.st_size > _LARGEST_BYTES:
            raise OSError(errno.EFBIG, "no source file is so large")
        return file.read(_LARGEST_BYTES), status.st_mtime_ns
