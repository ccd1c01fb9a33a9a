"""Names of files and folders in a capture, beside its tables and those of the spool."""

import contextlib
import itertools
from pathlib import Path

VDSO_FILE = "vdso.so"
PERF_MAP_FOLDER = "perf-maps"
FILES_FOLDER = "files"
"""Programs and libraries, named by their build-id."""


MOST_CODE_FILE_BYTES = 256 << 20
"""Of a perf map or a jitdump that a capture carries; the recorder keeps no larger one."""

MANIFEST_FILE = "capture.json"

STORE_MARKER = "tdprof-store.json"
"""Of a store of many captures, which is none itself."""

_MOST_NEIGHBOURS = 1000  # of a name that is typed wrong


def near_folder(path: Path, *holds: str) -> Path | None:
    """The folder beside it that was probably meant.

    Args:
        path: what was named, and is not there.
        holds: patterns of files, such a folder has one of them.
    """
    from difflib import get_close_matches  # only now: most names are typed right

    with contextlib.suppress(OSError):
        beside = [each.name for each in itertools.islice(path.parent.iterdir(), _MOST_NEIGHBOURS)]
        for name in get_close_matches(path.name, beside):
            if any(file.is_file() for pattern in holds for file in (path.parent / name).glob(pattern)):
                return path.parent / name
    return None


def last_folder(path: Path, holds: str) -> Path | None:
    """Of the folders in one that have a file of that name the last by name, if there are not too many."""
    with contextlib.suppress(OSError):
        within = itertools.islice(path.iterdir(), _MOST_NEIGHBOURS)
        return max((each for each in within if (each / holds).is_file()), default=None)
    return None
