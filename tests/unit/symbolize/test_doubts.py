"""Names where code took other code's place, and nobody can say which of them a sample is of."""

import numpy as np
import pytest

from tdprof.symbolize.doubts import OTHERS, Meant, either, is_within, meant_in_any_order, shown


@pytest.mark.parametrize(
    ("meant", "name"),
    [
        (("g",), "g"),
        (("g", "f"), "g [or what it replaced: f]"),
        (("h", "g", "f"), "h [or what it replaced: g or others]"),
        (either(("g", "f"), OTHERS), "g [or what it replaced: f or others]"),
    ],
)
def test_the_name_says_what_a_sample_may_be_of(meant: Meant, name: str) -> None:
    assert shown(meant) == name


def test_of_one_of_these_or_of_those() -> None:
    assert either(("g", "f"), ("f", "g")) == ("g", "f")
    assert either(("g", "f"), ("e", "d")) == ("g", "f", "e")
    assert is_within(("f", "g"), ("g", "f"))
    assert not is_within(("e",), ("g", "f"))
    assert is_within(("d",), ("g", "f", "e"))


def test_a_name_says_whose_place_it_took() -> None:
    start = np.array([0, 10, 5, 50, 50, 60, 60, 70], np.uint64)
    size = np.array([20, 4, 7, 4, 4, 1, 0, 9], np.uint64)
    assert meant_in_any_order(start, size, ["old", "mid", "new", "same", "same", "alone", "empty", "last"]) == [
        ("old",), ("mid", "old"), ("new", "old", ""), ("same",), ("same",), ("alone",), ("empty",), ("last",),
    ]  # fmt: skip
    # What stood there in between is known, too, though the first and the last are one.
    assert meant_in_any_order(start[:3] * 0, size[:3], ["f", "g", "f"]) == [("f",), ("g",), ("f", "g")]
    assert meant_in_any_order(start[:0], size[:0], []) == []
    # Four at one place, the last of them neither the first nor the last that was ever named.
    four = np.zeros(4, np.uint64), np.ones(4, np.uint64)
    assert len(meant_in_any_order(*four, ["e", "f", "g", "h"])[3]) == 3
    assert [len(each) for each in meant_in_any_order(*four, ["e", "f", "e", "f"])] == [1, 1, 1, 2]
