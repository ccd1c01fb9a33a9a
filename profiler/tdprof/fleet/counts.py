"""Counts of functions by host or group as columns, added up exactly: in memory, or as they are read."""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tdprof.errors import TdprofError
from tdprof.fleet.shared_texts import distinct_texts
from tdprof.model.arrays import I64
from tdprof.values import dataclass

FUNCTION_KEYS = ["module", "function", "file", "is_kernel", "is_ambiguous"]
VALUES = ["self_weight", "total_weight", "self_samples", "total_samples"]
FunctionKey = tuple[str, str, str, bool, bool]


@dataclass(frozen=True, slots=True)
class FunctionRows:
    """Rows of function, group and values, ordered by the first two, each pair of them once.

    Attributes:
        function, group: int64[rows].
        values: int64[4, rows], as ``VALUES``.
    """

    function: I64
    group: I64
    values: I64

    def __len__(self) -> int:
        return len(self.function)

    def split(self, function: int) -> "tuple[FunctionRows, FunctionRows]":
        """The rows of functions below one, and the rest."""
        at = int(np.searchsorted(self.function, function))
        return (
            FunctionRows(self.function[:at], self.group[:at], self.values[:, :at]),
            FunctionRows(self.function[at:], self.group[at:], self.values[:, at:]),
        )


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows whose functions have these names, in order."""

    keys: Sequence[FunctionKey]
    rows: FunctionRows


def add_rows(function: I64, group: I64, values: I64) -> FunctionRows:
    """Rows in any order, of which several may be of one function and group."""
    if not len(function):
        return FunctionRows(function, group, values)
    groups = int(group.max()) + 1
    pair = function * groups + group
    order = np.argsort(pair, kind="stable")
    pair = pair[order]
    first = np.flatnonzero(np.diff(pair, prepend=-1))
    sums = np.add.reduceat(values[:, order], first, axis=1)
    return FunctionRows(pair[first] // groups, pair[first] % groups, sums)


def add_keyed(parts: Sequence[KeyedRows]) -> KeyedRows:
    """Rows with names of their own, added up."""
    keys = sorted({key for part in parts for key in part.keys})
    numbers = renumber([part.keys for part in parts], keys)
    function = np.concatenate([number[part.rows.function] for number, part in zip(numbers, parts, strict=True)])
    group = np.concatenate([part.rows.group for part in parts])
    return KeyedRows(keys, add_rows(function, group, np.concatenate([part.rows.values for part in parts], axis=1)))


def renumber(of: Sequence[Sequence[FunctionKey]], keys: Sequence[FunctionKey]) -> list[I64]:
    """For each list of names, int64: the number of each name among all."""
    number = {key: row for row, key in enumerate(keys)}
    return [np.array([number[key] for key in each], np.int64) for each in of]


def read_keyed(table: pa.Table, group: I64) -> KeyedRows:
    """Rows of functions' roll-ups.

    Args:
        table: with ``FUNCTION_KEYS``, of which texts are dictionaries, and ``VALUES``.
        group: int64[rows].
    """
    keys, function = number_keys(table)
    return KeyedRows(keys, add_rows(function, group, np.stack([_numbers(table[name]) for name in VALUES])))


def number_keys(table: pa.Table) -> tuple[list[FunctionKey], I64]:
    """The names of functions, in order, and for each row the number of its own."""
    columns: list[tuple[list[Any], I64]] = []
    for name in FUNCTION_KEYS:
        column = table[name]
        if pa.types.is_boolean(column.type):
            columns.append(([False, True], np.asarray(column.to_numpy(), np.int64)))
            continue
        texts, which = distinct_texts(column)
        if name == "module":
            texts = [posixpath.basename(text) for text in texts]
        distinct = sorted(set(texts))
        rank = {text: row for row, text in enumerate(distinct)}
        columns.append((distinct, np.array([rank[text] for text in texts], np.int64)[which]))
    code = np.zeros(len(table), np.int64)
    for distinct, rows in columns:
        code = code * len(distinct) + rows
    codes, number = np.unique(code, return_inverse=True)
    parts = []
    for distinct, _ in reversed(columns):
        codes, rest = np.divmod(codes, len(distinct))
        parts.append([distinct[row] for row in rest.tolist()])
    keys: list[FunctionKey] = list(zip(*reversed(parts), strict=True))
    return keys, number.astype(np.int64)


def _numbers(column: pa.ChunkedArray) -> I64:
    return np.asarray(column.to_numpy(), np.int64)


class RowStream:
    """Rows of a file in order, a batch at a time, with numbers of the reader's own.

    Args:
        batches: of ``FUNCTION_SUMS``.
        function: int64: the reader's number of each function of the file, in the same order.
        group: int64: likewise of each group; -1: its rows are left out.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], function: I64, group: I64) -> None:
        self._batches, self._function, self._group = batches, function, group
        self._rows = self._next()

    @property
    def last(self) -> int | None:
        """The last function of which rows are at hand; None at the end."""
        return int(self._rows.function[-1]) if len(self._rows) else None

    def take(self, function: int) -> FunctionRows:
        """The rows at hand of functions below one; when all are taken, the next ones are read."""
        taken, self._rows = self._rows.split(function)
        if not len(self._rows):
            self._rows = self._next()
        return taken

    def _next(self) -> FunctionRows:
        for batch in self._batches:
            group = _looked_up(self._group, batch.column("group"))
            kept = group >= 0
            if kept.any():
                function = _looked_up(self._function, batch.column("function"))
                values = np.stack([batch.column(name).to_numpy()[kept] for name in VALUES])
                return FunctionRows(function[kept], group[kept], values)
        nothing = np.zeros(0, np.int64)
        return FunctionRows(nothing, nothing, np.zeros((len(VALUES), 0), np.int64))


def damaged_sums() -> TdprofError:
    """For sums that are not what is written as such."""
    return TdprofError("sums of the store are damaged", hint="remove its folder 'sums', then tdprof fleet compact")


def _looked_up(numbers: I64, column: pa.Array) -> I64:
    """Raises TdprofError for rows that name what the file has not."""
    rows = column.to_numpy()
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(numbers):
        raise damaged_sums()
    return np.asarray(numbers[rows])


def add_streams(streams: Sequence[RowStream], note: Callable[[FunctionRows], None]) -> None:
    """Add rows of several files up, function after function, so that no more is held than a batch of each."""
    while True:
        lasts = [last for stream in streams if (last := stream.last) is not None]
        if not lasts:
            return
        # Of the function that a batch ends with, more may come.
        parts = [part for stream in streams if len(part := stream.take(min(lasts)))]
        if not parts:
            parts = [_all_of(stream, min(lasts)) for stream in streams if stream.last is not None]
        note(
            add_rows(
                np.concatenate([part.function for part in parts]),
                np.concatenate([part.group for part in parts]),
                np.concatenate([part.values for part in parts], axis=1),
            )
        )


def _all_of(stream: RowStream, function: int) -> FunctionRows:
    """All rows of a function, of which more batches than one may be full."""
    parts = [stream.take(function + 1)]
    while len(parts[-1]):
        parts.append(stream.take(function + 1))
    return FunctionRows(
        np.concatenate([part.function for part in parts]),
        np.concatenate([part.group for part in parts]),
        np.concatenate([part.values for part in parts], axis=1),
    )
