"""Row groups of one Parquet file, encoded on several CPUs.

pyarrow encodes a file on one thread. Here each batch becomes a small Parquet file in memory, by any thread; their pages
are then put one after the other, and one footer is made of theirs: the same metadata with offsets moved.

Format: https://github.com/apache/parquet-format, `parquet.thrift`.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet

from tdprof.export.thrift_compact import I64, LIST, STRUCT, CompactReader, Struct, write_struct

_MAGIC = b"PAR1"
_FILE_ROWS, _FILE_ROW_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSET, _CHUNK_METADATA = 2, 3
_COLUMN_OFFSETS = (9, 10, 11)  # of data, index and dictionary pages


class ParquetWriter:
    """Writes record batches of one schema, each as a row group: encoded by any thread, appended by one in their order.

    Used with ``with``: the footer is written at its end, also after an error, so that what came before can be read.

    Args:
        sink: where the file goes; it need not seek.
        schema: of all batches.
        options: of `pyarrow.parquet.ParquetWriter`, without what adds indexes or encryption.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema, **options: Any) -> None:
        self._sink = sink
        self._schema = schema
        self._options = options
        self._groups: list[bytes] = []  # as written: a tenth of the memory
        self._rows = 0
        self._file = _footer(self._encode([]))
        sink.write(_MAGIC)
        self._at = len(_MAGIC)

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        fields = {_FILE_ROWS: (I64, self._rows), _FILE_ROW_GROUPS: (LIST, (STRUCT, self._groups))}
        footer = write_struct(self._file | fields)
        self._sink.write(footer + struct.pack("<I", len(footer)) + _MAGIC)

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer:
        """A batch as `append` takes it; threads encode in parallel."""
        return self._encode([batch])

    def append(self, encoded: pa.Buffer) -> None:
        """Write the pages, and keep the row group for the footer.

        Raises:
            OSError: the sink does not take them.
        """
        _, groups = _footer(encoded)[_FILE_ROW_GROUPS][1]
        pages = memoryview(encoded)[len(_MAGIC) : encoded.size - _footer_size(encoded)]
        self._sink.write(pages)
        for group in groups:
            _move(group, self._at - len(_MAGIC))
            self._groups.append(write_struct(group))
            self._rows += group[_GROUP_ROWS][1]
        self._at += len(pages)

    def _encode(self, batches: list[pa.RecordBatch]) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        with pyarrow.parquet.ParquetWriter(sink, self._schema, **self._options) as parquet:
            for batch in batches:
                parquet.write_batch(batch, row_group_size=batch.num_rows)
        return sink.getvalue()


def _footer_size(file: pa.Buffer) -> int:
    """Bytes from the footer's first to the file's last."""
    length: int
    (length,) = struct.unpack_from("<I", file, file.size - len(_MAGIC) - 4)
    return length + 4 + len(_MAGIC)


def _footer(file: pa.Buffer) -> Struct:
    return CompactReader(file.slice(file.size - _footer_size(file)).to_pybytes()).struct()


def _move(group: Struct, distance: int) -> None:
    """Add to every offset of a row group. Its ordinal, which only encryption needs, is left out."""
    group.pop(_GROUP_ORDINAL, None)
    _add(group, _GROUP_OFFSET, distance)
    for chunk in group[_GROUP_COLUMNS][1][1]:
        if chunk[_CHUNK_OFFSET][1]:  # 0 is what newer writers say
            _add(chunk, _CHUNK_OFFSET, distance)
        for field in _COLUMN_OFFSETS:
            _add(chunk[_CHUNK_METADATA][1], field, distance)


def _add(fields: Struct, field: int, distance: int) -> None:
    if field in fields:
        kind, value = fields[field]
        fields[field] = (kind, value + distance)
