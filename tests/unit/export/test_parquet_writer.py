"""Parquet files made of row groups that were encoded apart: read back by two independent readers."""

import contextlib
import io
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.export import parquet
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


def batch(start: int, rows: int) -> pa.RecordBatch:
    numbers = [None if number % 7 == 3 else number << 40 for number in range(start, start + rows)]
    words = pa.array([f"word {number % 5}" for number in range(start, start + rows)]).dictionary_encode()
    others = [[{"header": number & 0xFFFF, "payload": number}] * (number % 3) for number in range(start, start + rows)]
    columns = [pa.array(numbers, pa.uint64()), words.cast(SCHEMA.field("word").type)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(others, SCHEMA.field("others").type)], schema=SCHEMA)


def written(batches: list[pa.RecordBatch], workers: int = 2) -> bytes:
    sink = io.BytesIO()
    with ThreadPoolExecutor(workers) as pool, ParquetWriter(sink, SCHEMA, ["number"]) as writer:
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


WORDS = pa.dictionary(pa.int16(), pa.string())
INTEGERS = {
    type_: np.iinfo(type_.to_pandas_dtype())
    for type_ in (pa.uint8(), pa.int8(), pa.uint16(), pa.int16(), pa.uint32(), pa.int32(), pa.uint64(), pa.int64())
}


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array:
    """Of few distinct values or many, near each other or far, with nulls or without, cut out of a longer one or not."""
    type_ = draw(st.sampled_from([*INTEGERS, WORDS]))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    is_null = random.random(rows + 3) < draw(st.sampled_from([0, 0.3, 1]))
    skipped = draw(st.integers(0, 3))
    if type_ == WORDS:
        most = draw(st.sampled_from([1, 2, 300]))
        places = pa.array(random.integers(0, most, rows + 3), pa.int16(), mask=is_null)
        return pa.DictionaryArray.from_arrays(places, [f"word {number}" for number in range(most)])[skipped:][:rows]
    limits = INTEGERS[type_]
    values = random.integers(limits.min, limits.max, rows + 3, type_.to_pandas_dtype(), endpoint=True)
    choice = draw(st.sampled_from(["all", "few", "ends", "sorted"]))
    if choice == "few":
        values = values[random.integers(0, draw(st.sampled_from([1, 2, 200])), rows + 3) % len(values)]
    elif choice == "ends":
        values = np.where(values % 2 == 0, limits.min, limits.max).astype(values.dtype)
    elif choice == "sorted":
        values.sort()
    return pa.array(values, type_, mask=is_null)[skipped:][:rows]


@given(st.data(), st.sampled_from([1, 7, 8, 129, 1000, 3000]), st.booleans())
def test_any_column_is_read_back(data: st.DataObject, rows: int, is_compiled: bool) -> None:
    drawn = [data.draw(columns(rows)) for _ in range(3)]
    table = pa.RecordBatch.from_arrays(drawn, [f"column {number}" for number in range(3)])
    sink = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        if not is_compiled:
            patch.setattr(parquet, "load_native", lambda: None)
        with ParquetWriter(sink, table.schema, [name for name in table.schema.names if name != "column 1"]) as writer:
            writer.append(writer.encode(table))
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    read, frame = file.read(), pl.read_parquet(io.BytesIO(sink.getvalue()))
    assert read.schema == table.schema
    for name, column in zip(table.schema.names, drawn, strict=True):
        expected = column.to_pylist()
        assert read[name].to_pylist() == expected
        assert frame[name].to_list() == expected
    for number, column in enumerate(drawn):
        told = file.metadata.row_group(0).column(number).statistics
        if number != 1 and column.type != WORDS:
            assert told.null_count == column.null_count
            present = column.drop_null().to_pylist()
            assert told.has_min_max == bool(present)
            assert not present or (told.min, told.max) == (min(present), max(present))


def test_a_column_may_be_without_nulls_by_its_schema() -> None:
    schema = pa.schema([pa.field("number", pa.uint16(), nullable=False)])
    sink = io.BytesIO()
    with ParquetWriter(sink, schema) as writer:
        writer.append(writer.encode(pa.RecordBatch.from_arrays([pa.array([5, 6], pa.uint16())], schema=schema)))
    assert pq.read_table(pa.BufferReader(sink.getvalue()))["number"].to_pylist() == [5, 6]


def test_values_that_take_turns_cost_a_few_bits() -> None:
    numbers = pa.array(np.resize(np.arange(200, dtype=np.uint64) << 40, 100_000))
    sink = io.BytesIO()
    with ParquetWriter(sink, pa.schema([("number", pa.uint64())])) as writer:
        writer.append(writer.encode(pa.RecordBatch.from_arrays([numbers], ["number"])))
    column = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(0).column(0)
    assert column.total_uncompressed_size < 102_000  # a byte each, and the words


def test_an_error_leaves_what_came_before() -> None:
    sink = io.BytesIO()
    with contextlib.suppress(KeyboardInterrupt), ParquetWriter(sink, SCHEMA, ["number"]) as writer:
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
