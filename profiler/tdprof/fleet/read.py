"""What a question is about, read back and added up by host, event and function: sums where a store has them."""

import functools
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.errors import TdprofError
from tdprof.fleet.counts import (
    FUNCTION_KEYS,
    VALUES,
    FunctionKey,
    FunctionRows,
    KeyedRows,
    add_keyed,
    add_rows,
    read_keyed,
)
from tdprof.fleet.recordings import EventCounts, Recording, best_of, only, recordings_in
from tdprof.fleet.selection import Chosen
from tdprof.fleet.shared_texts import is_any_of, numbers_of
from tdprof.fleet.spans import Span, cover_days, day_of, plan_spans
from tdprof.fleet.store import Stem, Store
from tdprof.fleet.sums import ChosenSums, add_chosen, choose_sums
from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import FleetFunction, FunctionCounts, SetAside, Stratum
from tdprof.text import few, plural, printable
from tdprof.values import dataclass

_FILES_AT_ONCE = 64  # whose rows are added up together
_LARGEST_SUM = 2**62


@dataclass(frozen=True, slots=True)
class Parts:
    """The recordings that a question is about: one by one, or in sums of days; none in both.

    Attributes:
        recordings: by place.
        sums: of spans of days.
    """

    recordings: Sequence[Recording]
    sums: Sequence[ChosenSums] = ()

    def counts(self) -> Iterator[EventCounts]:
        """What they have of each event."""
        for each in self.recordings:
            yield from each.counts()
        for sums in self.sums:
            yield from sums.counts()

    def identities(self) -> set[object]:
        """What tells whether recordings are in two answers, where both are read alike."""
        return {each.recording for each in self.recordings} | {
            (sums.span, group) for sums in self.sums for group in sums.groups
        }


def read_parts(store: Store, chosen: Chosen, *, each_recording: bool = False) -> Parts:
    """What is meant, each recording once.

    Args:
        each_recording: do without sums.

    Raises:
        TdprofError: a roll-up is missing or damaged.
    """
    stems = list(store.stems())
    spans = [] if each_recording or chosen.has_builds else _usable_spans(store, stems, chosen)
    summed = {day for span in spans for day in range(span[0].first, span[0].first + span[0].days)}
    left = [stem for stem in stems if chosen.may_take(stem) and _day(stem.date) not in summed]
    best = best_of(each for stem in left for each in recordings_in(store, stem))
    kept = [each for each in best if chosen.takes(each.stem, each.events[0])]
    recordings = sorted(kept, key=lambda each: (each.stem, each.recording))
    return Parts(recordings, [choose_sums(store, span, name, chosen) for span, name in spans])


def _usable_spans(store: Store, stems: Sequence[Stem], chosen: Chosen) -> list[tuple[Span, str]]:
    """Spans whose sums are those of what the store has now, and that are meant as a whole."""
    there = store.sums()
    if not there:
        return []
    files: dict[int, list[str]] = {}
    for stem in stems:
        if (day := _day(stem.date)) is not None:
            files.setdefault(day, []).append(stem.path)
    planned = {span: sources.digest for span, sources in plan_spans(files).items()}
    usable = {span for span, name in there if planned.get(span) == name}
    wanted = [day for day in files if chosen.takes_all_of(Span(day, 1))]
    return [(span, planned[span]) for span in cover_days(wanted, files, usable)]


@functools.cache
def _day(date: str) -> int | None:
    try:
        return day_of(date)
    except ValueError:
        return None


def strata_of(counts: Iterable[EventCounts]) -> list[Stratum]:
    """Every event on every kind of core, by core and event."""
    rows: dict[tuple[str, str], list[EventCounts]] = {}
    for each in counts:
        rows.setdefault((each.core, each.event), []).append(each)
    return [_stratum(core, event, rows[core, event]) for core, event in sorted(rows)]


def _stratum(core: str, event: str, rows: Sequence[EventCounts]) -> Stratum:
    hosts = sorted({row.host for row in rows})
    index = {host: number for number, host in enumerate(hosts)}
    sums = {name: [0] * len(hosts) for name in ("samples", "weight", "duration_ns", "counted", "squares")}
    for row in rows:
        for name, values in sums.items():
            values[index[row.host]] += getattr(row, name)
    if max(*sums["weight"], *sums["counted"], 0) > _LARGEST_SUM:
        raise TdprofError(
            f"{event} of one host adds up to more than can be counted", hint="a shorter time with --since"
        )
    weight, squares = np.array(sums["weight"], np.float64), np.array(sums["squares"], np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where(squares > 0, weight**2 / squares, 0)
    return Stratum(
        core=core,
        event=event,
        unit=min(row.unit for row in rows),
        hosts=hosts,
        recordings=sum(row.recordings for row in rows),
        seconds=np.array(sums["duration_ns"], np.float64) / 1e9,
        weight=weight,
        counted=np.array(sums["counted"], np.float64),
        samples=np.array(sums["samples"], np.int64),
        effective=effective,
    )


def count_functions(store: Store, parts: Parts, strata: Sequence[Stratum]) -> list[FunctionCounts]:
    """The functions of each stratum, which is of these parts.

    Raises:
        TdprofError: a roll-up is missing or damaged.
    """
    return count_sides(store, [(parts, strata)])[0]


def count_sides(store: Store, sides: Sequence[tuple[Parts, Sequence[Stratum]]]) -> list[list[FunctionCounts]]:
    """The functions of each stratum of several sides, on all of which a function is known by the same name.

    Raises:
        TdprofError: a roll-up is missing or damaged.
    """
    found = [_read_rows(store, parts, strata) for parts, strata in sides]
    keys = list({key for rows in found for parts in rows for part in parts for key in part.keys})
    named = dict(zip(keys, fleet_functions(keys), strict=True))
    return [
        [_counts(parts, stratum, named) for stratum, parts in zip(strata, rows, strict=True)]
        for (_, strata), rows in zip(sides, found, strict=True)
    ]


def _read_rows(store: Store, parts: Parts, strata: Sequence[Stratum]) -> list[list[KeyedRows]]:
    """What was counted of each stratum."""
    found: list[list[KeyedRows]] = [[] for _ in strata]
    by_stem: dict[Stem, list[str]] = {}
    for each in parts.recordings:
        by_stem.setdefault(each.stem, []).append(each.recording)
    stems = sorted(by_stem)
    for start in range(0, len(stems), _FILES_AT_ONCE):
        tables = [_functions(store, stem, by_stem[stem]) for stem in stems[start : start + _FILES_AT_ONCE]]
        table = pa.concat_tables(tables).unify_dictionaries()
        for stratum, rows in zip(strata, found, strict=True):
            if part := _rows_of(table, stratum):
                rows[:] = [add_keyed([*rows, part])]
    for stratum, rows in zip(strata, found, strict=True):
        if parts.sums:
            rows.append(add_chosen(store, parts.sums, stratum))
    return found


def _functions(store: Store, stem: Stem, recordings: Sequence[str]) -> pa.Table:
    """The functions' rows of some recordings of a file, with the core kind and host."""
    columns = ["event", *FUNCTION_KEYS, *VALUES]
    table = only(store.read("functions", stem, ["recording", *columns]), recordings).select(columns)
    for name, value in (("core", stem.core_name), ("host", stem.host_name)):
        table = table.append_column(name, pa.array([value] * len(table), pa.string()).dictionary_encode())
    return table


def _rows_of(table: pa.Table, stratum: Stratum) -> KeyedRows | None:
    is_mine = pa.compute.and_(is_any_of(table["core"], {stratum.core}), is_any_of(table["event"], {stratum.event}))
    mine = table.filter(is_mine)
    if not len(mine):
        return None
    row_of = {name: row for row, name in enumerate(stratum.hosts)}
    return read_keyed(mine, numbers_of(mine["host"], row_of))


def _counts(parts: Sequence[KeyedRows], stratum: Stratum, named: Mapping[FunctionKey, FleetFunction]) -> FunctionCounts:
    names = {named[key] for part in parts for key in part.keys}
    distinct = sorted(names, key=lambda each: (each.module, each.name, each.file, each.is_kernel))
    number = {function: row for row, function in enumerate(distinct)}
    rows = []
    for part in parts:
        numbers = np.array([number[named[key]] for key in part.keys], np.int64)
        rows.append((numbers[part.rows.function], part.rows.group, part.rows.values))
    added = _added(rows)
    values = dict(zip(VALUES, added.values, strict=True))
    return FunctionCounts(
        functions=distinct,
        function=added.function,
        host=added.group,
        self_weight=_in_place(values["self_weight"]),
        total_weight=_in_place(values["total_weight"]),
        self_samples=values["self_samples"],
        total_samples=values["total_samples"],
    )


def _in_place(values: I64) -> F64:
    """The same numbers in the same memory, which nobody else has any more: there are millions of them."""
    floats: F64 = values.view(np.float64)
    floats[...] = values
    return floats


def _added(rows: Sequence[tuple[I64, I64, I64]]) -> FunctionRows:
    if not rows:
        nothing = np.zeros(0, np.int64)
        return FunctionRows(nothing, nothing, np.zeros((len(VALUES), 0), np.int64))
    if len(rows) == 1:
        function, group, _ = rows[0]
        is_later = (function[1:] == function[:-1]) & (group[1:] > group[:-1])
        if np.all(is_later | (function[1:] > function[:-1])):
            return FunctionRows(*rows[0])  # in order already, which spares copies of millions of rows
    return add_rows(*(np.concatenate(column, axis=-1) for column in zip(*rows, strict=True)))


def fleet_functions(keys: Sequence[FunctionKey]) -> list[FleetFunction]:
    """What functions of all hosts together are."""
    ambiguous = {(module, name) for module, name, _, _, is_ambiguous in keys if is_ambiguous}
    return [
        FleetFunction(module, name, posixpath.basename(file) if (module, name) in ambiguous else "", is_kernel)
        for module, name, file, is_kernel, _ in keys
    ]


def what_is_missing(store: Store, parts: Parts) -> SetAside:
    """What the answers of these parts do not hold, for every answer to say."""
    notes = []
    if rejected := store.rejections():
        names = [posixpath.basename(each.source) or each.source for each in rejected]
        notes.append(
            f"{plural(len(rejected), 'capture', 's')} set aside, not counted here: {few([*map(printable, names)])}"
        )
    if incomplete := store.incomplete(store.stems()):
        names = [posixpath.basename(each.source) or each.source for each in incomplete]
        notes.append(
            f"of {plural(len(incomplete), 'capture', 's')} not all could be read, or believed: "
            f"{few([*map(printable, names)])}; tdprof fleet check {shlex.quote(printable(store.place))} says what"
        )
    if lost := sum(each.lost_samples for each in parts.counts()):
        notes.append(f"{plural(lost, 'sample', 's')} were lost while recording")
    return SetAside(notes, len(rejected))


def rates(values: F64, host: I64, stratum: Stratum) -> F64:
    """Counts of some hosts as events a second."""
    return np.asarray(values / stratum.seconds[host])
