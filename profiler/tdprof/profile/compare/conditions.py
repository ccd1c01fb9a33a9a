"""What a comparison is to be judged by: ``--fail-on`` expressions, and whether they hold.

    [FUNCTION:]QUANTITY > NUMBER[%]       rose by more than that
    [FUNCTION:]QUANTITY < -NUMBER[%]      fell by more than that

With a percent sign the limit is relative to A's value, without it in the quantity's units.
"""

import difflib
import re
from collections.abc import Sequence

import numpy as np

from tdprof.errors import TdprofError
from tdprof.model.choices import Basis
from tdprof.profile.compare.changes import Changes, Comparison
from tdprof.profile.compare.significance import FAMILY_ERROR
from tdprof.profile.naming import base_name
from tdprof.profile.statistics import holm
from tdprof.values import dataclass

_GRAMMAR = re.compile(
    r"\s*(?P<what>.+?)\s*(?P<relation>[<>])\s*(?P<limit>[+-]?(?:\d+\.?\d*|\.\d+))\s*(?P<percent>%?)\s*", re.DOTALL
)
_EXAMPLES = "total>5%, work:self>10%, ipc<-5%, '*:l1d_cache_mpki>2'"
ANY = "*"


@dataclass(frozen=True, slots=True)
class Condition:
    """One expression, as it was written.

    Attributes:
        what: the left side: ``QUANTITY`` or ``FUNCTION:QUANTITY``.
        is_rise: whether rising or falling beyond the limit is meant.
        limit: of the change B - A; a percentage of A's value, or in the quantity's units.
    """

    text: str
    what: str
    is_rise: bool
    limit: float
    is_percent: bool


@dataclass(frozen=True, slots=True)
class Breach:
    """A change that a condition forbids, beyond its limit and beyond chance.

    Attributes:
        what: ``QUANTITY`` or ``FUNCTION:QUANTITY``.
        units: of ``a`` and ``b``.
        p: adjusted for all that the conditions asked about.
    """

    condition: str
    what: str
    units: str
    a: float
    b: float
    p: float


@dataclass(frozen=True, slots=True)
class _Question:
    """One value that a condition asks about."""

    condition: Condition
    what: str
    table: Changes
    row: int
    column: int

    @property
    def is_beyond(self) -> bool:
        a, b = self.table.a[self.row, self.column], self.table.b[self.row, self.column]
        change = b - a
        if self.condition.is_percent:
            change = 100 * change / abs(a) if a else np.sign(change) * np.inf
        return bool(change > self.condition.limit if self.condition.is_rise else change < self.condition.limit)


def parse_condition(text: str) -> Condition:
    """Read an expression.

    Raises:
        TdprofError: it is none.
    """
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise TdprofError(f"--fail-on: cannot read '{text}'", hint=f"such as {_EXAMPLES}", status=2)
    is_rise, limit = match["relation"] == ">", float(match["limit"])
    if limit < 0 if is_rise else limit > 0:
        raise TdprofError(
            f"--fail-on: '{text}' would hold where nothing changed", hint=f"limits of changes: {_EXAMPLES}", status=2
        )
    return Condition(text, match["what"], is_rise, limit, bool(match["percent"]))


def find_breaches(comparison: Comparison, conditions: Sequence[Condition]) -> list[Breach]:
    """The conditions that are broken, by significant changes: their own tests are one family.

    Raises:
        TdprofError: a condition asks for what the comparison does not have, or what too few samples tell of.
    """
    questions = [question for condition in conditions for question in _ask(comparison, condition)]
    adjusted = holm(np.array([question.table.p[question.row, question.column] for question in questions]))
    return [
        Breach(
            question.condition.text,
            question.what,
            question.table.quantities[question.column].units,
            float(question.table.a[question.row, question.column]),
            float(question.table.b[question.row, question.column]),
            p,
        )
        for question, p in zip(questions, adjusted.tolist(), strict=True)
        if p <= FAMILY_ERROR and question.is_beyond
    ]


def _ask(comparison: Comparison, condition: Condition) -> list[_Question]:
    function, quantity = _split(comparison, condition)
    table, column = _find_column(comparison, condition, quantity, is_program=not function)
    if not function:
        return [_question(condition, quantity, table, 0, column)]
    if function == ANY:
        return [
            _Question(condition, f"{comparison.functions.names[row]}:{quantity}", table, row, column)
            for row in np.flatnonzero(~np.isnan(table.p[:, column])).tolist()
        ]
    row = _find_function(comparison, condition, function)
    return [_question(condition, f"{comparison.functions.names[row]}:{quantity}", table, row, column)]


def _question(condition: Condition, what: str, table: Changes, row: int, column: int) -> _Question:
    is_unclear = table.is_vague(row, column) and not table.is_significant[row, column]
    if np.isnan(table.p[row, column]) or is_unclear:
        raise TdprofError(
            f"--fail-on '{condition.text}': there are too few samples to compare {what}",
            hint="record for longer, or sample more often (-F)",
            status=2,
        )
    return _Question(condition, what, table, row, column)


def _quantities(comparison: Comparison) -> list[str]:
    tables = (comparison.program, comparison.self_changes)
    return ["self", "total", *dict.fromkeys(quantity.name for table in tables for quantity in table.quantities)]


def _split(comparison: Comparison, condition: Condition) -> tuple[str, str]:
    """Function, or "", and quantity. Names of both may hold colons: the longest known quantity at the end is it."""
    known = _quantities(comparison)
    for name in sorted(known, key=len, reverse=True):
        if condition.what == name:
            return "", name
        if condition.what.endswith(f":{name}"):
            return condition.what[: -len(name) - 1], name
    quantity = condition.what.rpartition(":")[2]
    close = difflib.get_close_matches(quantity, known, n=1)
    raise TdprofError(
        f"--fail-on '{condition.text}': neither an event nor a metric of both captures is called '{quantity}'",
        hint=f"did you mean {close[0]}?" if close else f"one of: {', '.join(known)}",
        status=2,
    )


def _find_column(
    comparison: Comparison, condition: Condition, quantity: str, *, is_program: bool
) -> tuple[Changes, int]:
    table = comparison.program if is_program else comparison.self_changes
    if quantity == "total" and not is_program:
        return comparison.inclusive_changes, 0
    if quantity == "self":
        if is_program:
            raise TdprofError(f"--fail-on '{condition.text}': self is a function's", hint="work:self>5%", status=2)
        return table, 0
    if quantity == "total" and comparison.basis is Basis.RUN:
        return table, 0
    column = table.column(quantity)
    if column is None:
        raise TdprofError(
            f"--fail-on '{condition.text}': only shares can be compared, since not both captures are of a command that "
            "ran to its end",
            hint=f"a function's share: work:{quantity}>5%; or --basis run",
            status=2,
        )
    return table, column


def _find_function(comparison: Comparison, condition: Condition, name: str) -> int:
    functions = comparison.functions
    pairs = list(zip(functions.names, functions.names_a, strict=True))
    rows = [row for row, pair in enumerate(pairs) if name in pair]
    rows = rows or [row for row, pair in enumerate(pairs) if name in map(base_name, pair)]
    if len(rows) == 1:
        return rows[0]
    if rows:
        where = ", ".join(functions.modules[row] or "?" for row in rows)
        raise TdprofError(f"--fail-on '{condition.text}': {len(rows)} functions have that name: {where}", status=2)
    close = difflib.get_close_matches(name, functions.names, n=3)
    raise TdprofError(
        f"--fail-on '{condition.text}': neither capture has samples in a function '{name}'",
        hint=f"did you mean {' or '.join(close)}?" if close else "names as tdprof diff A B --limit 0 prints them",
        status=2,
    )
