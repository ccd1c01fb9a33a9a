"""Columns that hold each text once, looked at without a copy for each row: who made them may repeat long ones."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.model.arrays import I64

_PIECE_BYTES = 64 << 20  # of texts, where each row has its own


def distinct_texts(column: pa.ChunkedArray) -> tuple[list[str], I64]:
    """The texts of a column, of which some may be the same, and int64[rows]: which each row has."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    chunks = encoded.unify_dictionaries().chunks
    if not chunks:
        return [], np.zeros(0, np.int64)
    rows = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
    return chunks[0].dictionary.to_pylist(), rows.astype(np.int64)


def is_any_of(column: pa.ChunkedArray, wanted: Collection[str]) -> pa.Array:
    """For each row whether it has one of some texts."""
    texts, rows = distinct_texts(column)
    known = frozenset(wanted)
    return pa.array(np.array([text in known for text in texts], bool)[rows])


def numbers_of(column: pa.ChunkedArray, number_of: Mapping[str, int]) -> I64:
    """int64[rows]: the number that each row's text has; -1: it has none."""
    texts, rows = distinct_texts(column)
    return np.array([number_of.get(text, -1) for text in texts], np.int64)[rows]


def row_text_bytes(table: pa.Table) -> I64:
    """int64[rows]: what each row's texts take; those in lists do not count."""
    total = np.zeros(len(table), np.int64)
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            texts, rows = distinct_texts(column)
            total += np.array([len(text.encode()) for text in texts], np.int64)[rows]
    return total


def in_plain_pieces(table: pa.Table, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows with their own texts, as a schema has them; as many at once as have some MiB of them, mostly all."""
    pieces = 1 + int(row_text_bytes(table).sum()) // _PIECE_BYTES
    rows = -(-len(table) // pieces)
    for start in range(0, max(len(table), 1), max(rows, 1)):
        yield table.slice(start, rows).cast(schema)


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Each row by its columns' names; equal texts are one object, in lists as well."""
    columns = [to_values(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def to_values(column: pa.ChunkedArray) -> list[Any]:
    """A column's values; equal texts are one object, in lists as well."""
    if pa.types.is_dictionary(column.type):
        texts, rows = distinct_texts(column)
        return [texts[row] for row in rows.tolist()]
    if not pa.types.is_list(column.type):
        return list(column.to_pylist())
    lists = column.combine_chunks()
    texts, rows = distinct_texts(pa.chunked_array([lists.flatten()]))
    ends = np.cumsum(pa.compute.list_value_length(lists).to_numpy()).tolist()
    flat = [texts[row] for row in rows.tolist()]
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]
