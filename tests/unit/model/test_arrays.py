"""Helpers of the values that flow between stages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.model.arrays import distinct


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_distinct_values_in_order(values: list[int]) -> None:
    found = distinct(np.array(values, np.uint64))
    assert found.tolist() == sorted(set(values))
    assert found.dtype == np.uint64


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.int32])
def test_the_type_stays(dtype: type) -> None:
    assert distinct(np.array([3, 1, 3], dtype)).dtype == dtype
