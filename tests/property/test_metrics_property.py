"""For all inputs: formulas round-trip, schedules keep their promises, count files never crash."""

import copy
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.catalogs import metric_of, small_catalog, write_catalog
from tdprof.catalog.choose import load_packaged
from tdprof.catalog.expression import Expression, FormulaError, Name, Number, Operation, Operator, parse_formula
from tdprof.catalog.load import load_catalog
from tdprof.errors import TdprofError
from tdprof.metrics.counts import parse_counts
from tdprof.metrics.schedule import schedule_metrics

V1 = load_packaged("neoverse-v1")

leaves = st.one_of(
    st.integers(0, 10**6).map(lambda value: Number(float(value))),
    st.sampled_from(["A", "B_1", "_C"]).map(Name),
)
trees = st.recursive(leaves, lambda inner: st.builds(Operation, st.sampled_from(Operator), inner, inner), max_leaves=30)


def written(expression: Expression) -> str:
    match expression:
        case Number(value):
            return f"{value:.0f}"
        case Name(name):
            return name
        case Operation(operator, left, right):
            return f"({written(left)} {operator.value} {written(right)})"


@given(trees)
def test_a_written_tree_parses_to_itself(tree: Expression) -> None:
    assert parse_formula(written(tree)) == tree


@given(st.text(max_size=60) | st.text("AB01.+-*/() _'", max_size=60))
def test_any_text_parses_or_raises_formula_error(text: str) -> None:
    with suppress(FormulaError):
        parse_formula(text)


@pytest.mark.thorough
@given(
    st.lists(st.sets(st.sampled_from("ABCDEFGHIJ"), min_size=1, max_size=6), min_size=1, max_size=12), st.integers(2, 9)
)
@settings(deadline=None, max_examples=60)
def test_schedules_hold_every_metric_and_no_group_overflows(sets: list[set[str]], counters: int) -> None:
    metrics = [metric_of(" + ".join(sorted(events)), f"m{index}") for index, events in enumerate(sets)]
    schedule = schedule_metrics(V1, metrics, counters)
    assert all(len(group.events) <= counters for group in schedule.groups)
    assert {name for group in schedule.groups for name in group.events} == set().union(*sets)
    placed = [name for group in schedule.groups for name in group.metrics]
    assert sorted([*placed, *schedule.split_metrics]) == sorted(metric.name for metric in metrics)
    for group in schedule.groups:
        for name in group.metrics:
            assert sets[int(name[1:])] <= set(group.events)
    assert set(schedule.split_metrics) == {f"m{i}" for i, events in enumerate(sets) if len(events) > counters}
    assert schedule.minimum <= len(schedule.groups)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, item in inside for path in paths(item, (*here, key)))]


SMALL = small_catalog()
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["lost", "STALLS"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(paths(SMALL)[1:]), junk)
@settings(deadline=None, max_examples=300)
def test_a_catalog_with_one_value_replaced_loads_or_is_refused(path: tuple[Any, ...], value: Any) -> None:
    catalog = copy.deepcopy(SMALL)
    place: Any = catalog
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with tempfile.TemporaryDirectory() as folder, suppress(TdprofError):
        load_catalog(write_catalog(Path(folder), catalog))


counts = st.dictionaries(
    st.sampled_from([*V1.events, "task-clock", "nonsense"]),
    st.none() | st.integers(0, 2**64) | st.floats() | st.text(max_size=3),
)


@given(
    st.text(max_size=200)
    | counts.map(lambda value: json.dumps(value))
    | st.text('{}[]":,.0123456789<>\nAB_', max_size=120)
)
@settings(deadline=None)
def test_any_count_file_is_read_or_refused(text: str) -> None:
    with suppress(TdprofError):
        assert all(value >= 0 for value in parse_counts(text, V1, "file").counts.values())
