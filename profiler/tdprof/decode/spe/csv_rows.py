"""SPE records for comma-separated values: no lists, and addresses in hexadecimal, which spreadsheets do not round."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from tdprof.decode.spe.table import spe_schema

HEX_COLUMNS = ("pc", "events", "va", "pa", "branch_target", "previous_branch_target")
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


class CsvWriter:
    """Writes rows of `table.spe_schema`: batches encoded by any thread, appended by one in their order."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        empty = csv_schema(spe_schema()).empty_table()
        sink.write(_csv(empty, has_header=True))

    def __enter__(self) -> CsvWriter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer:
        """A batch as `append` takes it; threads encode in parallel."""
        return _csv(csv_rows(batch), has_header=False)

    def append(self, encoded: pa.Buffer) -> None:
        """Write the lines.

        Raises:
            OSError: the sink does not take them.
        """
        self._sink.write(encoded)


def _csv(rows: pa.RecordBatch | pa.Table, *, has_header: bool) -> pa.Buffer:
    out = pa.BufferOutputStream()
    pyarrow.csv.write_csv(rows, out, pyarrow.csv.WriteOptions(include_header=has_header))
    return out.getvalue()


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of `csv_rows`."""
    fields = [
        field.with_type(pa.string()) if field.name in HEX_COLUMNS or pa.types.is_dictionary(field.type) else field
        for field in schema
        if field.name != "other_packets"
    ]
    return pa.schema(fields)


def csv_rows(records: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `table.spe_schema` without lists, words as words, addresses and bit sets as 0x and 16 digits."""
    schema = csv_schema(records.schema)
    columns = []
    for field in schema:
        column = records.column(field.name)
        if field.name in HEX_COLUMNS:
            column = _hex(column)
        elif pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _hex(column: pa.Array) -> pa.Array:
    values: NDArray[np.uint64] = np.asarray(column.fill_null(0))
    high_first = values.astype(">u8").view(np.uint8).reshape(-1, 8)
    text = np.empty((len(values), 18), np.uint8)
    text[:, :2] = (ord("0"), ord("x"))
    text[:, 2::2] = _DIGITS[high_first >> 4]
    text[:, 3::2] = _DIGITS[high_first & 15]
    offsets = np.arange(0, 18 * len(values) + 1, 18, dtype=np.int32)
    valid = None if column.null_count == 0 else pa.py_buffer(np.packbits(column.is_valid(), bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(text)])
