"""Two captures beside each other as comma-separated values."""

from collections.abc import Iterator, Sequence

from tdprof.profile.compare import Changes, Comparison, Match
from tdprof.report.comparison.rows import changed_values, order_functions
from tdprof.report.csv_lines import write_rows

COLUMNS = (
    *("function", "function_a", "module", "match", "kind", "quantity", "source", "units"),
    *("a", "b", "low", "high", "p", "is_significant"),
)


def render_csv(comparison: Comparison, *, event: int, limit: int) -> Iterator[str]:
    """A line for each value of the program (no function) and of each function; unknown values are empty."""
    return write_rows(COLUMNS, _rows(comparison, order_functions(comparison, event)[: limit or None]))


def _rows(comparison: Comparison, rows: Sequence[int]) -> Iterator[Sequence[object]]:
    functions = comparison.functions
    yield from _values(("", "", "", ""), "program", comparison.program, 0)
    for row in rows:
        name = functions.names[row] if functions.match[row] is not Match.ONLY_A else ""
        who = (name, functions.names_a[row], functions.modules[row], str(functions.match[row]))
        yield from _values(who, "self", comparison.self_changes, row)
        yield from _values(who, "total", comparison.inclusive_changes, row)


def _values(who: Sequence[str], kind: str, changes: Changes, row: int) -> Iterator[Sequence[object]]:
    for entry in changed_values(changes, row):
        shown = kind if entry["source"] == "samples" or kind == "program" else "metric"
        values = [entry[name] for name in ("quantity", "source", "units", "a", "b", "low", "high", "p")]
        yield [*who, shown, *values, int(entry["is_significant"])]
