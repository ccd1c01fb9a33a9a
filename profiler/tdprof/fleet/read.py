"""Roll-ups read back and added up: by host, event and function."""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.errors import TdprofError
from tdprof.fleet.selection import Chosen
from tdprof.fleet.store import Stem, Store
from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import FleetFunction, FunctionCounts, SetAside, Stratum
from tdprof.text import few, plural

_FILES_AT_ONCE = 64  # whose rows are added up together
_LARGEST_SUM = 2**62
FUNCTION_KEYS = ["module", "function", "file", "is_kernel", "is_ambiguous"]
_VALUES = ["self_weight", "total_weight", "self_samples", "total_samples"]


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording in a store: its place, and a row for each of its events."""

    stem: Stem
    events: Sequence[dict[str, object]]

    @property
    def quality(self) -> tuple[int, int, str]:
        """Of two roll-ups of one recording the one where this is greater is used, whatever came first."""
        samples, known = (sum(int(row[name]) for row in self.events) for name in ("samples", "known_samples"))  # type: ignore[call-overload]
        return samples, known, self.stem.content


def read_recordings(store: Store, chosen: Chosen) -> list[Recording]:
    """The recordings that are meant, each once.

    Raises:
        TdprofError: a roll-up is missing or damaged.
    """
    best: dict[str, Recording] = {}
    for recording in _all_of(store, chosen):
        other = best.get(recording.stem.recording)
        if other is None or recording.quality > other.quality:
            best[recording.stem.recording] = recording
    kept = [each for each in best.values() if chosen.takes(each.stem, each.events[0])]
    return sorted(kept, key=lambda each: each.stem)


def superseded(store: Store) -> list[Stem]:
    """The roll-ups of recordings of which the store has a better one."""
    by_recording: dict[str, list[Stem]] = {}
    for stem in store.stems():
        by_recording.setdefault(stem.recording, []).append(stem)
    found = []
    for stems in by_recording.values():
        if len(stems) > 1:
            ranked = sorted((_read(store, stem) for stem in stems), key=lambda each: each.quality)
            found += [each.stem for each in ranked[:-1]]
    return found


def _all_of(store: Store, chosen: Chosen) -> Iterator[Recording]:
    for stem in store.stems():
        if chosen.may_take(stem):
            yield _read(store, stem)


def _read(store: Store, stem: Stem) -> Recording:
    rows = store.read("recordings", stem).to_pylist()
    if not rows:
        raise TdprofError(f"the roll-up of {stem.host_name} of {stem.date} is empty", hint="tdprof fleet check")
    return Recording(stem, rows)


def strata_of(recordings: Sequence[Recording]) -> list[Stratum]:
    """Every event on every kind of core, by core and event."""
    rows: dict[tuple[str, str], list[tuple[str, dict[str, object]]]] = {}
    for each in recordings:
        for row in each.events:
            rows.setdefault((each.stem.core_name, str(row["event"])), []).append((each.stem.host_name, row))
    return [_stratum(core, event, rows[core, event]) for core, event in sorted(rows)]


def _stratum(core: str, event: str, rows: Sequence[tuple[str, dict[str, object]]]) -> Stratum:
    hosts = sorted({host for host, _ in rows})
    index = {host: number for number, host in enumerate(hosts)}
    sums = {name: [0] * len(hosts) for name in ("samples", "weight", "duration_ns", "counted")}
    squares = [0.0] * len(hosts)
    for host, row in rows:
        for name, values in sums.items():
            told = row["weight"] if row[name] is None else row[name]  # not counted: what the samples stand for
            values[index[host]] += int(told)  # type: ignore[call-overload]
        if row["effective_samples"]:
            squares[index[host]] += float(row["weight"]) ** 2 / float(row["effective_samples"])  # type: ignore[arg-type]
    if max(*sums["weight"], *sums["counted"], 0) > _LARGEST_SUM:
        raise TdprofError(
            f"{event} of one host adds up to more than can be counted", hint="a shorter time with --since"
        )
    weight = np.array(sums["weight"], np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where(np.array(squares) > 0, weight**2 / np.array(squares), 0)
    return Stratum(
        core=core,
        event=event,
        unit=str(rows[0][1]["unit"]),
        hosts=hosts,
        recordings=len(rows),
        seconds=np.array(sums["duration_ns"], np.float64) / 1e9,
        weight=weight,
        counted=np.array(sums["counted"], np.float64),
        samples=np.array(sums["samples"], np.int64),
        effective=effective,
    )


def count_functions(store: Store, recordings: Sequence[Recording], strata: Sequence[Stratum]) -> list[FunctionCounts]:
    """The functions of each stratum, whose recordings these are.

    Raises:
        TdprofError: a roll-up is missing or damaged.
    """
    wanted = {(stratum.core, stratum.event) for stratum in strata}
    parts: list[pa.Table] = []
    added = None
    for recording in recordings:
        events = {str(row["event"]) for row in recording.events} & {
            event for core, event in wanted if core == recording.stem.core_name
        }
        if not events:
            continue
        table = store.read("functions", recording.stem, ["event", *FUNCTION_KEYS, *_VALUES])
        table = table.filter(pa.compute.is_in(table["event"].cast(pa.string()), pa.array(sorted(events))))
        parts.append(_with_host(table, recording.stem))
        if len(parts) == _FILES_AT_ONCE:
            added, parts = _add_up([*([added] if added else []), *parts]), []
    if added or parts:
        added = _add_up([*([added] if added else []), *parts])
    return [_counts(added, stratum) for stratum in strata]


def _with_host(table: pa.Table, stem: Stem) -> pa.Table:
    table = table.cast(
        pa.schema(
            [
                (name, pa.string() if name in ("event", *FUNCTION_KEYS[:3]) else kind)
                for name, kind in zip(table.column_names, table.schema.types, strict=True)
            ]
        )
    )
    modules = pa.array([posixpath.basename(path) for path in table["module"].to_pylist()], pa.string())
    table = table.set_column(table.column_names.index("module"), "module", modules)
    for name, value in (("core", stem.core_name), ("host", stem.host_name)):
        table = table.append_column(name, pa.array([value] * len(table), pa.string()))
    return table


def _add_up(tables: Sequence[pa.Table]) -> pa.Table:
    keys = ["core", "event", "host", *FUNCTION_KEYS]
    grouped = pa.concat_tables(tables).group_by(keys, use_threads=False)
    summed = grouped.aggregate([(name, "sum") for name in _VALUES])
    return summed.rename_columns([name.removesuffix("_sum") for name in summed.column_names]).select([*keys, *_VALUES])


def _counts(table: pa.Table | None, stratum: Stratum) -> FunctionCounts:
    nothing, empty = np.zeros(0, np.int64), np.zeros(0)
    if table is None:
        return FunctionCounts([], nothing, nothing, empty, empty, nothing, nothing)
    compute = pa.compute
    mine = table.filter(
        compute.and_(compute.equal(table["core"], stratum.core), compute.equal(table["event"], stratum.event))
    )
    keys = list(zip(*(mine[name].to_pylist() for name in FUNCTION_KEYS), strict=True))
    functions = fleet_functions(keys)
    distinct = sorted(set(functions), key=lambda each: (each.module, each.name, each.file, each.is_kernel))
    number = {function: i for i, function in enumerate(distinct)}
    host_number = {host: i for i, host in enumerate(stratum.hosts)}
    function = np.array([number[each] for each in functions], np.int64)
    host = np.array([host_number[each] for each in mine["host"].to_pylist()], np.int64)
    pair, row = np.unique(function * len(stratum.hosts) + host, return_inverse=True)
    sums = {name: _sum_by(row, mine[name].to_numpy(), len(pair)) for name in _VALUES}
    return FunctionCounts(
        functions=distinct,
        function=pair // len(stratum.hosts),
        host=pair % len(stratum.hosts),
        self_weight=sums["self_weight"].astype(np.float64),
        total_weight=sums["total_weight"].astype(np.float64),
        self_samples=sums["self_samples"],
        total_samples=sums["total_samples"],
    )


def fleet_functions(keys: Sequence[tuple[str, str, str, bool, bool]]) -> list[FleetFunction]:
    """What functions of all hosts together are.

    Args:
        keys: of each, the base name of its module, and the rest of ``FUNCTION_KEYS``.
    """
    ambiguous = {(module, name) for module, name, _, _, is_ambiguous in keys if is_ambiguous}
    return [
        FleetFunction(module, name, posixpath.basename(file) if (module, name) in ambiguous else "", is_kernel)
        for module, name, file, is_kernel, _ in keys
    ]


def _sum_by(row: I64, values: I64, n: int) -> I64:
    sums = np.zeros(n, np.int64)
    np.add.at(sums, row, values)
    return sums


def what_is_missing(store: Store, recordings: Sequence[Recording]) -> SetAside:
    """What these recordings' answers do not hold, for every answer to say."""
    notes = []
    if rejected := store.rejections():
        names = [posixpath.basename(each.source) or each.source for each in rejected]
        notes.append(f"{plural(len(rejected), 'capture', 's')} set aside, not counted here: {few(names)}")
    lost = sum(int(each.events[0]["lost_samples"]) for each in recordings)  # type: ignore[call-overload]
    if lost:
        notes.append(f"{plural(lost, 'sample', 's')} were lost while recording")
    return SetAside(notes, len(rejected))


def rates(values: F64, host: I64, stratum: Stratum) -> F64:
    """Counts of some hosts as events a second."""
    return np.asarray(values / stratum.seconds[host])
