"""Stores of many captures whose tables shrink further than any real one's; see `costly_files`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from builders.cost import tdprof
from builders.costly_files import builder
from builders.fleet import START_NS
from builders.rollups import write_recording
from tdprof.fleet.store import Store


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
