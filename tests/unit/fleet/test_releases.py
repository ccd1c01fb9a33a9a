"""A few hosts with a release beside many without it, drawn alike."""

import numpy as np
import pytest

from tdprof.fleet.changes import compare_sides, with_discoveries
from tdprof.fleet.simulate import FleetPlan, draw_fleet

FUNCTIONS = 200


@pytest.mark.parametrize(("few", "many"), [(5, 100), (5, 30), (8, 100)])
def test_few_hosts_that_differ_little_by_chance_are_no_discovery(few: int, many: int) -> None:
    rng = np.random.default_rng(5)
    plan = FleetPlan(scatter=0.5, samples=20_000, share=0.01, change=0.2, rounds=1, seed=1)
    shares = np.full(FUNCTIONS, 1 / FUNCTIONS)
    false = 0
    for _ in range(10):
        sides = [draw_fleet(rng, plan, hosts, shares) for hosts in (few, many)]
        false += int(with_discoveries([compare_sides(sides[0], sides[1], is_self=True)])[0].is_significant.sum())
    assert false <= 1


def test_what_changed_on_few_hosts_is_found() -> None:
    rng = np.random.default_rng(5)
    plan = FleetPlan(scatter=0.05, samples=20_000, share=0.01, change=0.2, rounds=1, seed=1)
    shares = np.full(FUNCTIONS, 1 / FUNCTIONS)
    changed = np.where(np.arange(FUNCTIONS) % 10, shares, 2 * shares)
    sides = draw_fleet(rng, plan, 8, changed), draw_fleet(rng, plan, 100, shares)
    found = with_discoveries([compare_sides(*sides, is_self=True)])[0].is_significant
    assert found.sum() >= FUNCTIONS // 10
