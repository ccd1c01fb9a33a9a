"""Quantiles of SPE's latencies over the hosts of a store, from histograms that are read a few files at a time.

Memory grows with functions, distinct latencies and hosts that have a function, not with recordings: the files are read
twice, once for the histograms of all hosts together, once for what each host has below their quantiles.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.errors import TdprofError
from tdprof.fleet.counts import FUNCTION_KEYS, FunctionKey, number_keys
from tdprof.fleet.nothing_found import nothing_found
from tdprof.fleet.quantiles import HostParts, Pooled, estimate_intervals, find_quantiles
from tdprof.fleet.read import fleet_functions, read_parts, what_is_missing
from tdprof.fleet.recordings import Recording, only
from tdprof.fleet.selection import Chosen
from tdprof.fleet.shared_texts import is_any_of
from tdprof.fleet.store import Stem, Store
from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import FleetFunction, FleetLatencies, SetAside
from tdprof.model.spe import QUANTILES
from tdprof.text import plural
from tdprof.values import dataclass

_FILES_AT_ONCE = 64
_CYCLES_BITS = 16
_COUNTER_BITS = (12, 16)  # of SPE's latency counters, which stop at their largest value (PMSIDR_EL1.CountSize)
_LARGEST_SUM = 2.0**62


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of the roll-ups of one kind of core.

    Attributes:
        keys: names of functions; ``function``: int64[n], which.
        host, cycles, records: int64[n].
        weight: float64[n], operations a second that the records stand for.
    """

    keys: Sequence[FunctionKey]
    function: I64
    host: I64
    cycles: I64
    records: I64
    weight: F64


class _Sums:
    """Weights and records by a number, added up as they come."""

    def __init__(self) -> None:
        self.number, self.records = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.weight = np.zeros(0)

    def add(self, number: I64, weight: F64, records: I64) -> None:
        numbers = np.concatenate([self.number, number])
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        first = np.flatnonzero(np.diff(numbers, prepend=-1))
        self.number = numbers[first]
        if len(first):
            self.weight = np.add.reduceat(np.concatenate([self.weight, weight])[order], first)
            self.records = np.add.reduceat(np.concatenate([self.records, records])[order], first)


def find_latencies(store: Store, chosen: Chosen, latency: str) -> tuple[list[FleetLatencies], SetAside]:
    """The quantiles of one latency, by kind of core, and what they do not hold.

    Args:
        latency: one of `tdprof.model.spe.LATENCIES`.

    Raises:
        TdprofError: no recording that is meant has SPE records, or a roll-up is missing or damaged.
    """
    parts = read_parts(store, chosen, each_recording=True)
    if not parts.recordings:
        raise nothing_found(store, chosen)
    stems = store.stems_with("spe_latency")
    by_core: dict[str, list[Recording]] = {}
    for each in parts.recordings:
        if each.stem in stems:
            by_core.setdefault(each.stem.core_name, []).append(each)
    lacking = sum(each.lacks_spe for each in parts.recordings)
    left_out = f"SPE data of {plural(lacking, 'recording', 's')} could not be read, and is not counted here"
    if not by_core:
        raise TdprofError(
            f"{store.place} has no SPE records of what was asked for{f'; {left_out}' if lacking else ''}",
            hint="tdprof record --spe -- CMD, then tdprof fleet add --again",
        )
    found = [_Latencies(store, core, by_core[core], latency).find() for core in sorted(by_core)]
    missing = what_is_missing(store, parts)
    notes = [*missing.notes, *([left_out] if lacking else [])]
    return [each for each in found if each], replace(missing, notes=notes)


class _Latencies:
    """Those of one kind of core."""

    def __init__(self, store: Store, core: str, recordings: Sequence[Recording], latency: str) -> None:
        self._store, self._core, self._latency = store, core, latency
        self._recordings: dict[Stem, list[str]] = {}
        for each in recordings:
            self._recordings.setdefault(each.stem, []).append(each.recording)
        self._stems = sorted(self._recordings)
        self._hosts = sorted({stem.host_name for stem in self._stems})
        self._host = {name: number for number, name in enumerate(self._hosts)}
        self._row_of: dict[FunctionKey, int] = {}

    def find(self) -> FleetLatencies | None:
        """None if no record has the latency."""
        seconds, recordings = self._seconds()
        pooled, by_host = _Sums(), _Sums()
        for rows in self._read(seconds):
            function = self._numbered(rows.keys)[rows.function]
            pooled.add(function << _CYCLES_BITS | rows.cycles, rows.weight, rows.records)
            by_host.add(function * len(self._hosts) + rows.host, rows.weight, rows.records)
        if not len(pooled.number):
            return None
        functions, row_of = self._functions()
        pooled, by_host = self._by_function(pooled, by_host, row_of)
        histograms = Pooled(pooled.number >> _CYCLES_BITS, pooled.number & ((1 << _CYCLES_BITS) - 1), pooled.weight)
        n = len(functions)
        value = np.stack([find_quantiles(histograms, np.full(n, share)) for share in QUANTILES], axis=1)
        below = np.zeros((len(by_host.number), len(QUANTILES)))
        for rows in self._read(seconds):
            function = row_of[self._numbered(rows.keys)][rows.function]
            at = np.searchsorted(by_host.number, function * len(self._hosts) + rows.host)
            for column in range(len(QUANTILES)):
                is_below = rows.cycles <= value[function, column]
                below[:, column] += np.bincount(at[is_below], rows.weight[is_below], len(below))
        row, host = np.divmod(by_host.number, len(self._hosts))
        parts = HostParts(row, host, by_host.weight, by_host.records, below)
        known = estimate_intervals(histograms, parts, QUANTILES, n)
        operations = np.bincount(row, by_host.weight, n)
        order = np.lexsort((np.arange(n), -operations))
        return FleetLatencies(
            core=self._core,
            latency=self._latency,
            hosts=self._hosts,
            recordings=recordings,
            shares=QUANTILES,
            functions=[functions[at] for at in order.tolist()],
            operations=(operations / operations.sum())[order],
            records=np.bincount(row, by_host.records, n).astype(np.int64)[order],
            hosts_seen=np.bincount(row, minlength=n)[order],
            value=value[order],
            low=known.low[order],
            high=known.high[order],
            design_effect=known.design_effect[order],
            is_between=known.is_between[order],
            saturated_cycles=_saturated(int(histograms.value.max())),
        )

    def _tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Columns of the roll-ups, some files at a time, with each row's host."""
        for start in range(0, len(self._stems), _FILES_AT_ONCE):
            tables = []
            for stem in self._stems[start : start + _FILES_AT_ONCE]:
                read = ["recording", "latency", *columns]
                table = only(self._store.read("spe_latency", stem, read), self._recordings[stem])
                host = np.full(len(table), self._host[stem.host_name], np.int64)
                tables.append(table.append_column("host", pa.array(host)))
            table = pa.concat_tables(tables).unify_dictionaries()
            yield table

    def _seconds(self) -> tuple[F64, int]:
        """float64[hosts]: for how long SPE was on on each, and of how many recordings."""
        duration: dict[str, tuple[int, int]] = {}
        for table in self._tables(["duration_ns"]):
            found = table.select(["recording", "host", "duration_ns"]).group_by(["recording", "host"])
            for row in found.aggregate([("duration_ns", "max")]).to_pylist():
                duration[row["recording"]] = row["host"], row["duration_ns_max"]
        seconds = np.zeros(len(self._hosts))
        for host, ns in duration.values():
            seconds[host] += ns / 1e9
        return seconds, len(duration)

    def _read(self, seconds: F64) -> Iterator[_Rows]:
        for table in self._tables([*FUNCTION_KEYS, "cycles", "records", "period"]):
            mine = table.filter(is_any_of(table["latency"], {self._latency}))
            if not len(mine):
                continue
            keys, function = number_keys(mine)
            host, cycles, records, period = (
                mine[name].to_numpy().astype(np.int64) for name in ("host", "cycles", "records", "period")
            )
            weight = records.astype(np.float64) * period
            if not (0 <= cycles.min() <= cycles.max() < 1 << _CYCLES_BITS and weight.min() > 0) or (
                not weight.sum() < _LARGEST_SUM
            ):
                hint = f"tdprof fleet check {shlex.quote(self._store.place)}"
                raise TdprofError(f"SPE roll-ups of {self._core} are damaged", hint=hint)
            yield _Rows(keys, function, host, cycles, records, weight / seconds[host])

    def _numbered(self, keys: Sequence[FunctionKey]) -> I64:
        return np.array([self._row_of.setdefault(key, len(self._row_of)) for key in keys], np.int64)

    def _functions(self) -> tuple[list[FleetFunction], I64]:
        """The functions in order, and of each name which it is."""
        names = fleet_functions(list(self._row_of))
        distinct = sorted(set(names), key=lambda each: (each.module, each.name, each.file, each.is_kernel))
        number = {function: row for row, function in enumerate(distinct)}
        return distinct, np.array([number[name] for name in names], np.int64)

    def _by_function(self, pooled: _Sums, by_host: _Sums, row_of: I64) -> tuple[_Sums, _Sums]:
        """The same by function, where several names are one."""
        hosts, cycles = len(self._hosts), (1 << _CYCLES_BITS) - 1
        histograms, totals = _Sums(), _Sums()
        number = row_of[pooled.number >> _CYCLES_BITS] << _CYCLES_BITS | pooled.number & cycles
        histograms.add(number, pooled.weight, pooled.records)
        totals.add(row_of[by_host.number // hosts] * hosts + by_host.number % hosts, by_host.weight, by_host.records)
        return histograms, totals


def _saturated(largest: int) -> float:
    """The value at which counters of this size stop, if any did."""
    return float(largest) if largest in {(1 << bits) - 1 for bits in _COUNTER_BITS} else float("inf")
