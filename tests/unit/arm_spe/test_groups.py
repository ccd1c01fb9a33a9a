"""Pairs of keys, numbered."""

import numpy as np

from arm_spe.groups import GroupTable
from builders.hashing import longest_run


def test_keys_made_to_meet_do_not_meet() -> None:
    first = np.random.default_rng(1).integers(0, 2**63, 1000, dtype=np.uint64)
    second = first << np.uint64(32) | first >> np.uint64(32)  # with a hash that nobody keeps secret all were one
    table = GroupTable()
    assert table.number(first, second).tolist() == list(range(1000))
    assert longest_run(table._slot > 0) < 300  # of 8,192 slots; some ten are usual
