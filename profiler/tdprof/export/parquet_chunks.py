"""Column chunks of a Parquet file: of integers, of words of a dictionary, and of what is null in all rows.

A chunk is one page, behind its dictionary's where it has one. pyarrow goes through rows one by one, also where nothing
is in them. Here Arrow's bitmap of nulls is the page's levels as it stands, and values are encoded at once: those with
few distinct ones as places among these, others as differences.

Format: https://github.com/apache/parquet-format, `parquet.thrift` and `Encodings.md`.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.export.thrift_compact import BINARY, I32, I64, LIST, STRUCT, Struct, write_struct, write_unsigned
from tdprof.native.parquet_page import ParquetColumn, ParquetPage
from tdprof.values import dataclass

CHUNK_DATA_OFFSET, CHUNK_INDEX_OFFSET, CHUNK_DICTIONARY_OFFSET = 9, 10, 11
CHUNK_UNCOMPRESSED_BYTES, CHUNK_BYTES = 6, 7
_CHUNK_TYPE, _CHUNK_ENCODINGS, _CHUNK_PATH, _CHUNK_CODEC, _CHUNK_VALUES, _CHUNK_STATISTICS = 1, 2, 3, 4, 5, 12
_NULL_COUNT, _MOST, _LEAST = 3, 5, 6
_PAGE_TYPE, _PAGE_UNCOMPRESSED_BYTES, _PAGE_BYTES, _PAGE_DATA, _PAGE_DICTIONARY = 1, 2, 3, 5, 7

_INT32, _INT64 = 1, 2
_PHYSICAL_TYPES = {"INT32": _INT32, "INT64": _INT64, "BYTE_ARRAY": 6}
_PLAIN, _RLE, _DELTA_BINARY_PACKED, _RLE_DICTIONARY = 0, 3, 5, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_UNCOMPRESSED, _ZSTD = 0, 6
_SHORT_BYTES = 64  # zstd makes such pages longer


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of the file; one of several of a column of the batch that is nested.

    Attributes:
        path: its names, from the outermost on.
        physical_type: `parquet.thrift`'s ``Type``; None for one that only pyarrow writes.
        definition_level, repetition_level: the highest.
        has_statistics: whether its chunks say their least and largest value.
    """

    path: list[bytes]
    physical_type: int | None
    definition_level: int
    repetition_level: int
    has_statistics: bool


def leaf_of(column: Any, *, has_statistics: bool) -> Leaf:
    """The leaf that pyarrow's ``ColumnSchema`` describes."""
    return Leaf(
        path=[name.encode() for name in column.path.split(".")],
        physical_type=_PHYSICAL_TYPES.get(column.physical_type),
        definition_level=column.max_definition_level,
        repetition_level=column.max_repetition_level,
        has_statistics=has_statistics,
    )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk.

    Attributes:
        pages: one after the other.
        metadata: `parquet.thrift`'s ``ColumnMetaData``; its offsets count from the first page on.
    """

    pages: bytes
    metadata: Struct


def is_encoded(type_: pa.DataType) -> bool:
    """Whether `ChunkEncoder` takes columns of a type."""
    if pa.types.is_dictionary(type_):
        return bool(pa.types.is_string(type_.value_type))
    return bool(pa.types.is_integer(type_))


class ChunkEncoder:
    """Encodes columns; to be used by one thread at a time.

    Args:
        library: the compiled one.
        rows: of a column at most.
        compression_level: of zstd.
    """

    def __init__(self, library: ctypes.CDLL, rows: int, compression_level: int) -> None:
        self._library = library
        self._dense = np.empty(rows, np.uint64)
        self._out = np.empty(library.tdprof_parquet_room(rows), np.uint8)
        self._page = ParquetPage(dense=self._dense.ctypes.data, out=self._out.ctypes.data)
        self._codec = pa.Codec("zstd", compression_level=compression_level)

    def encode(self, leaf: Leaf, column: pa.Array) -> Chunk:
        """A column of a type that `is_encoded`, with a row at least."""
        if column.offset:
            column = pa.concat_arrays([column])
        page, levels = self._page, _definition_levels(leaf, column)
        if pa.types.is_dictionary(column.type):
            words = [word.encode() for word in column.dictionary.to_pylist()]
            self._library.tdprof_parquet_places(_c_column(column.indices), len(words), page)
            dictionary = b"".join(struct.pack("<I", len(word)) + word for word in words)
        else:
            self._library.tdprof_parquet_integers(_c_column(column), page)
            dictionary = self._words(leaf).tobytes()
        data = levels + self._out[: page.bytes].tobytes()
        encoding = _RLE_DICTIONARY if page.distinct else _DELTA_BINARY_PACKED
        return self._chunk(leaf, column, (data, encoding, len(column)), (dictionary, page.distinct))

    def encode_nulls(self, leaf: Leaf, column: pa.Array) -> Chunk:
        """A leaf of a column in which all rows, one at least, are null."""
        depth = (leaf.repetition_level, leaf.definition_level)
        levels = b"".join(_sized(_run(len(column), 0)) for highest in depth if highest)
        self._page.values = 0
        return self._chunk(leaf, column, (levels, _PLAIN, len(column)), (b"", 0))

    def _words(self, leaf: Leaf) -> NDArray[np.integer]:
        """The dictionary's."""
        words = np.ctypeslib.as_array(self._page.words)[: self._page.distinct]
        return words.astype(np.uint64 if leaf.physical_type == _INT64 else np.uint32)

    def _chunk(
        self, leaf: Leaf, column: pa.Array, data: tuple[bytes, int, int], dictionary: tuple[bytes, int]
    ) -> Chunk:
        """What a column's pages make, of their bytes, encoding and number of values."""
        body, encoding, values = data
        words, distinct = dictionary
        is_short = len(body) + len(words) < _SHORT_BYTES
        compress = bytes if is_short else self._compressed
        head: Struct = {1: (I32, values), 2: (I32, encoding), 3: (I32, _RLE), 4: (I32, _RLE)}
        pages, raw_bytes = _page(_DATA_PAGE, _PAGE_DATA, head, body, compress(body))
        before = b""
        if distinct:
            head = {1: (I32, distinct), 2: (I32, _PLAIN)}
            before, more = _page(_DICTIONARY_PAGE, _PAGE_DICTIONARY, head, words, compress(words))
            raw_bytes += more
        metadata: Struct = {
            _CHUNK_TYPE: (I32, leaf.physical_type),
            _CHUNK_ENCODINGS: (LIST, (I32, sorted({_PLAIN, _RLE, encoding} if distinct else {_RLE, encoding}))),
            _CHUNK_PATH: (LIST, (BINARY, leaf.path)),
            _CHUNK_CODEC: (I32, _UNCOMPRESSED if is_short else _ZSTD),
            _CHUNK_VALUES: (I64, values),
            CHUNK_UNCOMPRESSED_BYTES: (I64, raw_bytes),
            CHUNK_BYTES: (I64, len(before) + len(pages)),
            CHUNK_DATA_OFFSET: (I64, len(before)),
        }
        if distinct:
            metadata[CHUNK_DICTIONARY_OFFSET] = (I64, 0)
        if leaf.has_statistics:
            metadata[_CHUNK_STATISTICS] = (STRUCT, self._statistics(leaf, column))
        return Chunk(before + pages, metadata)

    def _compressed(self, data: bytes) -> bytes:
        compressed: bytes = self._codec.compress(data, asbytes=True)
        return compressed

    def _statistics(self, leaf: Leaf, column: pa.Array) -> Struct:
        """Of the integers that were encoded last."""
        fields: Struct = {_NULL_COUNT: (I64, column.null_count)}
        page = self._page
        if page.values:
            values = np.ctypeslib.as_array(page.words)[: page.distinct] if page.distinct else self._dense[: page.values]
            if pa.types.is_signed_integer(column.type):
                values = values.view(np.int64)
            size = 8 if leaf.physical_type == _INT64 else 4
            fields[_MOST] = (BINARY, values.max().tobytes()[:size])
            fields[_LEAST] = (BINARY, values.min().tobytes()[:size])
        return fields


def _page(kind: int, head_field: int, head: Struct, raw: bytes, data: bytes) -> tuple[bytes, int]:
    """A page behind its header, and how long it is uncompressed."""
    header = write_struct(
        {
            _PAGE_TYPE: (I32, kind),
            _PAGE_UNCOMPRESSED_BYTES: (I32, len(raw)),
            _PAGE_BYTES: (I32, len(data)),
            head_field: (STRUCT, head),
        }
    )
    return header + data, len(header) + len(raw)


def _c_column(column: pa.Array) -> ParquetColumn:
    valid, values = column.buffers()
    return ParquetColumn(
        values=values.address,
        valid=valid.address if column.null_count else None,
        rows=len(column),
        width=column.type.bit_width // 8,
        is_signed=pa.types.is_signed_integer(column.type),
    )


def _definition_levels(leaf: Leaf, column: pa.Array) -> bytes:
    """Of a column that is not nested: 1 where it is not null."""
    if not leaf.definition_level:
        return b""
    if not column.null_count:
        return _sized(_run(len(column), 1))
    groups = (len(column) + 7) // 8
    bits = bytearray(memoryview(column.buffers()[0])[:groups])
    bits[-1] &= 0xFF >> -len(column) % 8
    return _sized(_unsigned(groups << 1 | 1) + bits)


def _run(rows: int, level: int) -> bytes:
    """The same level again and again."""
    return _unsigned(rows << 1) + bytes([level])


def _unsigned(value: int) -> bytes:
    out = bytearray()
    write_unsigned(value, out)
    return bytes(out)


def _sized(levels: bytes) -> bytes:
    return struct.pack("<I", len(levels)) + levels
