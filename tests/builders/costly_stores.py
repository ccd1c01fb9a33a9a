"""Stores of many captures whose tables shrink further than any real one's; see `costly_files`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from builders.cost import tdprof
from builders.costly_files import builder
from builders.fleet import START_NS
from builders.rollups import write_recording
from tdprof.fleet.recordings import content_of_members, with_members
from tdprof.fleet.store import MANY, Store

_TEXTS = ("module", "function", "linkage_name", "file")


def _with_rows(folder: Path, rows: int) -> Path:
    """A store with one recording, of as many functions, which are one but for their numbers."""
    place = folder / "store"
    write_recording(Store.create(str(place)), "a", {"work": 60}, date="2026-11-22", start_ns=START_NS)
    path = next((place / "rollup" / "functions").rglob("*.parquet"))
    table = pq.read_table(path)
    at = table.column_names.index("id")
    same = table.take(pa.array(np.zeros(rows, np.int64)))
    forged = same.set_column(at, table.schema.field("id"), pa.array(np.arange(rows, dtype=np.int32)))
    others = [name for name in table.column_names if name != "id"]
    pq.write_table(
        forged, path, compression="zstd", use_dictionary=others, column_encoding={"id": "DELTA_BINARY_PACKED"}
    )
    return place


@builder
def store_of_one_function_many_times(folder: Path, size: int) -> list[str]:
    """Over which a store's functions are added up."""
    return tdprof("fleet", "report", _with_rows(folder, 4 * size))


@builder
def store_of_one_function_in_a_graph(folder: Path, size: int) -> list[str]:
    """The same as call stacks."""
    return tdprof("export", _with_rows(folder, 4 * size), "--to", "folded")


def _with_long_texts(folder: Path) -> Path:
    """A store of a recording with functions of which each row repeats the same long names."""
    place = _with_rows(folder, 50_000)
    path = next((place / "rollup" / "functions").rglob("*.parquet"))
    table = pq.read_table(path, read_dictionary=list(_TEXTS))
    numbers = pa.array(np.zeros(len(table), np.int32))
    for name in _TEXTS:
        column = pa.DictionaryArray.from_arrays(numbers, pa.array(["x" * 4000]))
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(
        table, path, compression="zstd", column_encoding={"id": "DELTA_BINARY_PACKED"}, use_dictionary=_TEXTS
    )
    return place


@builder
def store_of_long_names_checked(folder: Path, size: int) -> list[str]:
    """Long names, each row's of which what was written is compared with."""
    return tdprof("fleet", "check", _with_long_texts(folder))


@builder
def store_of_long_names_reported(folder: Path, size: int) -> list[str]:
    """The same added up."""
    return tdprof("fleet", "report", _with_long_texts(folder))


@builder
def store_of_long_names_compacted(folder: Path, size: int) -> list[str]:
    """The same put together."""
    return tdprof("fleet", "compact", _with_long_texts(folder))


def _with_recordings(folder: Path, count: int) -> Path:
    """A store with a day of so many recordings, which are one but for their names."""
    place = _with_rows(folder, 1)
    members = dict.fromkeys((f"{number:x}" for number in range(count)), "")
    for path in list((place / "rollup").rglob("*.parquet")):
        table = pq.read_table(path).take(pa.array(np.zeros(count, np.int64)))
        table = with_members(table.set_column(0, "recording", pa.array(list(members))), members)
        path.unlink()
        pq.write_table(table, path.with_name(f"{MANY}-{content_of_members(members)}.parquet"), compression="zstd")
    return place


@builder
def store_of_many_recordings(folder: Path, size: int) -> list[str]:
    """A day's file that each of its recordings is looked for in."""
    return tdprof("fleet", "report", _with_recordings(folder, size // 40))


@builder
def store_of_many_recordings_in_a_graph(folder: Path, size: int) -> list[str]:
    """The same as call stacks."""
    return tdprof("export", _with_recordings(folder, size // 40), "--to", "folded")
