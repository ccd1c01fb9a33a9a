"""Unwind tables on their way: of files of a batch, from a process of their own; those of a command before all else."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from tdprof.recorder.executable_maps import FileKey, key_of
from tdprof.unwind.tables import TableCache, TableDamage, TableWorker, damage_of, read_identity
from tdprof.values import dataclass

# A worker that is longer at one file is held up by it (a file system in user space), and is ended.
_PATIENCE_S = 10.0


class TableBatch:
    """Files whose tables a worker is finding or building; their descriptors are open until they are known.

    Attributes:
        unknown: descriptors of those that nothing is known of yet.
        worker: the process.
        stuck_at: when it is held up, CLOCK_MONOTONIC seconds.
        damaged: those that are damaged are added to this, by their paths.
    """

    def __init__(self, files: Mapping[FileKey, int], cache: TableCache) -> None:
        self.damaged: dict[str, TableDamage] = {}
        self.unknown = dict(files)
        self._keys = list(files)
        self.worker = TableWorker([Path(f"/proc/self/fd/{fd}") for fd in files.values()], cache)
        self.stuck_at = time.monotonic() + _PATIENCE_S

    def take(self) -> tuple[FileKey, bytes | None] | None:
        """The next file and its table; None if the worker has none left, or has died."""
        result = self.worker.take()
        if result is None:
            return None
        self.stuck_at = time.monotonic() + _PATIENCE_S
        key = self._keys[result[0]]
        fd = self.unknown.pop(key)
        if result[1]:
            note_damage(self.damaged, fd, result[1])
        os.close(fd)
        return key, result[1]

    def close(self) -> None:
        """End the worker."""
        self.worker.close()
        while self.unknown:
            os.close(self.unknown.popitem()[1])


def note_damage(damaged: dict[str, TableDamage], fd: int, table: bytes) -> None:
    """Name an open file by its path, if its table says that it is damaged."""
    if (damage := damage_of(table)) is not TableDamage.NONE:
        with contextlib.suppress(OSError):
            damaged[str(Path(f"/proc/self/fd/{fd}").readlink())] = damage


@dataclass(frozen=True, slots=True)
class FirstTables:
    """The tables of the files that a command will map first.

    Attributes:
        paths: of the files.
        kept: what those are known by that the cache has a table of.
        batch: of the others; None where there are none, or no worker can be had for them.
    """

    paths: Sequence[Path] = ()
    kept: Mapping[Path, bytes] = field(default_factory=dict)
    batch: TableBatch | None = None

    def close(self) -> None:
        """End the worker, whoever has it."""
        if self.batch:
            self.batch.close()


def begin_tables(paths: Sequence[Path], cache: TableCache) -> FirstTables:
    """Look which tables the cache has, and have the others built, while the kernel verifies programs."""
    kept: dict[Path, bytes] = {}
    others: dict[FileKey, int] = {}
    for path in paths:
        identity = read_identity(path)
        if identity and cache.rows(identity) is not None:
            kept[path] = identity
            continue
        with contextlib.suppress(OSError):
            others[key_of(path)] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not others:
        return FirstTables(paths, kept)
    try:
        return FirstTables(paths, kept, TableBatch(others, cache))
    except OSError:  # no descriptor, process or memory for it now
        for fd in others.values():
            os.close(fd)
        return FirstTables(paths, kept)
