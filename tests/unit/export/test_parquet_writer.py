"""Parquet files made of row groups that were encoded apart: read back by two independent readers."""

import contextlib
import io
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.export.parquet import ParquetWriter
from tdprof.export.thrift_compact import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    CompactReader,
    Struct,
    write_struct,
)

SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64()),
        pa.field("word", pa.dictionary(pa.int16(), pa.string())),
        pa.field("others", pa.list_(pa.struct([("header", pa.uint16()), ("payload", pa.uint64())]))),
    ]
)
OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["word"],
    "column_encoding": {"number": "DELTA_BINARY_PACKED"},
    "write_statistics": ["number"],
}


def batch(start: int, rows: int) -> pa.RecordBatch:
    numbers = [None if number % 7 == 3 else number << 40 for number in range(start, start + rows)]
    words = pa.array([f"word {number % 5}" for number in range(start, start + rows)]).dictionary_encode()
    others = [[{"header": number & 0xFFFF, "payload": number}] * (number % 3) for number in range(start, start + rows)]
    columns = [pa.array(numbers, pa.uint64()), words.cast(SCHEMA.field("word").type)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(others, SCHEMA.field("others").type)], schema=SCHEMA)


def written(batches: list[pa.RecordBatch], workers: int = 2) -> bytes:
    sink = io.BytesIO()
    with ThreadPoolExecutor(workers) as pool, ParquetWriter(sink, SCHEMA, **OPTIONS) as writer:
        for encoded in pool.map(writer.encode, batches):
            writer.append(encoded)
    return sink.getvalue()


@pytest.mark.parametrize("sizes", [[], [1], [1000], [1, 1000, 3, 70_000, 1]])
def test_every_row_group_is_read_back(sizes: list[int]) -> None:
    batches = [batch(sum(sizes[:number]), size) for number, size in enumerate(sizes)]
    data = written(batches)
    table = pq.read_table(pa.BufferReader(data))
    assert table.schema == SCHEMA
    assert table.equals(pa.Table.from_batches(batches, SCHEMA))
    file = pq.ParquetFile(pa.BufferReader(data))
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == sizes
    for group, expected in enumerate(batches):
        assert file.read_row_group(group).equals(pa.Table.from_batches([expected]))
    frame = pl.read_parquet(io.BytesIO(data))
    assert frame["number"].to_list() == table["number"].to_pylist()
    assert frame["word"].cast(pl.String).to_list() == table["word"].cast(pa.string()).to_pylist()


def test_it_equals_what_pyarrow_writes_but_for_the_place_of_its_row_groups() -> None:
    batches = [batch(0, 500), batch(500, 300)]
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SCHEMA, **OPTIONS) as plain:
        for each in batches:
            plain.write_batch(each)
    ours, theirs = (pq.read_metadata(io.BytesIO(data)).to_dict() for data in (written(batches), sink.getvalue()))
    del ours["serialized_size"], theirs["serialized_size"]
    assert ours == theirs


def test_an_error_leaves_what_came_before() -> None:
    sink = io.BytesIO()
    with contextlib.suppress(KeyboardInterrupt), ParquetWriter(sink, SCHEMA, **OPTIONS) as writer:
        writer.append(writer.encode(batch(0, 10)))
        raise KeyboardInterrupt
    assert pq.read_table(pa.BufferReader(sink.getvalue())).num_rows == 10


def test_statistics_choose_row_groups() -> None:
    data = written([batch(0, 100), batch(100, 100)])
    read = pq.read_table(pa.BufferReader(data), filters=[("number", ">=", 150 << 40)])
    assert read.num_rows == sum(number % 7 != 3 for number in range(150, 200))


NUMBERS = {I16: 16, I32: 32, I64: 64}
values: st.SearchStrategy[Any] = st.deferred(
    lambda: st.one_of(
        *(
            st.tuples(st.just(kind), st.integers(-(1 << bits - 1), (1 << bits - 1) - 1))
            for kind, bits in NUMBERS.items()
        ),
        st.booleans().map(lambda value: (TRUE if value else FALSE, value)),
        st.tuples(st.just(BYTE), st.integers(0, 255)),
        st.tuples(st.just(DOUBLE), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(BINARY), st.binary(max_size=200)),
        st.tuples(st.just(LIST), st.tuples(st.just(I64), st.lists(st.integers(-5, 5), max_size=20))),
        st.tuples(st.just(LIST), st.tuples(st.just(STRUCT), st.lists(structs, max_size=3))),
        st.tuples(st.just(STRUCT), structs),
    )
)
structs: st.SearchStrategy[Any] = st.dictionaries(st.integers(1, 1 << 14), values, max_size=6)


@given(structs)
def test_structs_survive(fields: Struct) -> None:
    assert CompactReader(write_struct(fields)).struct() == fields


def test_the_bytes_are_thrifts() -> None:
    # Field 1: i32 -3 (zigzag 5); field 2: true; field 20: list of two binaries.
    fields: Struct = {1: (I32, -3), 2: (TRUE, True), 20: (LIST, (BINARY, [b"a", b"bc"]))}
    assert write_struct(fields) == bytes([0x15, 5, 0x11, 0x09, 40, 0x28, 1, 97, 2, 98, 99, 0])


def test_what_parquet_does_not_use_is_refused() -> None:
    with pytest.raises(ValueError, match="Thrift type 11"):
        CompactReader(struct.pack("BB", 0x1B, 0)).struct()
