import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tdprof.symbolize.doubts import meant_in_any_order
from tdprof.symbolize.symbol_table import make_table, pack_names, paint_ranges

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12)
ADDRESSES = np.arange(90, dtype=np.uint64)


def columns(ranges):
    return (
        np.array([start for start, _ in ranges], np.uint64),
        np.array([size for _, size in ranges], np.uint64),
        [f"f{i}" for i in range(len(ranges))],
    )


@settings(deadline=None)
@given(RANGES)
def test_look_up_is_the_nearest_start_that_covers(ranges):
    start, size, names = columns(ranges)
    name_bytes, offsets = pack_names(names)
    table = make_table(start, size, offsets, name_bytes)
    found = [table.names([row])[0] if row >= 0 else None for row in table.lookup(ADDRESSES).tolist()]
    for address, name in enumerate(found):
        # At one start only the longest is kept, and the last of those.
        kept = {s: max((size, i) for i, (s2, size) in enumerate(ranges) if s2 == s) for s, _ in ranges}
        covering = [(s, i) for s, (size, i) in kept.items() if s <= address < s + size]
        assert name == (f"f{max(covering)[1]}" if covering else None)


@settings(deadline=None)
@given(RANGES)
def test_painting_keeps_the_last_range_over_each_address(ranges):
    table = paint_ranges(*columns(ranges))
    found = [table.names([row])[0] if row >= 0 else None for row in table.lookup(ADDRESSES).tolist()]
    for address, name in enumerate(found):
        covering = [i for i, (start, size) in enumerate(ranges) if start <= address < start + size]
        assert name == (f"f{covering[-1]}" if covering else None)


@settings(deadline=None)
@given(RANGES)
def test_names_tell_of_other_names_that_stood_there(ranges):
    start, size, _ = columns(ranges)
    names = [f"f{number % 4}" for number in range(len(ranges))]
    meant = meant_in_any_order(start, size, names)
    table = paint_ranges(start, size, [str(number) for number in range(len(ranges))])
    held: dict[int, set[str]] = {
        int(table.names([row])[0]): set() for row in table.lookup(ADDRESSES).tolist() if row >= 0
    }
    for address, row in zip(ADDRESSES.tolist(), table.lookup(ADDRESSES).tolist(), strict=True):
        if row >= 0:
            covering = {names[i] for i, (start, size) in enumerate(ranges) if start <= address < start + size}
            held[int(table.names([row])[0])] |= covering
    for number, name in enumerate(names):
        others = held.get(number, set()) - {name}
        assert meant[number][0] == name
        assert others >= set(meant[number][1:2])
        assert len(meant[number]) == 1 + min(len(others), 2)
