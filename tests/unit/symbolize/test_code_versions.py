"""Which of several functions, loaded at one address one after the other, a sample is of."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdprof.symbolize.code_versions import find_versions

NAMES = ["old", "alone", "new", "newer"]
START = np.array([0x1000, 0x5000, 0x1010, 0x1000], np.uint64)
SIZE = np.array([0x40, 0x40, 0x40, 0x20], np.uint64)
TIME = np.array([100, 100, 200, 300], np.uint64)


def shown(address: int, since: int, until: int) -> str:
    versions = find_versions(START, SIZE, TIME, [(name,) for name in NAMES])
    assert versions is not None
    (place,) = versions.places_of(*(np.array([value], np.uint64) for value in (address, since, until))).tolist()
    for places, names in zip(versions.places.tolist(), versions.names, strict=True):
        for row, start, name in zip(versions.row.tolist(), places, names, strict=True):
            if start <= place < start + int(SIZE[row]):
                assert place - start == address - int(START[row])
                return name
    assert place == address
    return "as it stands"


@pytest.mark.parametrize(
    ("address", "since", "until", "expected"),
    [
        (0x1000, 150, 150, "old"),
        (0x1000, 299, 299, "old"),  # `new` begins behind
        (0x1010, 200, 200, "new"),
        (0x1010, 199, 199, "old"),
        (0x1010, 350, 350, "newer"),
        (0x104F, 350, 350, "new"),
        (0x1010, 50, 50, "old"),  # before it was told of
        (0x1010, 110, 190, "old"),
        (0x1010, 150, 250, "new [or what it replaced: old]"),
        (0x1010, 101, 201, "old"),  # that most of the interval was of
        (0x1010, 199, 290, "new"),
        (0x1010, 199, 301, "newer [or what it replaced: old or others]"),
        (0x1000, 150, 350, "newer [or what it replaced: old or others]"),  # `new` began behind, and nobody asks where
        (0x1050, 150, 250, "as it stands"),
        (0x1000, 150, 250, "old"),
        (0x5000, 150, 350, "as it stands"),
        (0x4000, 150, 350, "as it stands"),
        (0xFFF, 150, 350, "as it stands"),
        (0x1050, 150, 350, "as it stands"),
    ],
)
def test_the_interval_decides(address: int, since: int, until: int, expected: str) -> None:
    assert shown(address, since, until) == expected


def test_what_is_not_told_apart() -> None:
    one = np.ones(2, np.uint64)
    assert find_versions(one, one, one, [("f",), ("f",)]) is None
    assert find_versions(one, one, np.zeros(2, np.uint64), [("f",), ("g",)]) is None  # without times
    assert find_versions(one, np.full(2, 1 << 60, np.uint64), one, [("f",), ("g",)]) is None
    assert find_versions(one[:0], one[:0], one[:0], []) is None
    many = np.arange(1, 4001, dtype=np.uint64)  # each within the one before: eight million pieces
    assert find_versions(many, np.uint64(10_000) - 2 * many, many, [(str(each),) for each in many.tolist()]) is None


LOADS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 12), st.integers(1, 9), st.sampled_from("fgh")), max_size=8
)


@settings(deadline=None)
@given(LOADS, st.integers(0, 10))
def test_at_a_time_it_is_the_last_that_was_loaded(loads: list[tuple[int, int, int, str]], time_ns: int) -> None:
    start, size, loaded = (np.array([load[at] for load in loads], np.uint64) for at in range(3))
    versions = find_versions(start, size, loaded, [(load[3],) for load in loads])
    if versions is None:
        return
    addresses, times = np.arange(40, dtype=np.uint64), np.full(40, time_ns, np.uint64)
    for address, place in enumerate(versions.places_of(addresses, times, times).tolist()):
        there = [row for row in versions.row.tolist() if loads[row][0] <= address < loads[row][0] + loads[row][1]]
        if not there:
            assert place == address
            continue
        by_time = sorted(there, key=lambda row: (loads[row][2], row))
        until = [row for row in by_time if loads[row][2] <= time_ns]
        row = until[-1] if until else by_time[0]
        assert place == int(versions.places[0, versions.row.tolist().index(row)]) + address - loads[row][0]
