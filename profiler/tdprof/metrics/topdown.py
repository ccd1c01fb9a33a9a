"""Walks the methodology tree: from the largest Stage 1 metric down to the Stage 2 groups that explain it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tdprof.catalog.entries import Catalog


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The way down the tree.

    Attributes:
        path: metrics, the level-1 metric first; empty where no root has a value.
        groups: the metric groups that the path leads to, nearest to its end first.
    """

    path: tuple[str, ...]
    groups: tuple[str, ...]


def find_bottleneck(catalog: Catalog, values: Mapping[str, float]) -> Bottleneck:
    """Follow the largest metric of each level.

    Only metrics with the same units are compared: children in percent of different parents say nothing of each other.

    Args:
        values: metric to value; a metric without one is absent or NaN.
    """
    path: list[str] = []
    groups: list[str] = []
    candidates = catalog.roots
    while (name := _largest(catalog, candidates, values)) is not None:
        path.append(name)
        candidates = catalog.tree.get(name, ())
        found = [item for item in candidates if item in catalog.groups]
        groups = found + [group for group in groups if group not in found]
    return Bottleneck(tuple(path), tuple(groups))


def _largest(catalog: Catalog, names: tuple[str, ...], values: Mapping[str, float]) -> str | None:
    """The metric with the greatest value above zero among those in the units of the first.

    None if one of these has no value: it might be the largest.
    """
    metrics = [catalog.metrics[name] for name in names if name in catalog.metrics]
    comparable = {
        metric.name: values.get(metric.name, math.nan) for metric in metrics if metric.units == metrics[0].units
    }
    if not comparable or any(math.isnan(value) for value in comparable.values()):
        return None
    best = max(comparable, key=comparable.__getitem__)
    return best if comparable[best] > 0 else None


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One line of the drawn tree: a metric or a group, `depth` levels below the roots."""

    name: str
    depth: int
    is_group: bool


def tree_rows(catalog: Catalog) -> tuple[TreeRow, ...]:
    """The whole tree in drill-down order, a group below every metric that leads to it."""
    rows: list[TreeRow] = []

    def visit(name: str, depth: int) -> None:
        rows.append(TreeRow(name, depth, name in catalog.groups))
        for child in catalog.tree.get(name, ()):
            visit(child, depth + 1)

    for root in catalog.roots:
        visit(root, 0)
    return tuple(rows)
