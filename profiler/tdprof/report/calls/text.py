"""Who calls whom for people."""

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from tdprof.model.profile import Profile
from tdprof.profile.call_lines import CallLines
from tdprof.profile.frames import function_names
from tdprof.profile.hotspots import UnknownSamples
from tdprof.report.columns import as_text, format_table, left_out, names, numbers, prose
from tdprof.report.profile.text import LEAST_SHARE, header_lines, percent

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
    """What was measured, then each tree: those calls that weigh most, indented where a call has several below it.

    Args:
        event: of the trees.
        limit: the most rows of each tree, 0 for all; None for as many as usual, without those that round to nothing.
        usual: how many that is.
    """
    width = console.width
    lines = header_lines(profile, unknown, width)
    for name, tree in trees.items():
        lines += _tree_lines(profile, tree, _TITLES[name], limit, usual, width)
        lines.append(Text())
    return as_text(console, lines)


def _tree_lines(profile: Profile, tree: CallLines, title: str, limit: int | None, usual: int, width: int) -> list[Text]:
    if not len(tree):
        return prose(f"{title}: no samples of this event", width)
    rows = tree.heaviest(usual if limit is None else limit, LEAST_SHARE if limit is None else 0.0).tolist()
    function, whole = function_names(profile), float(tree.total[0] / tree.share[0])
    shown = set(rows)
    below: dict[int, int] = {}
    for row in rows:
        below[int(tree.parent[row])] = below.get(int(tree.parent[row]), 0) + 1
    indent: dict[int, int] = {-1: 0}
    cells: list[list[str | Text]] = []
    for row in rows:
        parent = int(tree.parent[row])
        # A chain of single calls stays in its column: only where the way forks does the tree move to the right.
        indent[row] = indent[parent] + (1 if parent in shown and below[parent] > 1 else 0)
        name = function[int(tree.function[row])]
        text = "  " * min(indent[row], _DEEPEST) + name
        cells.append(
            [
                percent(float(tree.share[row])),
                percent(float(tree.own[row]) / whole),
                f"{int(tree.samples[row]):,}",
                Text(text, "dim") if name.startswith("[") else text,
            ]
        )
    columns = [*numbers("total", "self", "samples"), *names(title)]
    return [*format_table(columns, cells, width), *left_out(len(tree) - len(rows), "call", width)]
