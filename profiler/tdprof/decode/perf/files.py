"""The files of a recording of perf, and what of them could not be read."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections import Counter
from dataclasses import field
from pathlib import Path
from typing import IO

from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import open_own
from tdprof.values import dataclass


@dataclass(slots=True)
class FileLosses:
    """What of the file could not be read; the records' own losses are in ``PerfData.record_losses``.

    Attributes:
        cut_bytes: bytes that the header or a last record announces and the file lacks.
        unreadable_bytes: the partial record at the end.
        compressed_bytes: compressed bytes that do not decompress.
        unknown_tool_records: records of the perf tool of a type that is not known, by type.
        truncated_aux_buffers: AUX buffers that the file's end cuts.
    """

    cut_bytes: int = 0
    unreadable_bytes: int = 0
    compressed_bytes: int = 0
    unknown_tool_records: Counter[int] = field(default_factory=Counter)
    truncated_aux_buffers: int = 0


def open_files(path: str | Path) -> list[IO[bytes]]:
    """The file, or standard input put into a nameless file; of a directory, its main file and its threads' files.

    Raises:
        TdprofError: one of them cannot be read.
    """
    if str(path) == "-":
        return [_spooled(sys.stdin.buffer)]
    folder = Path(path)
    paths = [folder]
    if folder.is_dir():
        numbered = [part for part in folder.glob("data.*") if part.suffix[1:].isdecimal()]
        paths = [folder / "data", *sorted(numbered, key=lambda part: int(part.suffix[1:]))]
    files: list[IO[bytes]] = []
    try:
        for part in paths:
            # What lies in a folder may be anything; only what the user named may be a pipe.
            file = part.open("rb") if part == folder else open_own(part)
            files.append(file if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else _spooled(file))
    except OSError as error:
        for opened in files:
            opened.close()
        is_gone = isinstance(error, FileNotFoundError)
        why = (
            "it is a folder that perf record --threads did not make" if is_gone and folder.is_dir() else error.strerror
        )
        hint = "perf record -- CMD makes one" if is_gone else ""
        raise TdprofError(f"cannot read {path}: {why}", hint=hint) from error
    return files


def _spooled(source: IO[bytes]) -> IO[bytes]:
    """A pipe's content in a nameless file: AUX buffers are offsets into it, and it must not fill memory."""
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the caller
    shutil.copyfileobj(source, file, 1 << 20)
    file.flush()
    return file
