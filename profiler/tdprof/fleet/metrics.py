"""Metrics of a fleet, of all code and of each function, with intervals over hosts.

A metric is a formula over events, and no share: its error comes from evaluating it again without each host (the
delete-one jackknife), whatever the formula is. Formulas of one kind of core are never applied to another's counts.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tdprof.catalog.choose import find_by_name
from tdprof.catalog.entries import CPU_CYCLES, Metric
from tdprof.errors import TdprofError
from tdprof.fleet.estimate import FEWEST_HOSTS, FEWEST_SAMPLES, freedom_of, half_width, spread_without
from tdprof.fleet.read import Parts, count_functions, rates, strata_of
from tdprof.fleet.recordings import Recording
from tdprof.fleet.store import Store
from tdprof.metrics.formula import evaluate
from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import FleetFunction, FleetMetrics, FunctionCounts, Stratum

_MOST_FUNCTIONS = 1000  # the rest has too few samples for metrics, in any fleet
_ROUNDING = 1e-9  # of hosts that do not differ at all
_CELLS = 1 << 20  # of functions times hosts at once


def estimate_metrics(store: Store, recordings: Sequence[Recording]) -> list[FleetMetrics]:
    """Metrics by kind of core and catalog.

    Raises:
        TdprofError: none was recorded for metrics, or a roll-up is missing or damaged.
    """
    by_catalog: dict[tuple[str, str], list[Recording]] = {}
    for each in recordings:
        if catalog := str(each.events[0]["catalog"]):
            by_catalog.setdefault((each.stem.core_name, catalog), []).append(each)
    if not by_catalog:
        raise TdprofError("no recording was made for metrics", hint="tdprof record --topdown")
    return [_of_catalog(store, mine, *key) for key, mine in sorted(by_catalog.items())]


def _of_catalog(store: Store, recordings: Sequence[Recording], core: str, catalog_name: str) -> FleetMetrics:
    catalog = find_by_name(catalog_name)
    strata = {stratum.event: stratum for stratum in strata_of(Parts(recordings).counts())}
    metrics = [each for each in catalog.metrics.values() if each.events and strata.keys() >= set(each.events)]
    wanted = sorted({event for metric in metrics for event in metric.events} | ({CPU_CYCLES} & strata.keys()))
    if not wanted:
        raise TdprofError(f"the recordings of {core} have no metric's events", hint="tdprof record --topdown")
    counts = dict(
        zip(wanted, count_functions(store, Parts(recordings), [strata[event] for event in wanted]), strict=True)
    )
    leading = CPU_CYCLES if CPU_CYCLES in counts else wanted[0]
    functions, share = _leading(counts[leading], strata[leading])
    rows = {function: row for row, function in enumerate(functions)}
    tables = {event: _Table(strata[event], counts[event], rows) for event in wanted}
    columns = [_column(metric, tables, len(functions)) for metric in metrics]
    value = np.stack([column[0] for column in columns], axis=1)
    half = np.stack([column[1] for column in columns], axis=1)
    samples = np.stack([column[2] for column in columns], axis=1)
    return FleetMetrics(
        core=core,
        catalog=catalog.name,
        metrics=[metric.name for metric in metrics],
        units=[metric.units for metric in metrics],
        hosts=np.array([len(_hosts_of(metric, tables)) for metric in metrics], np.int64),
        program=value[-1],
        program_half_width=half[-1],
        functions=functions,
        share=share,
        value=value[:-1],
        half_width=half[:-1],
        samples=samples[:-1],
    )


def _leading(counts: FunctionCounts, stratum: Stratum) -> tuple[list[FleetFunction], F64]:
    """The functions with the highest self shares, and these."""
    n = len(counts.functions)
    value = rates(counts.self_weight, counts.host, stratum)
    share = np.bincount(counts.function, value, minlength=n) / max(stratum.rate.sum(), 1e-300)
    samples = np.bincount(counts.function, counts.self_samples, minlength=n)
    order = np.lexsort((np.arange(n), -share))
    order = order[samples[order] >= FEWEST_SAMPLES][:_MOST_FUNCTIONS]
    return [counts.functions[row] for row in order.tolist()], share[order]


class _Table:
    """One event's counts a second on each host: of some functions, and last of all code.

    Attributes:
        hosts: by name, each one's column.
        samples: float64[functions + 1], over all hosts.
    """

    def __init__(self, stratum: Stratum, counts: FunctionCounts, rows: Mapping[FleetFunction, int]) -> None:
        self.hosts = {host: column for column, host in enumerate(stratum.hosts)}
        number = np.array([rows.get(each, -1) for each in counts.functions], np.int64)
        row = number[counts.function] if len(number) else counts.function
        kept = row >= 0
        order = np.argsort(row[kept], kind="stable")
        self._row, self._host = row[kept][order], counts.host[kept][order]
        self._value = rates(counts.self_weight[kept][order], self._host, stratum)
        self._all = stratum.counted / stratum.seconds
        self._n = len(rows)
        own = np.bincount(self._row, counts.self_samples[kept][order], minlength=self._n)
        # What was counted exactly needs no samples.
        self.samples = np.append(own, np.inf)

    def block(self, first: int, last: int, columns: Sequence[int]) -> F64:
        """float64[last - first, hosts]: some rows on some hosts."""
        dense = np.zeros((last - first, len(self.hosts)))
        chosen = slice(*np.searchsorted(self._row, [first, last]).tolist())
        dense[self._row[chosen] - first, self._host[chosen]] = self._value[chosen]
        if last > self._n:
            dense[self._n - first] = self._all
        return dense[:, columns]


def _hosts_of(metric: Metric, tables: Mapping[str, _Table]) -> list[str]:
    """The hosts that counted all of a metric's events."""
    named = [tables[event].hosts.keys() for event in metric.events]
    return [host for host in named[0] if all(host in others for others in named)]


def _column(metric: Metric, tables: Mapping[str, _Table], functions: int) -> tuple[F64, F64, I64]:
    """float64[functions + 1] each: a metric, half of its interval, the samples that it rests on; last of all code."""
    hosts = _hosts_of(metric, tables)
    columns = {event: [tables[event].hosts[host] for host in hosts] for event in metric.events}
    n = functions + 1
    value, half = np.full(n, np.nan), np.full(n, np.nan)
    samples = np.min([tables[event].samples for event in metric.events], axis=0)
    if hosts:
        step = max(1, _CELLS // len(hosts))
        for first in range(0, n, step):
            last = min(n, first + step)
            dense = {event: tables[event].block(first, last, columns[event]) for event in metric.events}
            value[first:last], half[first:last] = _with_jackknife(metric, dense)
    is_enough = samples >= FEWEST_SAMPLES
    known = np.where(np.isfinite(samples), samples, 0).astype(np.int64)
    return np.where(is_enough, value, np.nan), np.where(is_enough, half, np.nan), known


def _with_jackknife(metric: Metric, dense: Mapping[str, F64]) -> tuple[F64, F64]:
    """float64[rows] each: the metric over all hosts, and half of its 95 % interval; NaN of too few hosts."""
    sums = {event: values.sum(axis=1, keepdims=True) for event, values in dense.items()}
    whole = evaluate(metric.expression, sums)
    hosts = next(iter(dense.values())).shape[1]
    if hosts < FEWEST_HOSTS:
        return np.broadcast_to(whole, (len(whole), 1))[:, 0], np.full(len(whole), np.nan)
    without = evaluate(metric.expression, {event: sums[event] - values for event, values in dense.items()})
    # The event with the most counts says how alike hosts count.
    total = max(dense.values(), key=lambda values: float(values.sum())).sum(axis=0)
    half = half_width(*spread_without(without, whole, total), freedom_of(total))
    return whole[:, 0], np.where(half < _ROUNDING * np.abs(whole[:, 0]), 0.0, half)
