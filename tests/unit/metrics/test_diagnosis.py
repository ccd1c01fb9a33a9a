"""The way down the tree, the advice along it, and when none is given."""

import math

from tdprof.catalog.choose import load_packaged
from tdprof.metrics.diagnosis import advice_along, diagnose_counts, sum_doubts
from tdprof.model.findings import NO_DIAGNOSIS

N3 = load_packaged("neoverse-n3")
V1 = load_packaged("neoverse-v1")
LEVEL_1 = {"frontend_bound": 10.0, "backend_bound": 60.0, "retiring": 25.0, "bad_speculation": 5.0}


def test_the_largest_metric_leads_to_its_groups() -> None:
    found = diagnose_counts(V1, LEVEL_1)
    assert found.path == ("backend_bound",)
    assert found.groups == V1.tree["backend_bound"]


def test_levels_are_followed_down() -> None:
    values = LEVEL_1 | {
        "backend_core_bound": 20.0,
        "backend_mem_bound": 80.0,
        "backend_mem_cache_bound": 10.0,
        "backend_mem_tlb_bound": 70.0,
        "backend_mem_store_bound": 20.0,
    }
    found = diagnose_counts(N3, values)
    assert found.path == ("backend_bound", "backend_mem_bound", "backend_mem_tlb_bound")
    assert found.groups == ("DTLB_Effectiveness",)
    assert [line.split(":")[0] for line in advice_along(N3, found.path)] == [
        "Backend Bound", "Backend Memory Bound", "Backend Memory TLB Bound"
    ]  # fmt: skip
    assert found.bottleneck == "backend_bound"
    assert found.advice.startswith("Backend Memory TLB Bound: ")


def test_only_children_in_the_same_units_are_compared() -> None:
    # backend_core_rename_bound is in percent of core-bound cycles, backend_busy_bound of all backend stall cycles.
    values = LEVEL_1 | {
        "backend_core_bound": 90.0,
        "backend_mem_bound": 10.0,
        "backend_core_rename_bound": 30.0,
        "backend_busy_bound": 85.0,
    }
    assert diagnose_counts(N3, values).path[-1] == "backend_core_rename_bound"


def test_an_unknown_sibling_ends_the_way() -> None:
    assert diagnose_counts(V1, LEVEL_1 | {"frontend_bound": math.nan}) == NO_DIAGNOSIS
    assert diagnose_counts(N3, LEVEL_1 | {"backend_mem_bound": 80.0}).path == ("backend_bound",)


def test_equal_metrics_end_the_way() -> None:
    assert diagnose_counts(V1, LEVEL_1 | {"retiring": 60.0}) == NO_DIAGNOSIS


def test_nothing_above_zero_is_no_bottleneck() -> None:
    assert diagnose_counts(V1, dict.fromkeys(LEVEL_1, 0.0)) == NO_DIAGNOSIS
    assert diagnose_counts(V1, {}) == NO_DIAGNOSIS


def test_a_sum_that_consistent_counts_cannot_give_is_doubted() -> None:
    assert sum_doubts(V1, LEVEL_1) == ()
    assert "level 1 adds up to 95.0" in sum_doubts(V1, LEVEL_1 | {"bad_speculation": 0.0})[0]
    assert sum_doubts(V1, LEVEL_1 | {"bad_speculation": math.nan}) == ()
    assert (
        sum_doubts(load_packaged("neoverse-n1"), {"frontend_stalled_cycles": 1.0, "backend_stalled_cycles": 2.0}) == ()
    )
