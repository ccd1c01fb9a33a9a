"""Comma-separated values of many rows: the text of ``csv_lines``, made by columns. Values occur again and again, so
each is written once in a batch of rows."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tdprof.model.arrays import I64
from tdprof.report.csv_lines import write_rows

_BATCH_ROWS = 4096
_ERRORS = "surrogatepass"  # a name that is no UTF-8
_IS_QUOTED = re.compile('[,"\r\n]')

Column = Sequence[str] | NDArray[Any]


def write_columns(heading: Sequence[str], parts: Iterable[tuple[Sequence[Column], I64]]) -> Iterator[str]:
    """The heading, then some thousand lines at a time.

    Args:
        heading: names of the columns.
        parts: one below the other. Columns: texts, or integers or floats of which NaN is unknown: empty; as long as
            each other. And which of their rows, in this order.
    """
    yield from write_rows(heading, ())
    for columns, rows in parts:
        for first in range(0, len(rows), _BATCH_ROWS):
            yield _lines(columns, rows[first : first + _BATCH_ROWS])


def _lines(columns: Sequence[Column], some: I64) -> str:
    cells = [
        _of_numbers(column[some]) if isinstance(column, np.ndarray) else _of_texts(column, some) for column in columns
    ]
    lines = pc.binary_join_element_wise(*cells, b",")
    whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), b"\n")
    return str(whole[0].as_py().decode(errors=_ERRORS)) + "\n"


def _of_numbers(values: NDArray[Any]) -> pa.Array:
    encoded = pa.array(values).dictionary_encode()
    words = [b"" if value != value else repr(value).encode() for value in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.binary()).take(encoded.indices)


def _of_texts(texts: Sequence[str], rows: I64) -> pa.Array:
    chosen = (texts[row] for row in rows.tolist())
    cells = ('"' + text.replace('"', '""') + '"' if _IS_QUOTED.search(text) else text for text in chosen)
    return pa.array([cell.encode(errors=_ERRORS) for cell in cells], pa.binary())
