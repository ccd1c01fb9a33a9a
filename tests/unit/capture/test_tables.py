"""What is written into a capture's tables is what is read."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tdprof.capture.tables
from tdprof.capture.schema import OPTIONAL_COLUMNS, OPTIONAL_TABLES, TABLES
from tdprof.capture.tables import TableWriter, gone_tables, read_table, replace_table
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder

SAMPLES = TABLES["samples"]
OPTIONAL = OPTIONAL_COLUMNS["samples"]


def samples(optional: tuple[pa.Field, ...]) -> pa.Table:
    """Two rows without anything, their optional columns in this order."""
    fields = [*SAMPLES, *optional]
    values = [pa.array([1, 2]).cast(f.type) if pa.types.is_integer(f.type) else pa.nulls(2, f.type) for f in fields]
    return pa.table(values, [field.name for field in fields])


@pytest.mark.parametrize("chosen", [(), OPTIONAL, OPTIONAL[::-1], OPTIONAL[2:] + OPTIONAL[:2], OPTIONAL[3:]])
def test_optional_columns_are_written_in_any_order(tmp_path: Path, chosen: tuple[pa.Field, ...]) -> None:
    names = [field.name for field in chosen]
    with OwnFolder.open(tmp_path) as folder:
        with TableWriter(folder) as writer:
            for _ in range(2):
                writer.write("samples", samples(chosen))
        read = read_table(tmp_path, "samples", names)
        assert set(read.column_names) == {*SAMPLES.names, *names}
        assert all(read[name].to_pylist() == [1, 2, 1, 2] for name in names)
        replace_table(folder, "samples", samples(chosen))
        assert len(read_table(tmp_path, "samples", names)) == 2


@pytest.mark.parametrize("columns", [["pid"], ["weight", "pid"]])
@pytest.mark.parametrize("optional", [(), ("cpu",)])
def test_columns_that_are_asked_for_are_read_alone(
    tmp_path: Path, columns: list[str], optional: tuple[str, ...]
) -> None:
    with OwnFolder.open(tmp_path) as folder, TableWriter(folder) as writer:
        writer.write("samples", samples(()))
    read = read_table(tmp_path, "samples", optional, columns)
    assert {*read.column_names} == {*columns, *optional}
    assert all(read[name].to_pylist() == [1, 2] for name in columns)
    assert all(read[name].null_count == 2 for name in optional)


@pytest.mark.thorough
def test_a_bit_that_changed_is_no_other_number(tmp_path: Path) -> None:
    schema = OPTIONAL_TABLES["namespaces"]
    columns = [
        pa.array([f"{at}.{row}" for row in range(40)]).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(range(at, at + 40)).cast(field.type)
        for at, field in enumerate(schema)
    ]
    with OwnFolder.open(tmp_path) as folder:
        replace_table(folder, "namespaces", pa.table(columns, schema.names))
    written, path = read_table(tmp_path, "namespaces"), tmp_path / "namespaces.parquet"
    good = path.read_bytes()
    refused = 0
    for at, byte in enumerate(good):
        path.write_bytes(good[:at] + bytes([byte ^ 1 << at % 8]) + good[at + 1 :])
        try:
            assert read_table(tmp_path, "namespaces").equals(written), at
        except TdprofError:
            refused += 1
    assert refused > len(good) // 2


def test_texts_that_are_no_utf_8_are_damage(tmp_path: Path) -> None:
    text = pa.array([b"main", b"\xff\xfe"], pa.binary())
    table = samples(()).set_column(
        SAMPLES.names.index("thread_name"), "thread_name", pa.Array.from_buffers(pa.string(), 2, text.buffers())
    )
    pq.write_table(table, tmp_path / "samples.parquet")
    with pytest.raises(TdprofError, match=r"samples\.parquet: it is damaged .*UTF8"):
        read_table(tmp_path, "samples")


def test_tables_that_are_gone_are_told_of(tmp_path: Path) -> None:
    with OwnFolder.open(tmp_path) as folder:
        with TableWriter(folder) as writer:
            writer.write("interpreted", OPTIONAL_TABLES["interpreted"].empty_table())
        assert writer.names() == sorted([*TABLES, "interpreted"])
        assert not gone_tables(tmp_path, writer.names())
        folder.remove("interpreted.parquet")
    assert gone_tables(tmp_path, writer.names()) == [
        f"cannot read {tmp_path}/interpreted.parquet: it is missing; functions of interpreted languages have no names"
    ]


def test_a_column_that_no_schema_has_is_an_error(tmp_path: Path) -> None:
    surplus = samples(()).append_column("surplus", pa.array([1, 2]))
    with OwnFolder.open(tmp_path) as folder, TableWriter(folder) as writer:
        writer.write("samples", samples(()))
        with pytest.raises(ValueError, match="surplus"):
            writer.write("samples", surplus)
    assert len(read_table(tmp_path, "samples")) == 2


def test_samples_with_a_stack_each_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one thread within one interval: nothing of a recording shrinks further in a file."""
    monkeypatch.setattr(tdprof.capture.tables, "_SPARE_TABLE_BYTES", 0)
    rows = 1 << 18
    same = {"time_ns": 10**9, "event": 0, "pid": 42, "tid": 42, "thread_name": "app", "count": 1, "weight": 1000}
    columns = {name: pa.repeat(pa.scalar(value), rows) for name, value in same.items()}
    columns |= {"user_stack": pa.array(np.arange(rows)), "kernel_stack": pa.nulls(rows)}
    table = pa.table([columns[name] for name in SAMPLES.names], SAMPLES.names).cast(SAMPLES)
    with OwnFolder.open(tmp_path) as folder, TableWriter(folder) as writer:
        for start in range(0, rows, 1 << 16):
            writer.write("samples", table.slice(start, 1 << 16))
    assert read_table(tmp_path, "samples").equals(table)
