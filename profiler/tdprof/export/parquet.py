"""Row groups of one Parquet file, encoded on several CPUs.

pyarrow encodes a file on one thread. Here each batch becomes column chunks, by any thread; they are then written one
after the other, with one footer. What is not encoded here is by pyarrow, a small file in memory for each column: its
chunks are taken out of it. So is all of a file without rows, of which the footer's schema is.

Format: https://github.com/apache/parquet-format, `parquet.thrift`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet

from tdprof.export.parquet_chunks import (
    CHUNK_BYTES,
    CHUNK_DATA_OFFSET,
    CHUNK_DICTIONARY_OFFSET,
    CHUNK_INDEX_OFFSET,
    CHUNK_UNCOMPRESSED_BYTES,
    Chunk,
    ChunkEncoder,
    Leaf,
    is_encoded,
    leaf_of,
)
from tdprof.export.thrift_compact import I64, LIST, STRUCT, CompactReader, Struct, write_struct
from tdprof.native.library import load_native
from tdprof.values import dataclass

_MAGIC = b"PAR1"
_COMPRESSION_LEVEL = 1  # the next ones cost more than they save
_FILE_ROWS, _FILE_ROW_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_UNCOMPRESSED_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_BYTES = 1, 2, 3, 5, 6
_CHUNK_OFFSET, _CHUNK_METADATA = 2, 3
_OFFSETS = (CHUNK_DATA_OFFSET, CHUNK_INDEX_OFFSET, CHUNK_DICTIONARY_OFFSET)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A batch as it is written: its rows, and the chunks of the file's columns."""

    rows: int
    chunks: Sequence[Chunk]


class ParquetWriter:
    """Writes record batches of one schema, each as a row group: encoded by any thread, appended by one in their order.

    Used with ``with``: the footer is written at its end, also after an error, so that what came before can be read.

    Args:
        sink: where the file goes; it need not seek.
        schema: of all batches.
        statistics: columns of integers of which each row group says the least and the largest value, so that readers
            who choose rows by them leave others out.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema, statistics: Sequence[str] = ()) -> None:
        self._sink = sink
        self._schema = schema
        self._statistics = list(statistics)
        self._groups: list[bytes] = []  # as written: a tenth of the memory
        self._rows = 0
        empty = self._by_pyarrow(schema, [])
        self._file = _footer(empty)
        self._leaves: dict[bytes, list[Leaf]] = {}
        parquet_schema = pyarrow.parquet.ParquetFile(pa.BufferReader(empty)).schema
        for column in map(parquet_schema.column, range(len(parquet_schema))):
            leaf = leaf_of(column, has_statistics=column.path in self._statistics)
            self._leaves.setdefault(leaf.path[0], []).append(leaf)
        sink.write(_MAGIC)
        self._at = len(_MAGIC)

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        fields = {_FILE_ROWS: (I64, self._rows), _FILE_ROW_GROUPS: (LIST, (STRUCT, self._groups))}
        footer = write_struct(self._file | fields)
        self._sink.write(footer + struct.pack("<I", len(footer)) + _MAGIC)

    def encode(self, batch: pa.RecordBatch) -> RowGroup:
        """A batch, of a row at least, as `append` takes it; threads encode in parallel."""
        library = load_native()
        encoder = library and ChunkEncoder(library, len(batch), _COMPRESSION_LEVEL)
        chunks: list[Chunk] = []
        for field, column in zip(self._schema, batch.columns, strict=True):
            leaves = self._leaves[field.name.encode()]
            if encoder and column.null_count == len(column):
                chunks += [encoder.encode_nulls(leaf, column) for leaf in leaves]
            elif encoder and is_encoded(field.type):
                chunks.append(encoder.encode(leaves[0], column))
            else:
                chunks += _chunks(self._by_pyarrow(pa.schema([field]), [column]))
        return RowGroup(len(batch), chunks)

    def append(self, group: RowGroup) -> None:
        """Write the pages, and keep the row group for the footer.

        Raises:
            OSError: the sink does not take them.
        """
        start, columns = self._at, []
        for chunk in group.chunks:
            self._sink.write(chunk.pages)
            metadata = _moved(chunk.metadata, self._at)
            columns.append({_CHUNK_OFFSET: (I64, 0), _CHUNK_METADATA: (STRUCT, metadata)})  # 0: none, as newer writers
            self._at += len(chunk.pages)
        fields: Struct = {
            _GROUP_COLUMNS: (LIST, (STRUCT, columns)),
            _GROUP_UNCOMPRESSED_BYTES: (
                I64,
                sum(chunk.metadata[CHUNK_UNCOMPRESSED_BYTES][1] for chunk in group.chunks),
            ),
            _GROUP_ROWS: (I64, group.rows),
            _GROUP_OFFSET: (I64, start),
            _GROUP_BYTES: (I64, self._at - start),
        }
        self._groups.append(write_struct(fields))
        self._rows += group.rows

    def _by_pyarrow(self, schema: pa.Schema, columns: Sequence[pa.Array]) -> pa.Buffer:
        """A file of a row group of these columns, or of none."""
        sink = pa.BufferOutputStream()
        with pyarrow.parquet.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=_COMPRESSION_LEVEL,
            use_dictionary=[field.name for field in schema if pa.types.is_dictionary(field.type)],
            write_statistics=self._statistics,
        ) as parquet:
            if columns:
                parquet.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return sink.getvalue()


def _footer(file: pa.Buffer) -> Struct:
    (length,) = struct.unpack_from("<I", file, file.size - len(_MAGIC) - 4)
    return CompactReader(file.slice(file.size - length - 4 - len(_MAGIC), length).to_pybytes()).struct()


def _chunks(file: pa.Buffer) -> Iterator[Chunk]:
    """Those of a file that pyarrow wrote."""
    for group in _footer(file)[_FILE_ROW_GROUPS][1][1]:
        for column in group[_GROUP_COLUMNS][1][1]:
            metadata = column[_CHUNK_METADATA][1]
            start = min(metadata[field][1] for field in _OFFSETS if field in metadata)
            yield Chunk(file.slice(start, metadata[CHUNK_BYTES][1]).to_pybytes(), _moved(metadata, -start))


def _moved(metadata: Struct, distance: int) -> Struct:
    offsets = {field: (I64, metadata[field][1] + distance) for field in _OFFSETS if field in metadata}
    return metadata | offsets
