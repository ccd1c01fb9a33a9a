"""What was read of debug data, kept on disk by build-id: memory-mapped columns, checked before use.

A file holds the ``CodeIndex`` and ``SymbolTable`` of one executable: magic, length and CRC-32 of a JSON header, the
header, then the columns, each on a 64-byte border with its CRC-32 in the header. docs/symbols.md has the details.
"""

import contextlib
import json
import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from tdprof.linux.user_cache import CacheFolder, user_cache
from tdprof.model.arrays import U64
from tdprof.symbolize.code_index import CodeIndex
from tdprof.symbolize.symbol_table import SymbolTable
from tdprof.values import dataclass

_MAGIC = b"TDSYM\x00\x00\x07"  # the last byte is the version of this layout, and of what is made of a file
_START = struct.Struct("<8sQI4x")
_ALIGNMENT = 64
_DEFAULT_LIMIT_BYTES = 2 << 30
_NAME = re.compile(r"[0-9a-f]{4,}\.tds")
_TEXT_COLUMNS = {"function_text", "file_text", "name_bytes"}


@dataclass(frozen=True, slots=True)
class CachedSymbols:
    """What the cache holds of one executable.

    Attributes:
        source: which debug data it was read from; of no use once that has changed.
        table, index: the symbols.
        is_complete: whether ``table`` names all functions.
        asked: uint64[n], sorted: the addresses whose functions ``index`` has; None if it has all.
    """

    source: str
    table: SymbolTable
    index: CodeIndex
    is_complete: bool
    asked: U64 | None


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file of the cache, for showing and pruning. ``used_s``: when it was last used, since the epoch."""

    path: Path
    build_id: str
    size_bytes: int
    used_s: float


class SymbolCache:
    """A folder of cached symbols. Any failure to read or write is a miss, never an error: the cache only saves time.

    Args:
        folder: where; made when first written to.
        limit_bytes: after a write the files used longest ago are removed until the rest fits.
    """

    def __init__(self, folder: Path, limit_bytes: int = _DEFAULT_LIMIT_BYTES) -> None:
        self.folder = folder
        self._own = CacheFolder(folder)
        self.limit_bytes = limit_bytes

    @classmethod
    def default(cls) -> Self:
        """The user's: ``$XDG_CACHE_HOME/tdprof/symbols``, else ``~/.cache/tdprof/symbols``."""
        return cls(user_cache("symbols"))

    def load(self, build_id: str, source: str) -> CachedSymbols | None:
        """What is known of an executable, if it was read from the same source; None if not, or if it is damaged."""
        try:
            with (
                self._own.opened() as folder,
                folder.subfolder(build_id[:2]) as part,
                part.open_file(_file_name(build_id)) as file,
            ):
                found = _decode(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), build_id)
                if found.source != source:
                    return None
                with contextlib.suppress(OSError):
                    os.utime(file.fileno())
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return None
        return found

    def store(self, build_id: str, symbols: CachedSymbols) -> None:
        """Replace what is known of an executable."""
        try:
            with (
                self._own.opened(make=True) as folder,
                folder.subfolder(build_id[:2], make=True) as part,
                part.replacing(_file_name(build_id)) as file,
            ):
                file.writelines(_encode(build_id, symbols))
        except OSError:
            return
        self.prune(self.limit_bytes)

    def refusal(self) -> str:
        """Why the folder is not used, for people; "" if it is."""
        return self._own.refusal()

    def entries(self) -> list[CacheEntry]:
        """The files of the cache, those used longest ago first."""
        found = []
        with contextlib.suppress(OSError), self._own.opened() as folder:
            for start in folder.names():
                with contextlib.suppress(OSError), folder.subfolder(start) as part:
                    for name in filter(_NAME.fullmatch, part.names()):
                        status, path = part.stat(name), self.folder / start / name
                        found.append(CacheEntry(path, start + path.stem, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: entry.used_s)

    def prune(self, limit_bytes: int) -> list[CacheEntry]:
        """Remove the files used longest ago until the rest has at most that many bytes; returns what went."""
        entries = self.entries()
        total = sum(entry.size_bytes for entry in entries)
        removed: list[CacheEntry] = []
        with contextlib.suppress(OSError), self._own.opened() as folder:
            for entry in entries:
                if total <= limit_bytes:
                    break
                with contextlib.suppress(OSError), folder.subfolder(entry.build_id[:2]) as part:
                    part.remove(_file_name(entry.build_id))
                    total -= entry.size_bytes
                    removed.append(entry)
        return removed


def _file_name(build_id: str) -> str:
    return f"{build_id[2:]}.tds"


def _columns(symbols: CachedSymbols) -> Iterable[tuple[str, np.ndarray[Any, Any]]]:
    for holder in (symbols.table, symbols.index):
        for field in fields(holder):
            value = getattr(holder, field.name)
            yield field.name, np.frombuffer(value, np.uint8) if field.name in _TEXT_COLUMNS else value
    if symbols.asked is not None:
        yield "asked", symbols.asked


def _encode(build_id: str, symbols: CachedSymbols) -> Iterable[bytes | memoryview]:
    """The file's pieces in order."""
    columns = [(name, np.ascontiguousarray(array)) for name, array in _columns(symbols)]
    described, offset = {}, 0
    for name, array in columns:
        described[name] = [array.dtype.str, offset, len(array), zlib.crc32(array.data)]
        offset += array.nbytes + -array.nbytes % _ALIGNMENT
    header = {"build_id": build_id, "source": symbols.source, "is_complete": symbols.is_complete, "columns": described}
    text = json.dumps(header).encode()
    text += b" " * (-(_START.size + len(text)) % _ALIGNMENT)
    yield _START.pack(_MAGIC, len(text), zlib.crc32(text))
    yield text
    for _, array in columns:
        yield array.data
        yield bytes(-array.nbytes % _ALIGNMENT)


def _decode(data: memoryview, build_id: str) -> CachedSymbols:
    """Raises ValueError, KeyError, TypeError or struct.error for what is not a whole file of this layout."""
    magic, length, checksum = _START.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("another layout")
    body = _START.size + length
    text = data[_START.size : body]
    # Before it is parsed: a flipped bit can also leave JSON that says something else. Where all columns are empty the
    # header ends the file, and cut short by that it would be whole.
    if len(text) != length or zlib.crc32(text) != checksum:
        raise ValueError("the header is damaged")
    header = json.loads(bytes(text))
    if header["build_id"] != build_id:
        raise ValueError("another executable's")
    arrays: dict[str, Any] = {}
    for name, (kind, offset, count, checksum) in header["columns"].items():
        array = np.frombuffer(data, np.dtype(kind), count, body + offset)
        if zlib.crc32(array.data) != checksum:
            raise ValueError(f"column {name} is damaged")
        arrays[name] = array.data if name in _TEXT_COLUMNS else array
    table = SymbolTable(**{field.name: arrays[field.name] for field in fields(SymbolTable)})
    index = CodeIndex(**{field.name: arrays[field.name] for field in fields(CodeIndex)})
    return CachedSymbols(header["source"], table, index, bool(header["is_complete"]), arrays.get("asked"))
