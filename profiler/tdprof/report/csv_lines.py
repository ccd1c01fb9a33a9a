"""Comma-separated values: shares are fractions, unknown is empty."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any


def write_rows(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of CSV (RFC 4180, but for plain line feeds); no heading where it is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in chain([heading] if heading else [], rows):
        writer.writerow(row)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def number_cell(value: float) -> float | str:
    """A number; empty where it is not known (NaN)."""
    return "" if math.isnan(value) else float(value)
