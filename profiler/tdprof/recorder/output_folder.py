"""The folder that a recording makes, and takes back where nothing comes of it."""

import contextlib
import os
from pathlib import Path

from tdprof.capture.spool import SPE_FOLDER, SpoolWriter
from tdprof.errors import TdprofError


def make_output_folder(path: Path) -> None:
    """Create the capture's folder.

    Raises:
        TdprofError: it exists and is not empty, or cannot be created.
    """
    try:
        path.mkdir()
    except FileExistsError as error:
        if path.is_dir() and not any(path.iterdir()):
            return
        raise TdprofError(f"{path} exists already", hint="name another folder with -o, or remove it") from error
    except OSError as error:
        raise TdprofError(f"cannot create {path}: {error.strerror}", hint="name another folder with -o") from error
    if not os.access(path, os.W_OK):
        raise TdprofError(f"cannot write into {path}", hint="name another folder with -o")


def open_spool(folder: Path) -> SpoolWriter:
    try:
        return SpoolWriter(folder)
    except OSError as error:
        raise TdprofError(
            f"cannot write into {folder}: {error.strerror}", hint="name another folder with -o"
        ) from error


def remove_empty(folder: Path) -> None:
    """A refused recording leaves nothing behind."""
    for path in (folder / "capture.json", *folder.glob("spool/*"), folder / "spool", folder / SPE_FOLDER):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
