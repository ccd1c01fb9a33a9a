"""Compiled BPF objects on disk, so that only the first start needs bcc and LLVM.

What is read here goes into the kernel: the cache's folder is trusted as ``linux.user_cache`` says. Each file holds one
line with the CRC-32 of the rest, then JSON: ``key``, all that the object was made from, and ``object``.
"""

import contextlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.user_cache import CacheFolder
from tdprof.recorder.bpf.object_file import BpfObject

MOST_FILES = 16
MOST_BYTES = 8 << 20


class BpfCache:
    """A folder of compiled objects. Any failure to read or write is a miss: the cache only saves time."""

    def __init__(self, folder: Path) -> None:
        self._folder = CacheFolder(folder)

    def load(self, key: Mapping[str, Any]) -> BpfObject | None:
        """The object that was made from exactly this, by the bcc that is still installed; None if there is none."""
        try:
            with self._folder.opened() as folder:
                data = folder.read(_name(key), MOST_BYTES)
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
        with contextlib.suppress(OSError), self._folder.opened(make=True) as folder:
            with folder.replacing(_name(key)) as file:
                file.write(f"{zlib.crc32(body):08x}\n".encode() + body)
            _prune(folder)


def _name(key: Mapping[str, Any]) -> str:
    # It need not be unique: two keys of one name take turns.
    return f"{zlib.crc32(json.dumps(key, sort_keys=True).encode()):08x}.json"


def _prune(folder: OwnFolder) -> None:
    """Remove what was kept longest ago, and what a killed process left unfinished among it."""
    kept = [(folder.stat(name).st_mtime_ns, name) for name in folder.names()]
    for _, name in sorted(kept)[:-MOST_FILES]:
        folder.remove(name)
