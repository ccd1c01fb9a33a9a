"""Sums over spans of days: written once a day is over, read in place of the roll-ups that they add up."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tdprof.fleet.counts import (
    VALUES,
    FunctionKey,
    FunctionRows,
    KeyedRows,
    RowStream,
    add_streams,
    damaged_sums,
    renumber,
)
from tdprof.fleet.recordings import EventCounts
from tdprof.fleet.schema import FUNCTION_NAMES, FUNCTION_SUMS, HOST_SUMS
from tdprof.fleet.selection import Chosen
from tdprof.fleet.shared_texts import to_rows, to_values
from tdprof.fleet.spans import Span
from tdprof.fleet.store import Store, to_parquet
from tdprof.fleet.stored_table import StoredTable
from tdprof.model.fleet import Stratum
from tdprof.values import dataclass

_ROWS = 1 << 16  # of a row group, and at once in memory
_RANGES = b"tdprof.rows"  # in the hosts' metadata: first row and end of each event's functions
_LARGEST_SUM = 2**62
_COUNTS = tuple(field.name for field in fields(EventCounts))


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """Recordings of one host that conditions cannot tell apart."""

    core: str
    host: str
    kernel: str
    catalog: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChosenSums:
    """The sums of a span, and those of its groups that are meant.

    Attributes:
        groups: by their numbers in the file, which has so many: ``size``.
        rows: a row for each event of these.
        ranges: of each event, the first of its functions' rows and the end of them.
    """

    span: Span
    name: str
    groups: Mapping[int, Group]
    size: int
    rows: Sequence[tuple[int, EventCounts]]
    ranges: Mapping[str, tuple[int, int]]

    def counts(self) -> Iterator[EventCounts]:
        """What they have of each event."""
        return (counts for _, counts in self.rows)


def choose_sums(store: Store, span: Span, name: str, chosen: Chosen) -> ChosenSums:
    """The groups of a span that a question is about, which asks for the span as a whole.

    Raises:
        TdprofError: it is missing or damaged.
    """
    with store.open_sums("hosts", span, name) as stored:
        table = stored.read()
    groups: dict[int, Group] = {}
    rows = []
    for row in to_rows(table):
        group = Group(row["core"], row["host"], row["kernel"], row["catalog"], tuple(row["labels"]))
        if not chosen.holds(group.core, group.host, row):
            continue
        groups[row["group"]] = group
        counts = {name: row[name] for name in _COUNTS}
        rows.append((row["group"], EventCounts(**{**counts, "squares": int(counts["squares"])})))
    size = 1 + max(table["group"].to_pylist(), default=-1)
    if size > len(table):
        raise damaged_sums()
    return ChosenSums(span, name, groups, size, rows, _ranges_of(table.schema.metadata or {}))


def _ranges_of(metadata: Mapping[bytes, bytes]) -> dict[str, tuple[int, int]]:
    try:
        told = json.loads(metadata[_RANGES])
        return {str(event): (int(start), int(end)) for event, (start, end) in told.items()}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise damaged_sums() from error


def add_chosen(store: Store, sums: Sequence[ChosenSums], stratum: Stratum) -> KeyedRows:
    """The functions of an event on the hosts of a stratum.

    Raises:
        TdprofError: a file is missing or damaged.
    """
    host = {name: row for row, name in enumerate(stratum.hosts)}
    columns = [
        # Of the others of that kind the event was not measured.
        {n: host[group.host] for n, group in each.groups.items() if group.core == stratum.core and group.host in host}
        for each in sums
    ]
    keys = sorted({key for each in sums for key in _read_names(store, each)})
    parts: list[FunctionRows] = []
    _add_event(store, sums, stratum.event, keys, columns, parts.append)
    return _joined(keys, parts)


def _joined(keys: Sequence[FunctionKey], parts: list[FunctionRows]) -> KeyedRows:
    """The rows with the names of those functions that have any."""
    if not parts:
        nothing = np.zeros(0, np.int64)
        return KeyedRows(keys, FunctionRows(nothing, nothing, np.zeros((4, 0), np.int64)))
    rows = concatenated(parts)
    is_first = np.ones(len(rows), bool)
    is_first[1:] = rows.function[1:] != rows.function[:-1]
    used = rows.function[is_first].tolist()
    return KeyedRows([keys[row] for row in used], FunctionRows(np.cumsum(is_first) - 1, rows.group, rows.values))


def concatenated(parts: list[FunctionRows]) -> FunctionRows:
    """Rows one after the other. The list is empty then: parts go as they are copied, so that nothing is held twice."""
    rows = sum(map(len, parts))
    function, group = np.empty(rows, np.int64), np.empty(rows, np.int64)
    values = np.empty((len(VALUES), rows), np.int64)
    parts.reverse()
    at = 0
    while parts:
        part = parts.pop()
        mine = slice(at, at + len(part))
        function[mine], group[mine], values[:, mine] = part.function, part.group, part.values
        at = mine.stop
    return FunctionRows(function, group, values)


def _read_names(store: Store, sums: ChosenSums) -> list[FunctionKey]:
    with store.open_sums("names", sums.span, sums.name) as stored:
        table = stored.read()
    return list(zip(*(to_values(table[name]) for name in FUNCTION_NAMES.names), strict=True))


def _add_event(
    store: Store,
    sums: Sequence[ChosenSums],
    event: str,
    keys: Sequence[FunctionKey],
    columns: Sequence[Mapping[int, int]],
    note: Callable[[FunctionRows], None],
) -> None:
    """Add the functions of an event up.

    Args:
        keys: all functions, in order.
        columns: for each span, the groups that are meant by their numbers in the file, and the reader's numbers.
    """
    with contextlib.ExitStack() as stack:
        streams = []
        for each, column in zip(sums, columns, strict=True):
            if event not in each.ranges or not column:
                continue
            (function,) = renumber([_read_names(store, each)], keys)
            group = np.full(each.size, -1, np.int64)
            group[list(column)] = list(column.values())
            stored = stack.enter_context(store.open_sums("functions", each.span, each.name))
            streams.append(RowStream(_batches(stored, *each.ranges[event]), function, group))
        add_streams(streams, note)


def _batches(stored: StoredTable, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Some rows of a file, a row group at a time."""
    first = 0
    for number, rows in enumerate(stored.group_rows()):
        if first < end and first + rows > start:
            table = stored.read_group(number)
            yield from table.slice(max(start - first, 0), end - max(first, start)).to_batches()
        first += rows


class SumsWriter:
    """Of one span: the functions of one event after the other, then the hosts.

    Args:
        groups: in order.
        keys: the functions, in order.
    """

    def __init__(self, store: Store, span: Span, name: str, groups: Sequence[Group], keys: Sequence[FunctionKey]):
        self._store, self._span, self._name = store, span, name
        self._number = {group: row for row, group in enumerate(groups)}
        self._keys = keys
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, FUNCTION_SUMS, compression="zstd", write_page_checksum=True)
        self._rows = 0
        self._ranges: dict[str, tuple[int, int]] = {}

    def write_event(self, event: str, rows: Iterable[FunctionRows]) -> None:
        """The functions of an event, in order."""
        first = self._rows
        for part in _in_large_pieces(rows):
            columns = [part.function.astype(np.int32), part.group.astype(np.int32), *part.values]
            table = pa.table([pa.array(column) for column in columns], schema=FUNCTION_SUMS)
            self._writer.write_table(table, row_group_size=_ROWS)
            self._rows += len(part)
        self._ranges[event] = (first, self._rows)

    def finish(self, rows: Mapping[tuple[Group, str], EventCounts]) -> None:
        """Put it into the store.

        Args:
            rows: of each group and event.
        """
        self._writer.close()
        names = [[key[column] for key in self._keys] for column in range(len(FUNCTION_NAMES))]
        names_table = pa.table(
            [pa.array(column, field.type) for column, field in zip(names, FUNCTION_NAMES, strict=True)],
            schema=FUNCTION_NAMES,
        )
        told = [
            {**asdict(group), **asdict(counts), "labels": list(group.labels), "group": self._number[group]}
            for (group, _), counts in sorted(rows.items())
        ]
        columns = {field.name: pa.array([row[field.name] for row in told], field.type) for field in HOST_SUMS}
        hosts = pa.table(columns, HOST_SUMS).replace_schema_metadata({_RANGES: json.dumps(self._ranges).encode()})
        self._store.write_sums("names", self._span, self._name, to_parquet(names_table, FUNCTION_NAMES))
        self._store.write_sums("functions", self._span, self._name, self._sink.getvalue().to_pybytes())
        self._store.write_sums("hosts", self._span, self._name, to_parquet(hosts, HOST_SUMS))


def _in_large_pieces(rows: Iterable[FunctionRows]) -> Iterator[FunctionRows]:
    """The same rows, in as few pieces as a row group is large: each costs who reads it some time."""
    waiting: list[FunctionRows] = []
    for part in rows:
        waiting.append(part)
        if sum(map(len, waiting)) >= _ROWS:
            yield concatenated(waiting)
            waiting = []
    if waiting:
        yield concatenated(waiting)


def add_event_counts(rows: Iterable[tuple[Group, EventCounts]]) -> dict[tuple[Group, str], EventCounts]:
    """What each group has of each event."""
    found: dict[tuple[Group, str], EventCounts] = {}
    for group, counts in rows:
        key = group, counts.event
        found[key] = _added(found[key], counts) if key in found else counts
    return found


def _added(a: EventCounts, b: EventCounts) -> EventCounts:
    names = ("recordings", "first", "samples", "weight", "counted", "duration_ns", "squares", "lost_samples")
    return replace(a, unit=min(a.unit, b.unit), **{name: getattr(a, name) + getattr(b, name) for name in names})


def join_sums(store: Store, span: Span, name: str, parts: Sequence[tuple[Span, str]]) -> bool:
    """Write the sums of a span that is made of shorter ones; returns whether they can be kept.

    Raises:
        TdprofError: a file is missing or damaged, or the store cannot be written to.
    """
    sums = [choose_sums(store, *part, Chosen()) for part in parts]
    rows = add_event_counts((each.groups[number], counts) for each in sums for number, counts in each.rows)
    if is_too_much(rows.values()):
        return False
    groups = sorted({group for each in sums for group in each.groups.values()})
    number = {group: row for row, group in enumerate(groups)}
    columns = [{own: number[group] for own, group in each.groups.items()} for each in sums]
    keys = sorted({key for each in sums for key in _read_names(store, each)})
    writer = SumsWriter(store, span, name, groups, keys)
    for event in sorted({event for each in sums for event in each.ranges}):
        parts_of: list[FunctionRows] = []
        _add_event(store, sums, event, keys, columns, parts_of.append)
        writer.write_event(event, parts_of)
    writer.finish(rows)
    return True


def is_too_much(rows: Iterable[EventCounts]) -> bool:
    """Whether something adds up to more than a column holds: such sums are not kept."""
    return any(
        max(row.weight, row.counted, row.duration_ns, row.samples, row.squares >> 62) > _LARGEST_SUM for row in rows
    )
