"""Texts that many rows have: each once, and what is made of them the same as row by row."""

import numpy as np
import pyarrow as pa
import pytest

from tdprof.fleet.recordings import of_each
from tdprof.fleet.shared_texts import distinct_texts, in_plain_pieces, is_any_of, row_text_bytes, to_rows

SCHEMA = pa.schema([pa.field("recording", pa.string()), pa.field("tags", pa.list_(pa.string())), ("n", pa.int64())])
ROWS = [
    {"recording": "b", "tags": ["x", "y"], "n": 1},
    {"recording": "a", "tags": [], "n": 2},
    {"recording": "b", "tags": ["y"], "n": 3},
    {"recording": "é", "tags": ["x"], "n": 4},
]


def in_chunks() -> pa.Table:
    """The rows in two chunks with dictionaries of their own, as row groups have them."""
    parts = [pa.Table.from_pylist(rows, SCHEMA) for rows in (ROWS[:2], ROWS[2:])]
    return pa.concat_tables([part.set_column(0, "recording", part["recording"].dictionary_encode()) for part in parts])


def test_texts_and_rows_are_those_of_the_table() -> None:
    texts, rows = distinct_texts(in_chunks()["recording"])
    assert [texts[row] for row in rows] == ["b", "a", "b", "é"]
    assert to_rows(in_chunks()) == ROWS


def test_equal_texts_are_one_object() -> None:
    first, _, third, _ = to_rows(in_chunks())
    assert first["recording"] is third["recording"]
    assert first["tags"][1] is third["tags"][0]


def test_rows_with_one_of_some_texts() -> None:
    assert is_any_of(in_chunks()["recording"], ["a", "é", "never"]).to_pylist() == [False, True, False, True]
    assert len(is_any_of(in_chunks().slice(0, 0)["recording"], ["a"])) == 0


def test_recordings_are_split_in_the_order_of_their_rows() -> None:
    of_b, of_a, of_none = of_each(in_chunks(), ["b", "a", "none"])
    assert (of_b["n"].to_pylist(), of_a["n"].to_pylist(), len(of_none)) == ([1, 3], [2], 0)


def test_bytes_of_texts() -> None:
    assert row_text_bytes(in_chunks()).tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 1 << 20])
def test_pieces_are_all_rows(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr("tdprof.fleet.shared_texts._PIECE_BYTES", piece_bytes)
    pieces = list(in_plain_pieces(in_chunks(), SCHEMA))
    assert pa.concat_tables(pieces).to_pylist() == ROWS
    assert np.all([piece.schema == SCHEMA for piece in pieces])
    assert [len(piece) for piece in in_plain_pieces(in_chunks().slice(0, 0), SCHEMA)] == [0]
