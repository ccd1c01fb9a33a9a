"""CSV made by columns is what csv.writer makes of the rows."""

import csv
import io
import math

import numpy as np

from tdprof.report.csv_columns import Column, write_columns


def test_the_same_text_as_by_rows() -> None:
    count = 40_000  # of several batches
    numbers = np.random.default_rng(1)
    names = [f"f{i}" for i in range(count)]
    names[:6] = ["", "a,b", 'a "b"', "two\nlines", "über\U0001f600", "not \udcff UTF-8"]
    counts = numbers.integers(0, 1 << 63, count).astype(np.uint64)
    ratios = numbers.random(count)
    ratios[::3] = np.nan
    ratios[1::9] = 1e-7
    whole = np.arange(count) % 7 * 1.0
    rows = numbers.permutation(count)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["name", "count", "a ratio", "whole"])
    for row in rows.tolist():
        cells = [ratios[row].item(), whole[row].item()]
        writer.writerow([names[row], counts[row].item(), *("" if math.isnan(cell) else cell for cell in cells)])
    heading = ["name", "count", "a ratio", "whole"]
    columns: list[Column] = [names, counts, ratios, whole]
    assert "".join(write_columns(heading, [(columns, rows)])) == buffer.getvalue()
    assert "".join(write_columns(heading, [(columns, rows[:9]), (columns, rows[9:])])) == buffer.getvalue()
    assert "".join(write_columns(["name"], [([names], rows[:0])])) == "name\n"
