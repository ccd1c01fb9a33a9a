"""docs/capture.md against the schema it describes; its queries on a capture with known contents."""

import contextlib
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tdprof.capture import manifest, schema
from tdprof.model.duty import DutyInfo
from tdprof.model.events import EventInfo, TopdownInfo
from tdprof.model.losses import Losses

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs/capture.md").read_text()
TABLES = schema.TABLES | schema.OPTIONAL_TABLES
CHECKSUM = "checksum"  # of capture.json's other keys
TYPES = {
    pa.uint8(): "uint8",
    schema.SYMBOLS.field("frames").type: "list of struct",
    pa.uint64(): "uint64",
    pa.uint32(): "uint32",
    pa.bool_(): "bool",
    pa.string(): "string",
    pa.dictionary(pa.int32(), pa.string()): "dictionary of string",
    pa.list_(pa.uint64()): "list of uint64",
}


def section(heading: str) -> str:
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert match, f"docs/capture.md has no section {heading}"
    return match[1]


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table, without its two header lines."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_described_with_its_type(name: str) -> None:
    described = [(cells[0].strip("`"), cells[1], cells[2]) for cells in rows(f"`{schema.table_file(name)}`")]
    fields = [(field.name, TYPES[field.type], "yes" if field.nullable else "no") for field in TABLES[name]]
    assert described == fields
    assert all(cells[3] for cells in rows(f"`{schema.table_file(name)}`"))


@pytest.mark.parametrize("name", TABLES)
def test_units_are_said(name: str) -> None:
    quantities = {"length", "file_offset", "size", "offset"}
    for cells in rows(f"`{schema.table_file(name)}`"):
        if cells[0].strip("`") in quantities:
            assert "bytes" in cells[3]


def test_the_parts_of_a_frame_are_described() -> None:
    [meaning] = [cells[3] for cells in rows("`symbols.parquet`") if cells[0] == "`frames`"]
    assert re.findall(r"`(\w+)`", meaning) == [field.name for field in schema.SYMBOLS.field("frames").type.value_type]


def test_no_table_is_described_that_is_not_written() -> None:
    described = re.findall(r"^### `(\w+)\.parquet`$", DOCUMENT, re.MULTILINE)
    assert described == list(TABLES)
    assert f"Schema version {manifest.SCHEMA_VERSION}." in DOCUMENT


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("`capture.json`", manifest.Manifest),
        ("`host`", manifest.Host),
        ("`events[]`", EventInfo),
        ("`losses`", Losses),
        ("`spe`", manifest.SpeInfo),
        ("`topdown`", TopdownInfo),
        ("`duty[]`", DutyInfo),
    ],
)
def test_every_key_is_described(heading: str, kind: Any) -> None:
    beside = {CHECKSUM} if kind is manifest.Manifest else set()
    described = {cells[0].strip("`") for cells in rows(heading)}
    assert described == {item.name for item in dataclasses.fields(kind)} | beside


def test_nullable_keys_say_so() -> None:
    for heading, kind in (("`capture.json`", manifest.Manifest), ("`host`", manifest.Host), ("`events[]`", EventInfo)):
        for cells in (each for each in rows(heading) if each[0] != f"`{CHECKSUM}`"):
            [item] = [item for item in dataclasses.fields(kind) if item.name == cells[0].strip("`")]
            assert ("None" in str(item.type)) == cells[1].endswith("or null"), cells[0]


def test_every_rung_and_state_is_named() -> None:
    for value in (*manifest.Rung, *manifest.State):
        assert f"`{value}`" in section("`capture.json`")


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two threads, two seconds, one file and some kernel time."""

    def write(name: str, columns: list[list[Any]]) -> None:
        arrow = schema.TABLES[name]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)]
        pq.write_table(pa.table(arrays, schema=arrow), tmp_path / schema.table_file(name))

    second = 1_000_000_000
    write(
        "samples",
        [
            [second, second, 2 * second, 2 * second],
            [0, 0, 0, 1],
            [7, 7, 7, 7],
            [7, 8, 8, 8],
            ["main", "worker", "worker", "worker"],
            [1, 2, 2, 2],
            [None, None, 3, None],
            [10, 20, 5, 9],
            [100, 200, 50, 999],
        ],
    )
    write("stacks", [[1, 2, 3], [False, False, True], [[0x1010, 0x1100], [0x2020], [0xFFFF800000001000]]])
    write(
        "mappings", [[0, 0], [7, 7], [0x1000, 0x2000], [0x1000, 0x1000], [0, 0], ["/bin/app", "/lib/x.so"], [None] * 2]
    )
    events = [
        {"name": "cpu-clock", "unit": "nanoseconds", "total": 700},
        {"name": "faults", "unit": "count", "total": None},
    ]
    (tmp_path / "capture.json").write_text(json.dumps({"events": events}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(language: str, containing: str) -> str:
    [code] = [c for c in re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL) if containing in c]
    return str(code)


def run_python(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "docs/capture.md", "exec"), names)
    return names


@pytest.mark.usefixtures("capture")
def test_the_polars_query() -> None:
    pytest.importorskip("polars")
    found = run_python(example("python", "polars"))["by_thread"].rows()
    assert found == [(0, 7, "main", 10, 100), (0, 8, "worker", 20, 200), (1, 8, "worker", 5, 50)]


@pytest.mark.usefixtures("capture")
def test_the_duckdb_query() -> None:
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(example("sql", "JOIN")).fetchall()
    assert found == [("/lib/x.so", 20, 200), ("/bin/app", 10, 100)]


@pytest.mark.usefixtures("capture")
def test_the_pandas_query() -> None:
    pytest.importorskip("pandas")
    found = run_python(example("python", "pandas"))["coverage"]
    assert found["count"].tolist() == [35, 9]
    assert found["share"][0] == 0.5
    assert found["share"].isna().tolist() == [False, True]
