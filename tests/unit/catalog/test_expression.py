"""Formulas: what parses, into which tree, and what is refused with which words."""

import pytest

from tdprof.catalog.expression import (
    FormulaError,
    Name,
    Number,
    Operation,
    Operator,
    denominators,
    event_names,
    parse_formula,
)


def test_products_bind_closer_and_equals_group_from_the_left() -> None:
    assert parse_formula("A - B / 2 - C") == Operation(
        Operator.SUBTRACT,
        Operation(Operator.SUBTRACT, Name("A"), Operation(Operator.DIVIDE, Name("B"), Number(2.0))),
        Name("C"),
    )


def test_parentheses_and_decimals() -> None:
    tree = parse_formula("(A+0.5)*B")
    assert tree == Operation(Operator.MULTIPLY, Operation(Operator.ADD, Name("A"), Number(0.5)), Name("B"))


def test_names_come_once_in_the_order_of_appearance() -> None:
    assert event_names(parse_formula("B / (A + B) * 100")) == ("B", "A")


def test_denominators_are_found_at_every_depth() -> None:
    assert denominators(parse_formula("A / B - 1 / (C + D)")) == (Name("B"), parse_formula("C + D"))


@pytest.mark.parametrize(
    ("formula", "complaint"),
    [
        ("", "empty formula"),
        ("  ", "empty formula"),
        ("A +", "ends where a number, an event or '(' is expected"),
        ("(A", "ends where ')' is expected"),
        ("A)", "unexpected ')' at character 2, expected an operator"),
        ("A B", "unexpected 'B' at character 3, expected an operator"),
        ("-A", "unexpected '-' at character 1, expected a number, an event or '('"),
        ("A ** 2", "unexpected '*' at character 4, expected a number, an event or '('"),
        ("A % B", "unexpected '%' at character 3"),
        ("1e3", "unexpected '1' at character 1"),
        ("1.2.3", "unexpected '1' at character 1"),
        ("A.real", "unexpected '.' at character 2"),
        ("__import__('os').system('id')", 'unexpected "\'" at character 12'),
        ("open(A)", "unexpected '(' at character 5, expected an operator"),
        ("A if B else C", "unexpected 'if' at character 3, expected an operator"),
        ("Ä + 1", "unexpected 'Ä' at character 1"),
    ],
)
def test_anything_else_is_refused_where_it_stands(formula: str, complaint: str) -> None:
    with pytest.raises(FormulaError) as caught:
        parse_formula(formula)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("formula", ["(" * 5000, "(" * 200 + "A" + ")" * 200, "+".join(["A"] * 2000), "A" * 5000])
def test_a_formula_too_large_is_refused_before_it_exhausts_the_stack(formula: str) -> None:
    with pytest.raises(FormulaError, match=r"deeper than|longer than"):
        parse_formula(formula)
