"""Walks the methodology tree for many pieces of code at once, and stops where noise would choose the way."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.catalog.entries import Catalog
from tdprof.catalog.units import PERCENT_OF_SLOTS
from tdprof.model.arrays import F64, I64
from tdprof.model.findings import NO_DIAGNOSIS, Diagnosis, MetricTable

# Level 1 accounts for every slot once; counts taken together add up to 100 but for rounding of a division.
_SUM_TOLERANCE = 1.0


def diagnose(catalog: Catalog, table: MetricTable) -> list[Diagnosis]:
    """Where each row of the table loses its slots.

    On each level the largest metric is followed if it is larger than every other by more than their errors together.
    Only metrics in the units of the level's first are compared: the others are percent of something else.
    """
    found = [NO_DIAGNOSIS] * len(table.value)

    def follow(candidates: Sequence[str], rows: I64, path: tuple[str, ...], groups: tuple[str, ...]) -> None:
        here = _Level(catalog, candidates, table)
        winner = here.winners(rows)
        for index, name in enumerate(here.names):
            won = rows[winner == index]
            if not len(won):
                continue
            children = catalog.tree.get(name, ())
            near = tuple(child for child in children if child in catalog.groups)
            way = (*path, name)
            leads_to = near + tuple(group for group in groups if group not in near)
            diagnosis = Diagnosis(way, leads_to, next(reversed(advice_along(catalog, way)), ""))
            for row in won.tolist():
                found[row] = diagnosis
            follow(children, won, way, leads_to)

    follow(catalog.roots, np.arange(len(table.value)), (), ())
    return found


def diagnose_counts(catalog: Catalog, values: Mapping[str, float]) -> Diagnosis:
    """Where a program loses its slots that was counted as a whole: its values are without noise.

    Args:
        values: metric to value; a metric without one is absent or NaN.
    """
    names = [name for name in catalog.metrics if name in values]
    value = np.array([[values[name] for name in names]], np.float64)
    table = MetricTable(
        metrics=names,
        units=[catalog.metrics[name].units for name in names],
        sources=["pmu"] * len(names),
        value=value,
        half_width=np.zeros_like(value),
        samples=np.zeros(value.shape, np.uint64),
        is_significant=~np.isnan(value),
    )
    return diagnose(catalog, table)[0]


def advice_along(catalog: Catalog, path: Sequence[str]) -> tuple[str, ...]:
    """What a high value means, for each metric on the way down that has something to say."""
    metrics = (catalog.metrics[name] for name in path)
    return tuple(f"{metric.title}: {metric.advice}" for metric in metrics if metric.advice)


def sum_doubts(catalog: Catalog, values: Mapping[str, float]) -> tuple[str, ...]:
    """Why counted values should not be trusted, one line each: level-1 sums that consistent counts cannot give."""
    slots = [name for name in catalog.roots if catalog.metrics[name].units == PERCENT_OF_SLOTS]
    known = [values[name] for name in slots if not math.isnan(values.get(name, math.nan))]
    if not slots or len(known) < len(slots):
        return ()
    total = math.fsum(known)
    if abs(total - 100.0) <= _SUM_TOLERANCE:
        return ()
    return (
        f"level 1 adds up to {total:.1f} and not to 100 percent of slots: its events were not counted together, "
        "or this is another core than the catalog's",
    )


class _Level:
    """The metrics among which one level of the tree decides."""

    def __init__(self, catalog: Catalog, candidates: Sequence[str], table: MetricTable) -> None:
        metrics = [catalog.metrics[name] for name in candidates if name in catalog.metrics]
        self.names = [metric.name for metric in metrics if metric.units == metrics[0].units]
        pmu = {name: i for i, name in enumerate(table.metrics) if table.sources[i] == "pmu"}
        self._columns = np.array([pmu.get(name, -1) for name in self.names], np.int64)
        self._table = table

    def winners(self, rows: I64) -> NDArray[np.int64]:
        """int64[rows]: the index in ``names`` of the metric to follow; -1 for none."""
        if not self.names or np.any(self._columns < 0):  # what was not measured might be the largest
            return np.full(len(rows), -1)
        value: F64 = self._table.value[np.ix_(rows, self._columns)]
        half_width: F64 = self._table.half_width[np.ix_(rows, self._columns)]
        best = np.argmax(np.nan_to_num(value, nan=np.inf), axis=1)
        every = np.arange(len(rows))
        lead = value[every, best][:, None] - value
        noise = np.hypot(half_width[every, best][:, None], half_width)
        is_ahead = lead > noise
        is_ahead[every, best] = True
        is_known = self._table.is_significant[rows, self._columns[best]] & (value[every, best] > 0)
        return np.where(np.all(is_ahead, axis=1) & is_known, best, -1)
