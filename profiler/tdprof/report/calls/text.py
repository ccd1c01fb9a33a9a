"""Who calls whom for people."""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from tdprof.model.arrays import I32, I64
from tdprof.model.profile import Profile
from tdprof.profile.call_lines import CallLines
from tdprof.profile.frames import function_names
from tdprof.profile.guesses import guess_marks
from tdprof.profile.hotspots import UnknownSamples
from tdprof.report.columns import as_text, left_out, names, numbers, prose, table_lines
from tdprof.report.profile.text import LEAST_SHARE, header_lines, percent
from tdprof.values import dataclass

_TITLES = {"calls": "calls", "callers": "called by", "callees": "calls"}
# A line of indentation beyond which a tree says nothing more by it.
_DEEPEST = 30


def render_text(
    profile: Profile,
    trees: Mapping[str, CallLines],
    unknown: list[UnknownSamples],
    console: Console,
    *,
    event: int,
    limit: int | None,
    usual: int,
) -> str:
    """What was measured, then each tree: those calls that weigh most, indented where a call has several below it, of
    which each begins with a dash.

    Args:
        event: of the trees.
        limit: the most rows of each tree, 0 for all; None for as many as usual, without those that round to nothing.
        usual: how many that is.
    """
    width = console.width
    shown = (
        itertools.chain(_tree_lines(profile, tree, _TITLES[name], limit, usual, width), [Text()])
        for name, tree in trees.items()
    )
    return as_text(console, itertools.chain(header_lines(profile, unknown, width), *shown))


def _tree_lines(
    profile: Profile, tree: CallLines, title: str, limit: int | None, usual: int, width: int
) -> Iterator[Text]:
    if not len(tree):
        yield from prose(f"{title}: no samples of this event", width)
        return
    rows = tree.heaviest(usual if limit is None else limit, LEAST_SHARE if limit is None else 0.0)
    columns = [*numbers("total", "self", "samples"), *names(title)]
    yield from table_lines(columns, _Calls(tree, rows, *_places(tree, rows), function_names(profile)), width)
    yield from left_out(len(tree) - len(rows), "call", width)


def _places(tree: CallLines, rows: I64) -> tuple[I32, NDArray[np.bool_]]:
    """int32[rows of the tree], bool[the same]: how far to the right each of the shown rows stands; whether it is one of
    several ways on."""
    parent = tree.parent[rows]
    # A chain of single calls stays in its column: only where the way forks does the tree move to the right.
    forks = np.bincount(parent + 1, minlength=len(tree) + 1) > 1
    is_way = np.zeros(len(tree), bool)
    is_way[rows] = forks[parent + 1]
    indent = np.zeros(len(tree) + 1, np.int32)  # the last: of what stands below nothing
    for row, above in zip(rows.tolist(), parent.tolist(), strict=True):
        indent[row] = indent[above] + is_way[row]
    return indent, is_way


@dataclass(frozen=True, slots=True)
class _Calls:
    """The cells of some rows of a tree, made as often as they are gone through."""

    tree: CallLines
    rows: I64
    indent: I32
    is_way: NDArray[np.bool_]
    function: list[str]

    def __iter__(self) -> Iterator[list[str | Text]]:
        tree, whole = self.tree, float(self.tree.total[0] / self.tree.share[0])
        marks = guess_marks(tree.guessed / tree.samples)
        for row in map(int, self.rows):
            name = self.function[int(tree.function[row])] + marks[row]
            mark = "- " if self.is_way[row] else ""
            text = "  " * (min(int(self.indent[row]), _DEEPEST) - len(mark) // 2) + mark + name
            yield [
                percent(float(tree.share[row])),
                percent(float(tree.own[row]) / whole),
                f"{int(tree.samples[row]):,}",
                Text(text, "dim") if name.startswith("[") else text,
            ]
