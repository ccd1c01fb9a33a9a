"""Our catalogs against Arm's machine-readable files, whose formulas are evaluated here by Python itself."""

import importlib.util
import json
import random
import re
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import numpy as np
import pytest

from tdprof.catalog.choose import catalog_names, find_by_name
from tdprof.catalog.expression import Expression, Name, Number, Operation, Operator
from tdprof.catalog.folder import catalog_folder
from tdprof.catalog.load import load_catalog
from tdprof.metrics.formula import evaluate

TOOLS = Path(__file__).resolve().parents[2] / "tools"
ARM = TOOLS / "catalog_sources" / "arm"
ARM_FILES = {
    "neoverse-n1": "neoverse-n1",
    "neoverse-n2-r0p2": "neoverse-n2",
    "neoverse-n2-r0p3": "neoverse-n2-r0p3",
    "neoverse-n3": "neoverse-n3",
    "neoverse-v1": "neoverse-v1",
    "neoverse-v2": "neoverse-v2",
    "neoverse-v3": "neoverse-v3",
}
SNAPSHOTS = 200


def arm_file(name: str) -> dict[str, Any]:
    return json.loads((ARM / f"{name}.json").read_text())


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_catalogs", TOOLS / "generate_catalogs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_catalogs_are_what_the_generator_writes() -> None:
    for name, text in generator().build_all().items():
        assert (catalog_folder() / name).read_text() == text, f"run tools/generate_catalogs.py for {name}"


def test_a_metric_of_our_own_is_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = generator()
    read = made.read_toml
    ours = {
        "title": "Returns among branches",
        "formula": "BR_RETURN_RETIRED / BR_RETIRED * 100",
        "units": "percent of branches",
        "group": "Branch_Effectiveness",
        "description": "Share of branches that return.",
        "advice": "Calls are many: inline the small ones.",
    }

    def with_ours(name: str) -> dict[str, Any]:
        texts = read(name)
        return texts | {"metrics": texts["metrics"] | {"return_share": ours}} if name == "metrics.toml" else texts

    monkeypatch.setattr(made, "read_toml", with_ours)
    cores = []
    for name, text in made.build_all().items():
        (tmp_path / name).write_text(text)
        catalog = load_catalog(tmp_path / name)
        if metric := catalog.metrics.get("return_share"):
            cores.append(name.removesuffix(".json"))
            assert metric.events == ("BR_RETURN_RETIRED", "BR_RETIRED")
            assert "return_share" in catalog.groups["Branch_Effectiveness"].metrics
            assert evaluate(metric.expression, {"BR_RETURN_RETIRED": 3, "BR_RETIRED": 12}) == 25
    assert {"neoverse-n3", "neoverse-v3"} <= set(cores)


@pytest.mark.parametrize("name", catalog_names())
def test_catalogs_fit_arms_schema(name: str) -> None:
    catalog = json.loads((catalog_folder() / f"{name}.json").read_text())
    jsonschema.validate(catalog, arm_file("v1.0.schema"))


@pytest.mark.parametrize(("ours", "theirs"), ARM_FILES.items())
def test_every_formula_gives_arms_number_on_random_snapshots(ours: str, theirs: str) -> None:
    catalog, published = find_by_name(ours), arm_file(theirs)
    assert catalog.metrics.keys() >= published["metrics"].keys()
    chance = random.Random(ours)
    events = sorted({name for metric in catalog.metrics.values() for name in metric.events})
    counts = {name: [chance.randrange(1, 10 ** chance.randrange(2, 13)) for _ in range(SNAPSHOTS)] for name in events}
    for name, facts in published["metrics"].items():
        found = evaluate(catalog.metrics[name].expression, counts)
        formula = compile(exact(facts["formula"]), name, "eval")
        for index in range(SNAPSHOTS):
            scope = {event: Fraction(values[index]) for event, values in counts.items()}
            try:
                wanted = float(eval(formula, {"__builtins__": {}, "Fraction": Fraction}, scope))
            except ZeroDivisionError:
                assert np.isnan(found[index]), name
                continue
            # A difference of large terms loses digits; compare on the scale of the terms.
            assert found[index] == pytest.approx(wanted, rel=1e-9, abs=1e-6 * max(1.0, abs(wanted))), name


def exact(formula: str) -> str:
    """The formula with its numbers as fractions, for Python's own evaluation without rounding."""
    return re.sub(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", r"Fraction('\g<0>')", formula)


@pytest.mark.parametrize(("ours", "theirs"), ARM_FILES.items())
def test_codes_groups_and_stages_are_arms(ours: str, theirs: str) -> None:
    catalog, published = find_by_name(ours), arm_file(theirs)
    for name, facts in published["events"].items():
        event = catalog.find_event(name)
        assert event is not None, name
        assert event.code == int(facts["code"], 16)
        assert {access.value for access in event.accesses} == set(facts["accesses"])
    for name, group in published["groups"]["metrics"].items():
        assert catalog.groups[name].metrics[: len(group["metrics"])] == tuple(group["metrics"])
    grouping = published["methodologies"]["topdown_methodology"]["metric_grouping"]
    for stage in (1, 2):
        assert {group.name for group in catalog.groups.values() if group.stage == stage} == set(
            grouping[f"stage_{stage}"]
        )
    for node in published["methodologies"]["topdown_methodology"]["decision_tree"]["metrics"]:
        added = set(catalog.tree[node["name"]]) - set(node["next_items"])
        assert set(node["next_items"]) <= set(catalog.tree[node["name"]])
        assert not added or ours in ("neoverse-n3", "neoverse-v3")


@pytest.mark.parametrize("theirs", sorted(set(ARM_FILES.values())))
def test_a_file_from_arm_loads_directly(theirs: str) -> None:
    published = arm_file(theirs)
    catalog = load_catalog(ARM / f"{theirs}.json")
    assert len(catalog.events) == len(published["events"])
    assert catalog.metrics.keys() >= published["metrics"].keys()
    assert catalog.slots == published["product_configuration"]["num_slots"]
    if "backend_mem_bound" in catalog.metrics:
        assert catalog.metrics["backend_mem_bound"].units == "percent of backend stall cycles"


@pytest.mark.parametrize("name", [name for name in ARM_FILES if name != "neoverse-n1"])
def test_level_1_sums_to_exactly_100_on_consistent_counts(name: str) -> None:
    catalog = find_by_name(name)
    chance = random.Random(name)
    for _ in range(SNAPSHOTS):
        frontend, backend = chance.randrange(10**9), chance.randrange(10**9)
        # Slots lost to nothing but frontend and backend is what makes counts consistent.
        counts = {
            "CPU_CYCLES": chance.randrange(1, 10**9),
            "STALL_SLOT_FRONTEND": frontend,
            "STALL_SLOT_BACKEND": backend,
            "STALL_SLOT": frontend + backend,
            "OP_SPEC": chance.randrange(1, 10**9),
            "OP_RETIRED": chance.randrange(10**9),
            "BR_MIS_PRED": chance.randrange(10**6),
            "STALL_FRONTEND_FLUSH": chance.randrange(10**6),
        }
        total = sum(exact_value(catalog.metrics[m].expression, counts) for m in catalog.groups["Topdown_L1"].metrics)
        assert total == 100


def exact_value(expression: Expression, counts: dict[str, int]) -> Fraction:
    match expression:
        case Number(value):
            return Fraction(value)
        case Name(name):
            return Fraction(counts[name])
        case Operation(operator, left, right):
            a, b = exact_value(left, counts), exact_value(right, counts)
    return {
        Operator.ADD: lambda: a + b,
        Operator.SUBTRACT: lambda: a - b,
        Operator.MULTIPLY: lambda: a * b,
        Operator.DIVIDE: lambda: a / b,
    }[operator]()
