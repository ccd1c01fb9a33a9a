"""Source files as debug data names them, found on this machine."""

import os
from collections.abc import Sequence
from pathlib import Path

from tdprof.errors import TdprofError
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

    @property
    def notes(self) -> list[str]:
        """What of the files asked for could not be found, or has changed, a sentence each."""
        told = [f"{path} was changed after the code was built: lines may stand elsewhere now" for path in self._changed]
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
                if not place.is_file() or place.stat().st_size > _LARGEST_BYTES:
                    continue
                data, changed_ns = place.read_bytes(), place.stat().st_mtime_ns
            except OSError:
                continue
            if built_ns is not None and changed_ns > built_ns:
                self._changed.append(printable(str(place)))
            text = data.decode("utf-8", "replace").replace("\r\n", "\n")
            return [printable(line.expandtabs(8)) for line in text.split("\n")]
        self._missing.append(printable(path))
        return None

    def _places(self, path: str) -> list[Path]:
        for old, new in self._maps:
            if path.startswith(old):
                return [Path(new + path[len(old) :])]
        parts = [part for part in Path(os.path.normpath(path)).parts if part not in ("/", "..")]
        places = [folder.joinpath(*parts[start:]) for folder in self._folders for start in range(len(parts))]
        if self._symfs:
            places.append(self._symfs.joinpath(*parts))
        else:
            places.append(Path(path))
        return places
