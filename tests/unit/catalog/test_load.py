"""Catalog files: what loads, and that every fault is one error naming file and entry."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.catalogs import Json, event, metric, small_catalog, write_catalog
from tdprof.catalog.load import load_catalog
from tdprof.errors import TdprofError


def test_a_small_file_loads(tmp_path: Path) -> None:
    catalog = load_catalog(write_catalog(tmp_path, small_catalog()))
    assert (catalog.name, catalog.title, catalog.slots, catalog.counters) == ("test-core", "Test Core", 4, 6)
    assert catalog.parts == {(0x41, 0xFFF)}
    assert catalog.events["CPU_CYCLES"].group == "General"
    assert (catalog.metrics["lost"].stage, catalog.metrics["ratio"].stage) == (1, 2)
    assert catalog.metrics["ratio"].groups == ("Detail",)
    assert (catalog.roots, catalog.tree) == (("lost",), {"lost": ("Detail",)})


def test_an_event_with_only_a_code_is_private_and_countable(tmp_path: Path) -> None:
    value = small_catalog()
    value["events"]["SECRET"] = {"code": "0x1234"}
    assert load_catalog(write_catalog(tmp_path, value)).events["SECRET"].is_countable


def test_an_event_of_another_unit_is_left_out(tmp_path: Path) -> None:
    value = small_catalog()
    value["events"]["SYSTEM"] = {**event(0), "system": True}
    del value["events"]["SYSTEM"]["code"]
    assert "SYSTEM" not in load_catalog(write_catalog(tmp_path, value)).events


def test_the_formula_decides_which_events_a_metric_needs(tmp_path: Path) -> None:
    value = small_catalog()
    value["metrics"]["ratio"]["events"] = ["STALLS"]  # published files have left CPU_CYCLES out
    assert load_catalog(write_catalog(tmp_path, value)).metrics["ratio"].events == ("STALLS", "CPU_CYCLES")


def _set(*path: str, to: object) -> Callable[[Json], None]:
    def change(value: Json) -> None:
        for key in path[:-1]:
            value = value[key]
        value[path[-1]] = to

    return change


def _cyclic(value: Json) -> None:
    tree = value["methodologies"]["topdown_methodology"]["decision_tree"]["metrics"]
    tree[0]["next_items"] = ["ratio"]
    tree.append({"name": "ratio", "group": "Detail", "next_items": ["lost"], "sample_events": []})


def _levels(levels: int, names: str) -> Callable[[Json], None]:
    """Levels of metrics, each of which leads to all of the next."""

    def change(value: Json) -> None:
        tree = value["methodologies"]["topdown_methodology"]["decision_tree"]
        for level in range(levels):
            below = [f"{name}{level + 1}" for name in names] if level + 1 < levels else []
            value["metrics"] |= {f"{name}{level}": metric("STALLS") for name in names}
            tree["metrics"] += [{"name": f"{name}{level}", "next_items": below} for name in names]
        tree["root_nodes"] = [f"{name}0" for name in names]

    return change


_TOO_LARGE = "methodology topdown_methodology.decision_tree: has more than 4096 lines or 64 levels when it is drawn"
_TREE = ("methodologies", "topdown_methodology", "decision_tree")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_cyclic, "tree node lost: leads back to itself: lost -> ratio -> lost"),
        (
            _levels(65, "a"),
            _TOO_LARGE,
        ),
        (
            _levels(40, "ab"),
            _TOO_LARGE,
        ),
        (_set("metrics", "bad", to=metric("NOPE / CPU_CYCLES")), "metric bad: formula: unknown event 'NOPE'"),
        (
            _set("metrics", "bad", to=metric("STALLS / (CPU_CYCLES")),
            "metric bad: formula: ends where ')' is expected",
        ),
        (
            _set("metrics", "bad", to=metric("__import__('os').system('touch pwned')")),
            'metric bad: formula: unexpected "\'" at character 12',
        ),
        (_set("metrics", "bad", to=metric("__import__")), "metric bad: formula: unknown event '__import__'"),
        (_set("metrics", "bad", to=metric("lost * 2")), "metric bad: formula: unknown event 'lost'"),
        (
            _set("metrics", "bad", to=metric("STALLS", sample_events=["X"])),
            "metric bad: sample_events: unknown event 'X'",
        ),
        (_set("metrics", "bad", to={"title": ""}), "metric bad: has no text 'formula'"),
        (_set("metrics", "bad", to=metric("STALLS / 0")), "metric bad: formula: divides by zero"),
        (
            _set("metrics", "bad", to=metric("1 + STALLS / (CPU_CYCLES * (2 - 4 / 2))")),
            "metric bad: formula: divides by zero",
        ),
        (_set("metrics", "bad", to=metric("STALLS / (1 / 0)")), "metric bad: formula: divides by zero"),
        (
            _set("metrics", "bad", to=metric("STALLS / (CPU_CYCLES - CPU_CYCLES)")),
            "metric bad: formula: divides by zero",
        ),
        (_set("metrics", "bad", to=metric("100 * (3 + 1)")), "metric bad: formula: has no event"),
        (
            _set("product_configuration", "tdprof", to={"caveats": {}}),
            "product_configuration.tdprof: 'caveats' is no list",
        ),
        (
            _set("product_configuration", "tdprof", to={"caveats": [{"events": ["X"], "text": "", "origin": ""}]}),
            "product_configuration.tdprof.caveats[0]: unknown event 'X'",
        ),
        (
            _set(
                "product_configuration",
                "tdprof",
                to={"caveats": [{"events": [], "text": "", "origin": "", "if_absent": 1}]},
            ),
            "product_configuration.tdprof.caveats[0]: 'if_absent' is neither true nor false",
        ),
        (_set("metrics", "bad", to=[]), "metric bad: is not an object"),
        (_set("events", "BAD", to={"title": ""}), "event BAD: 'code' is None, not a number from 0x0 to 0xffff"),
        (_set("events", "BAD", to=event(0x10000)), "event BAD: 'code' is '0x10000', not a number from 0x0 to 0xffff"),
        (_set("events", "BAD", to=event(0x11)), "event BAD: has the code 0x0011 of CPU_CYCLES"),
        (_set("events", "BAD", to=event(1, accesses=["JTAG"])), "event BAD: 'accesses' is ['JTAG']"),
        (_set("events", "a b", to=event(1)), "events: 'a b' is no name of a event"),
        (
            _set("groups", "metrics", "Detail", "metrics", to=["gone"]),
            "metric group Detail: unknown metric 'gone'",
        ),
        (
            _set("groups", "function", "General", "events", to=["GONE"]),
            "function group General: unknown event 'GONE'",
        ),
        (_set(*_TREE, "root_nodes", to=["gone"]), "decision_tree: unknown metric 'gone'"),
        (
            _set(*_TREE, "metrics", to=[{"name": "lost", "next_items": ["gone"]}]),
            "tree node lost: unknown metric or metric group 'gone'",
        ),
        (lambda value: value.pop("events"), "has no 'events'"),
        (_set("events", to=[]), "events: is not an object"),
    ],
)
def test_every_fault_is_one_error_naming_file_and_entry(
    tmp_path: Path, change: Callable[[Json], None], complaint: str
) -> None:
    value = small_catalog()
    change(value)
    path = write_catalog(tmp_path, value)
    with pytest.raises(TdprofError) as caught:
        load_catalog(path)
    assert caught.value.message == f"catalog {path}: {complaint}"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"events": {}} trailing', "[" * 100_000])
def test_what_is_no_catalog_is_refused(tmp_path: Path, text: str) -> None:
    path = write_catalog(tmp_path, text)
    with pytest.raises(TdprofError, match=r"catalog .*core\.json: (not JSON|is not an object|has no)"):
        load_catalog(path)


@pytest.mark.parametrize("formula", ["STALLS / 0.5", "STALLS / (CPU_CYCLES - STALLS)", "STALLS / (0 + CPU_CYCLES)"])
def test_what_may_be_zero_is_no_fault(tmp_path: Path, formula: str) -> None:
    value = small_catalog()
    value["metrics"]["good"] = metric(formula)
    assert load_catalog(write_catalog(tmp_path, value)).metrics["good"].formula == formula


@pytest.mark.parametrize("key", ["lost", "CPU_CYCLES", "formula", "product_configuration"])
def test_a_name_that_comes_twice_is_refused(tmp_path: Path, key: str) -> None:
    """JSON's readers keep the last one, in silence: another metric than the one that was looked at."""
    text = json.dumps(small_catalog())
    path = write_catalog(tmp_path, text.replace(f'"{key}": ', f'"{key}": {{}}, "{key}": ', 1))
    with pytest.raises(TdprofError) as caught:
        load_catalog(path)
    assert caught.value.message == f"catalog {path}: '{key}' comes twice in one object"


def test_a_missing_file_names_itself(tmp_path: Path) -> None:
    with pytest.raises(TdprofError, match=r"cannot read catalog .*gone\.json: No such file"):
        load_catalog(tmp_path / "gone.json")
