"""--fail-on expressions: what they mean, and what they refuse."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from builders.runs import simulate_run
from tdprof.errors import TdprofError
from tdprof.model.choices import Basis
from tdprof.profile.compare import Comparison, compare
from tdprof.profile.compare.conditions import find_breaches, parse_condition

PROGRAM = {"a::work(int)": 0.5, "parse": 0.3, "hash": 0.199, "rare": 0.001}


@functools.cache
def compared(basis: Basis = Basis.RUN) -> Comparison:
    """work(int) takes 30 % more, parse a third less."""
    random = np.random.default_rng(3)
    a = simulate_run(random, PROGRAM, seconds=5)
    b = simulate_run(random, PROGRAM, seconds=5, slow={"a::work(int)": 1.3, "parse": 0.66})
    return compare(a, b, basis=basis)


def breaches(*texts: str, basis: Basis = Basis.RUN) -> list[str]:
    return [breach.what for breach in find_breaches(compared(basis), [parse_condition(text) for text in texts])]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a::work(int):self>5%", ["a::work(int):self"]),
        ("a::work(int):self>40%", []),
        ("a::work(int):total > 5 %", ["a::work(int):total"]),
        ("a::work(int):cpu-clock>.5e0%", None),
        ("a::work(int):cpu-clock>500000000", ["a::work(int):cpu-clock"]),
        ("a::work(int):cpu-clock>900000000", []),
        ("parse:self>5%", []),
        ("parse:self<-20%", ["parse:self"]),
        ("parse:self<-50%", []),
        ("*:self>5%", ["a::work(int):self"]),
        ("hash:self>0%", []),
        ("total>10%", []),
        ("main:self>0", None),
    ],
)
def test_expressions(text: str, what: list[str] | None) -> None:
    if what is None:
        with pytest.raises(TdprofError) as caught:
            breaches(text)
        assert caught.value.status == 2
    else:
        assert breaches(text) == what


def test_several_are_judged_together() -> None:
    assert breaches("a::work(int):self>5%", "parse:self<-5%", "hash:self>5%") == ["a::work(int):self", "parse:self"]


def test_shares_have_functions_only() -> None:
    assert breaches("a::work(int):self>5%", basis=Basis.SHARE) == ["a::work(int):self"]
    assert breaches("a::work(int):self>5", basis=Basis.SHARE) == ["a::work(int):self"]  # points
    assert breaches("a::work(int):self>30", basis=Basis.SHARE) == []
    with pytest.raises(TdprofError, match="only shares can be compared"):
        breaches("total>5%", basis=Basis.SHARE)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("total", "cannot read 'total'", "such as"),
        ("total>5%%", "cannot read", "such as"),
        ("total>x", "cannot read", "such as"),
        ("total<5%", "would hold where nothing changed", "limits"),
        ("total>-5%", "would hold where nothing changed", "limits"),
        ("cpu-clok>5%", "is called 'cpu-clok'", "did you mean cpu-clock?"),
        ("zzzzzz>5%", "is called 'zzzzzz'", "one of: self, total, cpu-clock"),
        ("prase:self>5%", "neither capture has samples in a function 'prase'", "did you mean parse"),
        ("rare:self>5%", "too few samples to compare rare:self", "longer"),
        ("self>5%", "self is a function's", "work:self>5%"),
    ],
)
def test_what_cannot_be_judged_says_why(text: str, message: str, hint: str) -> None:
    with pytest.raises(TdprofError, match=message) as caught:
        breaches(text)
    assert hint in caught.value.hint
    assert caught.value.status == 2


def test_a_whole_run_of_which_nothing_can_be_told_is_not_passed() -> None:
    known = compared().program
    vague = replace(
        known,
        low=known.a * -4,
        high=known.a * 4,
        p=np.full_like(known.p, 0.5),
        is_significant=np.zeros_like(known.is_significant),
    )
    with pytest.raises(TdprofError, match="too few samples to compare total") as caught:
        find_breaches(replace(compared(), program=vague), [parse_condition("total>5%")])
    assert caught.value.status == 2


def test_any_function_is_judged_for_all_of_them() -> None:
    random = np.random.default_rng(5)
    condition = [parse_condition("*:self>0%")]
    wrong = 0
    for _ in range(50):
        a, b = (simulate_run(random, PROGRAM, seconds=5) for _ in range(2))
        wrong += bool(find_breaches(compare(a, b), condition))
    assert wrong <= 5
