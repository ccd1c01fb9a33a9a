"""SPE records for comma-separated values: no lists, and addresses in hexadecimal, which spreadsheets do not round."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

HEX_COLUMNS = ("pc", "events", "va", "pa", "branch_target", "previous_branch_target")
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of `csv_rows`."""
    fields = [
        field.with_type(pa.string()) if field.name in HEX_COLUMNS or pa.types.is_dictionary(field.type) else field
        for field in schema
        if field.name != "other_packets"
    ]
    return pa.schema(fields)


def csv_rows(records: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of `spe_table.spe_schema` without lists, words as words, addresses and bit sets as 0x and 16 digits."""
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
