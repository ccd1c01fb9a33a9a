"""Counter groups: the known minima, what stays whole, and what is said when counters are too few."""

import pytest

from builders.catalogs import metric_of
from tdprof.catalog.choose import load_packaged
from tdprof.metrics.schedule import Schedule, schedule_metrics


def schedule_all(name: str, counters: int, *, has_cycle_counter: bool = True) -> Schedule:
    catalog = load_packaged(name)
    return schedule_metrics(catalog, list(catalog.metrics.values()), counters, has_cycle_counter=has_cycle_counter)


@pytest.mark.parametrize(
    ("name", "counters", "minimum"),
    [("neoverse-n3", 6, 13), ("neoverse-v1", 6, 7), ("neoverse-n3", 5, 16), ("neoverse-v1", 5, 9),
     ("neoverse-n1", 6, 6), ("neoverse-n2", 6, 7), ("neoverse-v2", 6, 10), ("neoverse-v3", 6, 13)],
)  # fmt: skip
def test_known_minima(name: str, counters: int, minimum: int) -> None:
    schedule = schedule_all(name, counters)
    assert len(schedule.groups) == minimum
    assert schedule.minimum == minimum


@pytest.mark.parametrize(("name", "groups"), [("neoverse-v1", 8), ("neoverse-n3", 14)])
def test_without_the_cycle_counter(name: str, groups: int) -> None:
    schedule = schedule_all(name, 6, has_cycle_counter=False)
    assert len(schedule.groups) == groups
    assert all(len(group.events) <= 6 for group in schedule.groups)


@pytest.mark.parametrize("counters", range(2, 32))
@pytest.mark.parametrize("has_cycle_counter", [True, False])
def test_any_number_of_counters(counters: int, has_cycle_counter: bool) -> None:
    catalog = load_packaged("neoverse-n3")
    schedule = schedule_all("neoverse-n3", counters, has_cycle_counter=has_cycle_counter)
    for group in schedule.groups:
        assert len(set(group.events) - ({"CPU_CYCLES"} if has_cycle_counter else set())) <= counters
        for name in group.metrics:
            assert set(catalog.metrics[name].events) <= set(group.events)
    placed = [name for group in schedule.groups for name in group.metrics]
    assert sorted(placed + list(schedule.split_metrics)) == sorted(catalog.metrics)


def test_topdown_level_1_stays_whole_with_the_free_cycle_counter() -> None:
    for name in ("neoverse-n3", "neoverse-v1"):
        catalog = load_packaged(name)
        level_1 = {event for metric in catalog.groups["Topdown_L1"].metrics for event in catalog.metrics[metric].events}
        assert len(level_1) == 7
        home = [group for group in schedule_all(name, 6).groups if level_1 <= set(group.events)]
        assert len(home) == 1
        assert home[0].events[0] == "CPU_CYCLES"
        assert set(catalog.groups["Topdown_L1"].metrics) <= set(home[0].metrics)


def test_what_does_not_fit_is_said() -> None:
    schedule = schedule_all("neoverse-v1", 5)
    assert schedule.split_groups == ("Topdown_L1",)
    assert schedule.split_metrics == ()
    assert "Topdown_L1 does not fit" in schedule.warnings[0]
    schedule = schedule_all("neoverse-v1", 3)
    assert schedule.split_metrics == ("bad_speculation",)
    assert "bad_speculation: measured over several groups" in schedule.warnings[1]


def test_bad_speculation_needs_four_counters_and_gets_them_together() -> None:
    assert "bad_speculation" not in schedule_all("neoverse-v1", 4).split_metrics


def test_groups_come_in_the_order_of_the_metrics() -> None:
    catalog = load_packaged("neoverse-v1")
    metrics = [catalog.metrics[name] for name in catalog.groups["Topdown_L1"].metrics]
    others = [metric for metric in catalog.metrics.values() if metric not in metrics]
    assert set(schedule_metrics(catalog, metrics + others, 6).groups[0].metrics) >= {m.name for m in metrics}


def test_a_metric_of_cycles_alone_has_a_group() -> None:
    schedule = schedule_metrics(load_packaged("neoverse-v1"), [metric_of("CPU_CYCLES / 2")], 6)
    assert [group.events for group in schedule.groups] == [("CPU_CYCLES",)]


def test_the_same_request_gives_the_same_groups() -> None:
    assert schedule_all("neoverse-n3", 6) == schedule_all("neoverse-n3", 6)


@pytest.mark.parametrize("counters", [0, 1, 32])
def test_counters_out_of_range(counters: int) -> None:
    with pytest.raises(ValueError, match="2 to 31"):
        schedule_all("neoverse-v1", counters)
