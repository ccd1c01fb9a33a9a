"""Compiled BPF objects on disk, so that only the first start needs bcc and LLVM.

What is read here goes into the kernel, so a file counts only if nobody but this user could have written it. Each holds
one line with the CRC-32 of the rest, then JSON: ``key``, all that the object was made from, and ``object``.
"""

import contextlib
import json
import os
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tdprof.recorder.bpf_object import BpfObject

MOST_FILES = 16
MOST_BYTES = 8 << 20


class BpfCache:
    """A folder of compiled objects. Any failure to read or write is a miss: the cache only saves time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: Mapping[str, Any]) -> BpfObject | None:
        """The object that was made from exactly this, by the bcc that is still installed; None if there is none."""
        try:
            with self._open_folder() as folder:
                data = _read_own_file(_name(key), folder)
            checksum, _, body = data.partition(b"\n")
            if int(checksum, 16) != zlib.crc32(body):
                return None
            content = json.loads(body)
            if content["key"] != key:
                return None
            found = BpfObject.from_json(content["object"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return found if found.compiler.is_unchanged() else None

    def store(self, key: Mapping[str, Any], found: BpfObject) -> None:
        """Keep an object; those kept longest ago go."""
        body = json.dumps({"key": key, "object": found.to_json()}).encode()
        data = f"{zlib.crc32(body):08x}\n".encode() + body
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._open_folder() as folder:
                _write_file(_name(key), data, folder)
                _prune(folder)

    @contextlib.contextmanager
    def _open_folder(self) -> Any:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check_owner(os.fstat(folder))
            yield folder
        finally:
            os.close(folder)


def _name(key: Mapping[str, Any]) -> str:
    # It need not be unique: two keys of one name take turns.
    return f"{zlib.crc32(json.dumps(key, sort_keys=True).encode()):08x}.json"


def _check_owner(status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("others could have written it")


def _read_own_file(name: str, folder: int) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        _check_owner(status)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise ValueError("no file of ours")
        return file.read(MOST_BYTES)


def _write_file(name: str, data: bytes, folder: int) -> None:
    """All of it or nothing, also beside another tdprof that does the same."""
    unfinished = f".{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unfinished, dir_fd=folder)  # of a process that had this number once
    try:
        with os.fdopen(os.open(unfinished, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
        os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise


def _prune(folder: int) -> None:
    """Remove what was kept longest ago, and what a killed process left unfinished among it."""
    kept = [(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns, name) for name in os.listdir(folder)]
    for _, name in sorted(kept)[:-MOST_FILES]:
        os.unlink(name, dir_fd=folder)
