"""Helpers of the values that flow between stages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.model.arrays import distinct, distinct_rows, group_rows


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_distinct_values_in_order(values: list[int]) -> None:
    found = distinct(np.array(values, np.uint64))
    assert found.tolist() == sorted(set(values))
    assert found.dtype == np.uint64


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.int32])
def test_the_type_stays(dtype: type) -> None:
    assert distinct(np.array([3, 1, 3], dtype)).dtype == dtype


def test_group_rows_keeps_the_order_of_the_keys() -> None:
    first, second = np.array([2, 1, 2, 1]), np.array([5, 7, 5, 6])
    order, start = group_rows(first, second)
    assert order.tolist() == [3, 1, 0, 2]
    assert start.tolist() == [0, 1, 2]


def test_distinct_rows_number_each_row_by_its_keys() -> None:
    first, group = distinct_rows(np.array([2, 1, 2, 1]), np.array([5, 7, 5, 6]))
    assert first.tolist() == [3, 1, 0]
    assert group.tolist() == [2, 1, 2, 0]
