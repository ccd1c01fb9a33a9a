"""Adding records up: the compiled code against NumPy, and groups against a dictionary."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_spe import RecordDecoder
from arm_spe.native import load_native
from arm_spe.stats import SUMS, GroupTable, Sum, SumTable, _traits, add_up_in_python
from builders import spe

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled decoder is not built")


@given(st.integers(0, 2**32), st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_sums_are_those_of_numpy(seed: int, count: int) -> None:
    data, _ = spe.write_stream(spe.program(count, seed), spe.packed_record)
    (batch,) = RecordDecoder(data)
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 5000, count).astype(np.uint32)
    level = (rng.integers(0, 8, count) | rng.choice([0, 0x80], count)).astype(np.uint8)
    table = SumTable()
    table.add_up(batch, groups, level)
    expected = np.zeros((len(table.sums), SUMS), np.uint64)
    add_up_in_python(expected, batch, groups, level, _traits())
    assert (table.sums == expected).all()
    assert table.sums[:, Sum.OPERATIONS].sum() == count


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 5)), min_size=1))
def test_groups_are_numbered_as_they_appear(pairs: list[tuple[int, int]]) -> None:
    table = GroupTable()
    first, second = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    numbers = table.number(first, second)
    known: dict[tuple[int, int], int] = {}
    assert numbers.tolist() == [known.setdefault(pair, len(known)) for pair in pairs]
    assert list(zip(table.first.tolist(), table.second.tolist(), strict=True)) == list(known)
    again = GroupTable()
    assert again._number_in_python(first, second).tolist() == numbers.tolist()
    assert again.hits.tolist() == table.hits.tolist()


def test_a_table_grows_with_its_groups() -> None:
    table = GroupTable()
    keys = np.arange(100_000, dtype=np.uint64)
    table.number(keys, keys)
    assert (table.number(keys[::-1], keys[::-1]) == keys[::-1]).all()
    assert len(table) == len(keys)
    assert (table.hits == 2).all()


def test_latencies_are_counted_as_a_dictionary_does() -> None:
    truths = list(spe.program(3000, 4))
    data, _ = spe.write_stream(truths, spe.kunpeng_record)
    (batch,) = RecordDecoder(data)
    groups = (np.arange(len(batch)) % 500).astype(np.uint32)
    row_of = np.arange(500) // 50 - 1
    table = GroupTable()
    table.count_latencies(batch, groups, row_of)
    expected: dict[tuple[int, int], int] = {}
    for number, truth in enumerate(truths):
        row = number % 500 // 50 - 1
        for kind, cycles in enumerate((truth.total, truth.issue, truth.translation)):
            if row >= 0 and truth.events & 2 and cycles is not None:
                key = row * 3 + kind, cycles
                expected[key] = expected.get(key, 0) + 1
    counted = zip(table.first.tolist(), table.second.tolist(), table.hits.tolist(), strict=True)
    assert {(first, second): hits for first, second, hits in counted} == expected
