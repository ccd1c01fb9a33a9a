"""Which views of a line are one memory: the compiled answer is that of the definition, written out."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arm_spe.turns import join_views

MOST_ACCESSES = 256
Access = tuple[int, int, bool]  # view, time, whether it stores
accesses_of_line = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 40), st.booleans()).map(lambda each: (each[0], each[1], each[2])),
    max_size=40,
)


def turns_of(accesses: list[Access], ours: set[int], others: set[int]) -> int:
    sides = [(view in ours, time) for view, time, _ in accesses if view in ours | others]
    return sum(a != b and then != now for (a, then), (b, now) in itertools.pairwise(sides))


def is_at_once(accesses: list[Access], ours: set[int], others: set[int]) -> bool:
    for stores, touched in ((ours, others), (others, ours)):
        times = [time for view, time, _ in accesses if view in touched]
        if any(view in stores and is_store and times[0] < time < times[-1] for view, time, is_store in accesses):
            return turns_of(accesses, ours, others) >= 4
    return False


def groups_of(accesses: list[Access]) -> list[set[int]]:
    groups: list[set[int]] = []
    for view in sorted({view for view, *_ in accesses}):
        if sum(each == view for each, *_ in accesses) < 2:
            continue
        met = [group for group in groups if is_at_once(accesses, {view}, group)]
        groups = [group for group in groups if group not in met] + [{view}.union(*met)]
    return [group for group in groups if len(group) > 1]


def changes_of(accesses: list[Access], group: set[int]) -> tuple[int, int]:
    own = [(view, time) for view, time, _ in accesses if view in group]
    return sum(a != b and then != now for (a, then), (b, now) in itertools.pairwise(own)), len(own)


@given(lines=st.lists(accesses_of_line, min_size=1, max_size=4))
def test_groups_are_those_of_the_definition(lines: list[list[Access]]) -> None:
    lines = [sorted(accesses, key=lambda each: each[1]) for accesses in lines]
    rows = [(number, 5 * number + view, time, store) for number, each in enumerate(lines) for view, time, store in each]
    line, view, time, is_store = (np.array([row[column] for row in rows], np.int64) for column in range(4))
    memory, turns, looked_at = join_views(
        line.astype(np.uint32), view, time.astype(np.uint64), is_store != 0, len(lines), 5 * len(lines)
    )
    expected, told = list(range(5 * len(lines))), [(0, 0)] * len(lines)
    for number, accesses in enumerate(lines):
        for group in groups_of(accesses):
            for member in group:
                expected[5 * number + member] = 5 * number + min(group)
            told[number] = max(told[number], changes_of(accesses, group))
    assert memory.tolist() == expected
    assert list(zip(turns.tolist(), looked_at.tolist(), strict=True)) == told


def test_of_more_accesses_the_first_are_looked_at() -> None:
    count = MOST_ACCESSES + 100
    view = np.arange(count) % 2
    line, time = np.zeros(count, np.uint32), np.arange(count).astype(np.uint64)
    memory, turns, looked_at = join_views(line, view, time, np.ones(count, bool), 1, 2)
    assert (memory.tolist(), turns.tolist(), looked_at.tolist()) == ([0, 0], [MOST_ACCESSES - 1], [MOST_ACCESSES])
    stored_later = time >= MOST_ACCESSES
    assert join_views(line, view, time, stored_later, 1, 2)[0].tolist() == [0, 1]


def test_many_views_of_one_line() -> None:
    """As many as there can be, each of which touches it twice and stores: they are all told apart, or all one."""
    view = np.repeat(np.arange(MOST_ACCESSES // 2), 2)
    for order, groups in ((view, MOST_ACCESSES // 2), (np.tile(np.arange(4), MOST_ACCESSES // 4), 1)):
        memory, _, _ = join_views(
            np.zeros(MOST_ACCESSES, np.uint32),
            order,
            np.arange(MOST_ACCESSES).astype(np.uint64),
            np.ones(MOST_ACCESSES, bool),
            1,
            MOST_ACCESSES // 2,
        )
        assert len(set(memory[np.unique(order)].tolist())) == groups


@pytest.mark.parametrize(("line", "view"), [(1, 0), (0, 2), (0, -1)])
def test_lines_and_views_that_there_are_not(line: int, view: int) -> None:
    rows = np.array([line], np.uint32), np.array([view]), np.zeros(1, np.uint64), np.zeros(1, bool)
    with pytest.raises(ValueError, match="not"):
        join_views(*rows, 1, 2)
