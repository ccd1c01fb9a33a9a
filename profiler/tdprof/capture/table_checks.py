"""Parquet tables that others may have made: what they take, told before it is taken, and whether they are as agreed."""

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BYTE_ARRAY": 4}
# For pq.ParquetFile.
FOOTER_LIMITS = {"thrift_string_size_limit": 16 << 20, "thrift_container_size_limit": 1 << 20}
_WIDEST = 1 << 10  # of a FIXED_LEN_BYTE_ARRAY, which no table of ours has


def stated_bytes(metadata: pq.FileMetaData) -> int:
    """What the columns take when they are read, as the file states it; a text that is repeated counts once."""
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    widths = [_WIDTHS.get(column.physical_type, _WIDEST) for column in columns]
    nested = [i for i, column in enumerate(columns) if column.max_repetition_level]
    flat_bytes = sum(widths) - sum(widths[i] for i in nested)
    total = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        total += group.total_byte_size + group.num_rows * flat_bytes
        total += sum(max(group.column(i).num_values, 0) * widths[i] for i in nested)
    return total


def check_values(table: pa.Table) -> None:
    """See that texts and columns' names are UTF-8, and that texts and lists lie within what holds them.

    Arrow believes that of a file: what is not so would be an error wherever it is first looked at, or read beyond.

    Raises:
        pyarrow.ArrowInvalid, UnicodeDecodeError: something is not.
    """
    table.schema.names  # noqa: B018  decoded when they are asked for
    table.validate(full=True)


def text_bytes(table: pa.Table) -> int:
    """What the columns of text take when each row has its own."""
    total = 0
    for column in table.columns:
        for array in column.chunks if pa.types.is_dictionary(column.type) else ():
            lengths = pa.compute.binary_length(array.dictionary).fill_null(0).to_numpy().astype(np.int64)
            uses = np.bincount(array.indices.drop_null().to_numpy(), minlength=len(lengths))
            total += int(uses @ lengths)
    return total


def checked_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, with its types.

    Raises:
        ValueError: with words for users: one is missing, is there twice, has gaps where none may be, or another type.
    """
    for item in schema:
        times = table.column_names.count(item.name)
        if times != 1:
            raise ValueError(f"it has {'several columns' if times else 'no column'} {item.name}")
        if (not item.nullable and table[item.name].null_count) or _has_gaps_in_lists(table[item.name]):
            raise ValueError(f"its column {item.name} has gaps")
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise ValueError(f"it has columns of other types: {str(error).splitlines()[0]}") from error


def _has_gaps_in_lists(column: pa.ChunkedArray) -> bool:
    return pa.types.is_list(column.type) and any(chunk.flatten().null_count for chunk in column.chunks)
