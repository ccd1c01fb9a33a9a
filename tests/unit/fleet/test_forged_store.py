"""Files of a store that somebody else has made: each is refused in words that name it, none costs what it claims."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.fleet import START_NS, tdprof
from builders.rollups import write_recording
from tdprof.errors import TdprofError
from tdprof.fleet.schema import SUMS
from tdprof.fleet.spans import parse_span
from tdprof.fleet.store import Store

QUESTIONS = (
    ("fleet", "report", "STORE"),
    ("fleet", "report", "STORE", "--since", "2026-11-22", "--until", "2026-11-23"),
    ("fleet", "hosts", "STORE"),
    ("fleet", "check", "STORE"),
    ("fleet", "diff", "STORE", "--a", "host=a", "--b", "host=b"),
    ("export", "STORE", "--to", "folded"),
    ("fleet", "compact", "STORE"),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole") / "store"
    store = Store.create(str(place))
    for host in "abc":
        write_recording(store, host, {"work": 60, "rest": 20}, date="2026-11-22", start_ns=START_NS)
    tdprof("fleet", "compact", place)
    return place


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "store"))


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def without_first(table: pa.Table) -> pa.Table:
    return table.drop_columns(table.column_names[0])


def with_gaps(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        table = table.set_column(number, pa.field(field.name, field.type), pa.nulls(len(table), field.type))
    return table


def of_text(table: pa.Table) -> pa.Table:
    return pa.table({name: ["x"] * len(table) for name in table.column_names}, metadata=table.schema.metadata)


def far_numbers(table: pa.Table) -> pa.Table:
    """Numbers of functions, groups and frames, where a table has them, beyond all that there are."""
    for name in {"group", "function", "id"}.intersection(table.column_names):
        if pa.types.is_integer(table.schema.field(name).type):
            numbers = pa.array(np.full(len(table), 2**31 - 1), table.schema.field(name).type)
            table = table.set_column(table.column_names.index(name), table.schema.field(name), numbers)
    if "frames" in table.column_names:
        frames = pa.array([[2**31 - 1, -1]] * len(table), pa.list_(pa.int32()))
        table = table.set_column(table.column_names.index("frames"), "frames", frames)
    return table


def without_metadata(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata(None)


def with_other_metadata(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata({b"tdprof.rows": b'{"cpu-clock": [0]}', b"tdprof.members": b"[[["})


@pytest.mark.parametrize(
    "change",
    [without_first, with_gaps, of_text, far_numbers, without_metadata, with_other_metadata],
    ids=lambda change: change.__name__,
)
@pytest.mark.parametrize("part", ["sums", "rollup"])
def test_what_is_not_as_agreed_is_an_error_in_words(
    store: Path, part: str, change: Callable[[pa.Table], pa.Table]
) -> None:
    if part == "rollup":
        shutil.rmtree(store / "sums")
    for path in (store / part).rglob("*.parquet"):
        rewrite(path, change)
    for question in QUESTIONS:
        ran = tdprof(*(store if word == "STORE" else word for word in question))
        assert ran.error is None or isinstance(ran.error, TdprofError), (question, ran.error)


def test_a_file_that_grows_in_memory_is_not_read(store: Path) -> None:
    [path] = (store / "sums").rglob("*-names.parquet")
    rows = 12_000_000
    text = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array(["x"]))
    same = pa.array(np.zeros(rows, bool))
    rewrite(path, lambda _: pa.Table.from_arrays([text, text, text, same, same], SUMS["names"].names))
    assert path.stat().st_size < 4 << 20
    ran = tdprof("fleet", "report", store)
    assert ran.error
    assert "it would become more than" in ran.error.message
    assert str(path.name) in ran.error.message


def test_gaps_in_lists_are_told(store: Path) -> None:
    [span] = {parse_span(path.parent.name) for path in (store / "sums").rglob("*-hosts.parquet")}
    [path] = (store / "sums").rglob("*-hosts.parquet")
    labels = SUMS["hosts"].field("labels")
    rewrite(path, lambda table: table.set_column(5, labels, pa.array([[None]] * len(table), labels.type)))
    opened = Store(str(store))
    assert span
    with (
        pytest.raises(TdprofError, match="its column labels has gaps"),
        opened.open_sums("hosts", span, path.name.partition("-")[0]) as stored,
    ):
        stored.read()


@pytest.mark.parametrize(
    "told", [{"cpu-clock": [0, 2**62]}, {"cpu-clock": [-(2**62), 5]}, {"cpu-clock": "ab"}, [], 7], ids=repr
)
def test_metadata_of_ranges_that_cannot_be_are_told(store: Path, told: object) -> None:
    [path] = (store / "sums").rglob("*-hosts.parquet")
    rewrite(path, lambda table: table.replace_schema_metadata({b"tdprof.rows": json.dumps(told).encode()}))
    ran = tdprof("fleet", "report", store)
    assert ran.error is None or isinstance(ran.error, TdprofError), ran.error
