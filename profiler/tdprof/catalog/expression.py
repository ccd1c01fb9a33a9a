"""Metric formulas as expression trees: numbers, event names, + - * / and parentheses, and nothing else."""

import re
from collections.abc import Callable, Mapping
from enum import Enum

from tdprof.values import dataclass

# Both limits are far above any published formula; they keep a hostile one from exhausting the stack.
MAX_FORMULA_CHARACTERS = 4096
MAX_DEPTH = 100

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<name>[A-Za-z_]\w*)|(?P<symbol>[-+*/()]))", re.ASCII)


class Operator(Enum):
    """The four operations, by the character that stands for them."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """The count of the event called ``name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """``left operator right``."""

    operator: Operator
    left: "Expression"
    right: "Expression"


Expression = Number | Name | Operation


class FormulaError(ValueError):
    """A formula that is not of the grammar; the message says what is wrong and at which character (from 1)."""


def parse_formula(text: str) -> Expression:
    """Parse a formula into a tree; ``*`` and ``/`` bind closer than ``+`` and ``-``, equals group from the left.

    Raises:
        FormulaError: for anything but numbers, names, ``+ - * /`` and balanced parentheses.
    """
    if len(text) > MAX_FORMULA_CHARACTERS:
        raise FormulaError(f"longer than {MAX_FORMULA_CHARACTERS} characters")
    return _Parser(text).parse()


def event_names(expression: Expression) -> tuple[str, ...]:
    """The names in a formula, each once, in the order they first appear."""
    match expression:
        case Number():
            return ()
        case Name(name):
            return (name,)
        case Operation(_, left, right):
            return tuple(dict.fromkeys(event_names(left) + event_names(right)))


def denominators(expression: Expression) -> tuple[Expression, ...]:
    """Everything the formula divides by, outermost first."""
    if not isinstance(expression, Operation):
        return ()
    own = (expression.right,) if expression.operator is Operator.DIVIDE else ()
    return own + denominators(expression.left) + denominators(expression.right)


def divides_by_zero(expression: Expression) -> bool:
    """Whether something that the formula divides by is zero whatever is counted."""
    # Two sets of unlike counts: what is zero by chance in one is not in the other.
    names = event_names(expression)
    points = [{name: scale * (place + 3) ** 2 + 7 for place, name in enumerate(names)} for scale in (1009.0, 97.0)]
    return any(all(_at(part, point) == 0 for point in points) for part in denominators(expression))


def _at(expression: Expression, counts: Mapping[str, float]) -> float:
    """The value with these counts; what has none, for a zero in it, is zero."""
    match expression:
        case Number(value):
            return value
        case Name(name):
            return counts[name]
        case Operation(operator, left, right):
            return _APPLIED[operator](_at(left, counts), _at(right, counts))


_APPLIED: Mapping[Operator, Callable[[float, float], float]] = {
    Operator.ADD: lambda a, b: a + b,
    Operator.SUBTRACT: lambda a, b: a - b,
    Operator.MULTIPLY: lambda a, b: a * b,
    Operator.DIVIDE: lambda a, b: a / b if b else 0.0,
}


class _Parser:
    """Recursive descent over the tokens; `depth` counts the height of the tree, nesting and chains alike."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokenize(text)
        self.next = 0

    @staticmethod
    def _tokenize(text: str) -> list[tuple[str, str, int]]:
        """(kind, text, position) of each token."""
        tokens = []
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None:
                start = len(text) - len(text[position:].lstrip())
                raise FormulaError(f"unexpected {text[start]!r} at character {start + 1}")
            kind = found.lastgroup
            assert kind is not None
            tokens.append((kind, found[kind], found.start(kind)))
            position = found.end()
        return tokens

    def parse(self) -> Expression:
        if not self.tokens:
            raise FormulaError("empty formula")
        expression, _ = self._sum(0)
        if self.next < len(self.tokens):
            raise self._unexpected("an operator")
        return expression

    def _peek(self) -> str:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else ""

    def _unexpected(self, wanted: str) -> FormulaError:
        if self.next >= len(self.tokens):
            return FormulaError(f"ends where {wanted} is expected")
        _, token, position = self.tokens[self.next]
        return FormulaError(f"unexpected '{token}' at character {position + 1}, expected {wanted}")

    def _sum(self, nesting: int) -> tuple[Expression, int]:
        return self._chain(("+", "-"), self._product, nesting)

    def _product(self, nesting: int) -> tuple[Expression, int]:
        return self._chain(("*", "/"), self._atom, nesting)

    def _chain(
        self, symbols: tuple[str, str], operand: Callable[[int], tuple[Expression, int]], nesting: int
    ) -> tuple[Expression, int]:
        left, depth = operand(nesting)
        while self._peek() in symbols:
            operator = Operator(self._peek())
            self.next += 1
            right, right_depth = operand(nesting)
            left, depth = Operation(operator, left, right), max(depth, right_depth) + 1
            self._check_depth(depth)
        return left, depth

    def _atom(self, nesting: int) -> tuple[Expression, int]:
        self._check_depth(nesting)
        if self.next >= len(self.tokens):
            raise self._unexpected("a number, an event or '('")
        kind, token, _ = self.tokens[self.next]
        if kind == "number":
            self.next += 1
            return Number(float(token)), 1
        if kind == "name":
            self.next += 1
            return Name(token), 1
        if token != "(":
            raise self._unexpected("a number, an event or '('")
        self.next += 1
        inner, depth = self._sum(nesting + 1)
        if self._peek() != ")":
            raise self._unexpected("')'")
        self.next += 1
        return inner, depth

    @staticmethod
    def _check_depth(depth: int) -> None:
        if depth > MAX_DEPTH:
            raise FormulaError(f"nested deeper than {MAX_DEPTH}")
