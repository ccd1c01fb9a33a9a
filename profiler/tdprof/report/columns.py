"""Every table for people: aligned columns, the same on a terminal and in a pipe."""

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeGuard, TypeVar, cast

from tdprof.text import plural
from tdprof.values import dataclass

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# A cell: plain, or with a style.
Cell = TypeVar("Cell", str, "Text")
_BETWEEN = "  "
_LEAST_PROSE = 20  # columns for words that wrap
# Where the width does not hold the table a column gives way down to here; then lines are cut at their end.
_NARROWEST = 4
_BRANCHES = " │├└─"
_LINES_AT_ONCE = 1 << 12  # given to the console, which takes many times what they say


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        heading: its title.
        is_right: numbers stand to the right.
        shrinks: it may be cut to a beginning, "…" and an end for a table to fit, the widest such column first; numbers
            stay whole.
        wraps: prose, in the last column only: it goes on in further lines.
    """

    heading: str = ""
    is_right: bool = False
    shrinks: bool = False
    wraps: bool = False


def numbers(*headings: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(heading, is_right=True) for heading in headings]


def names(*headings: str) -> list[Column]:
    """Columns of names, which give way where the width asks for it."""
    return [Column(heading, shrinks=True) for heading in headings]


def format_table(columns: Sequence[Column], rows: Iterable[Sequence["str | Text"]], width: int) -> list["Text"]:
    """Headings and rows as lines of at most ``width`` columns, without trailing blanks."""
    return [*table_lines(columns, [*rows], width)]


def table_lines(columns: Sequence[Column], rows: Iterable[Sequence["str | Text"]], width: int) -> Iterator["Text"]:
    """The same one line after the other; ``rows`` are gone through twice, so that nobody has to hold them."""
    from rich.text import Text  # slow to load, and plain columns do without

    last = len(columns) - 1
    headings = [column.heading for column in columns]
    both = itertools.chain([headings], rows)
    widths = _widest([*map(len, row)] if _are_plain(row) else [*map(_cell_width, row)] for row in both)
    if columns[last].wraps:  # it gives way before names do
        widths[last] = min(widths[last], _LEAST_PROSE)
    widths = _fitted(columns, widths, width)
    beside = sum(widths[:last]) + len(_BETWEEN) * last
    layout = _BETWEEN.join(
        f"%{'' if column.is_right else '-'}{size}s" for column, size in zip(columns, widths, strict=True)
    )
    for number, row in enumerate(itertools.chain([headings], rows)):
        style = "bold" if not number else ""
        is_fitting = not columns[last].wraps and _are_plain(row) and all(map(operator.le, map(len, row), widths))
        if is_fitting and len(shown := (layout % tuple(row)).rstrip()) <= width:
            yield Text(shown, style)
            continue
        line, plain = Text(style=style), ""
        for i, cell in enumerate(row[:last]):
            if _is_plain(cell) and len(cell) <= widths[i]:
                plain += _padded(cell, widths[i], is_right=columns[i].is_right) + _BETWEEN
            else:
                line.append(plain).append_text(_padded(_styled(cell), widths[i], is_right=columns[i].is_right))
                plain = _BETWEEN
        line.append(plain)
        end = row[last]
        if columns[last].wraps:
            if isinstance(end, str):
                first, *more = prose(end, width - beside)
            else:
                first, *more = flow([*end.split(" ")], width - beside, separator=" ")
            yield line.append_text(first)
            yield from (Text(" " * beside).append_text(each) for each in more)
            continue
        if _is_plain(end) and len(end) <= widths[last]:
            line.append(_padded(end, widths[last], is_right=columns[last].is_right).rstrip())
        else:
            line.append_text(_padded(_styled(end), widths[last], is_right=columns[last].is_right))
        line.rstrip()
        if line.cell_len > width:
            line.truncate(width, overflow="ellipsis")
        yield line


def _are_plain(row: Sequence["str | Text"]) -> TypeGuard[Sequence[str]]:
    """`_is_plain` of all cells, at once: of millions one by one takes longer than all else."""
    try:
        return "".join(cast("Sequence[str]", row)).isascii()
    except TypeError:
        return False


def _cell_width(cell: "str | Text") -> int:
    return len(cell) if _is_plain(cell) else _styled(cell).cell_len


def _is_plain(cell: "str | Text") -> TypeGuard[str]:
    """Whether a cell is as wide as it is long, and needs nothing of Text, which costs more than all else here."""
    return isinstance(cell, str) and cell.isascii()


def _styled(cell: "str | Text") -> "Text":
    from rich.text import Text  # slow to load, and plain columns do without

    return Text(cell) if isinstance(cell, str) else cell


def format_columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "") -> list[str]:
    """The same of plain cells, with whatever headings among the rows, as wide as they are.

    Args:
        right: the columns to align to the right, from 0.
    """
    widths = _widest([*map(len, row)] for row in rows)
    return [
        (indent + _BETWEEN.join(_padded(cell, widths[i], is_right=i in right) for i, cell in enumerate(row))).rstrip()
        for row in rows
    ]


def _widest(lengths: Iterable[Sequence[int]]) -> list[int]:
    """The largest of each column."""
    widths: list[int] = []
    for row in lengths:
        widths = [*map(max, widths, row)] if widths else [*row]
    return widths


def _padded(cell: Cell, width: int, *, is_right: bool) -> Cell:
    """A cell as wide as its column; cut if it is wider, which plain cells never are."""
    if isinstance(cell, str):
        return cell.rjust(width) if is_right else cell.ljust(width)
    shown = _cut(cell, width)
    (shown.pad_left if is_right else shown.pad_right)(width - shown.cell_len)
    return shown


def _cut(cell: "Text", width: int) -> "Text":
    """At most ``width`` columns of a cell: names are told apart by what they begin and end with.

    First the parameters of C++ functions go, then the arguments of templates and folders, then what is in the middle.
    The branches of a tree in front of it stay, and what is said in brackets as long as anything else can go.
    """
    shown = cell.copy()
    for shorten in (_without_parameters, _without_arguments, _without_folders):
        if shown.cell_len > width and not shown.spans:
            shown.plain = shorten(shown.plain)
    if shown.cell_len <= width:
        return shown
    before = len(shown.plain) - len(shown.plain.lstrip(_BRANCHES))
    left = width - 1 - before
    if left - left // 2 < shown.plain.find("] ") + 2 - before:
        shown.plain = _without_file(shown.plain)
        if shown.cell_len <= width:
            return shown
    if left < _NARROWEST or shown.cell_len > len(shown.plain):  # of wide letters the end is left out
        shown.truncate(width, overflow="ellipsis")
        return shown
    head, tail = shown[: before + left - left // 2], shown[len(shown.plain) - left // 2 :]
    head = head[: len(head.plain.rstrip("…"))]
    return head.append("…").append_text(tail[len(tail.plain) - len(tail.plain.lstrip("…")) :])


def _without_parameters(name: str) -> str:
    """``f(int, char) const`` is ``f(…) const``."""
    end, depth = name.rfind(")"), 0
    for at in range(end, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0 and end - at > 2 and name[at + 1 : end] != "anonymous namespace":
            return f"{name[: at + 1]}…{name[end:]}"
        if depth == 0:
            break
    return name


def _without_arguments(name: str) -> str:
    """``v<int, w<char>>::f`` is ``v<…>::f``; operators that have such signs stay as they are."""
    if "operator" in name or name.count("<") != name.count(">"):
        return name
    shown, depth = [], 0
    for letter in name:
        depth -= letter == ">"
        if depth == 0:
            shown.append("…>" if letter == ">" else letter)
        depth += letter == "<"
    return "".join(shown)


def _without_folders(name: str) -> str:
    """``JS:parse /srv/app/lib/parse.js:10:4`` is ``JS:parse …/parse.js:10:4``."""
    return re.sub(r" \S*/(?=[^/ ]+:\d+$)", " …/", name)


def _without_file(name: str) -> str:
    """``[stripped] libz.so.1+0x3a0`` is ``[stripped] …+0x3a0``."""
    return re.sub(r"(?<=\] )\S+(?=\+0x[0-9a-f]+(-0x[0-9a-f]+)?$)", "…", name)


def _fitted(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Widths with which a table fits, if its shrinking columns can give enough; the widest give first, and the last of
    them as long as it is twice as wide as the others."""
    fitted = list(widths)
    excess = sum(fitted) + len(_BETWEEN) * (len(fitted) - 1) - width
    shrinking = [i for i, column in enumerate(columns) if column.shrinks]
    while excess > 0 and shrinking:
        # What stands last is what the row is about.
        widest = max(shrinking, key=lambda i: fitted[i] * (1 if i == shrinking[-1] else 2))
        if fitted[widest] <= _NARROWEST:
            break
        fitted[widest] -= 1
        excess -= 1
    return fitted


def flow(
    items: Sequence["Text"], width: int, *, indent: int = 0, hanging: int = 0, separator: str = _BETWEEN
) -> list["Text"]:
    """Items side by side on as many lines as the width asks for; an item is broken only if no line holds it.

    Args:
        indent, hanging: blanks before the first line, and before the others on top of these.
    """
    from rich.text import Text  # slow to load, and plain columns do without

    lines: list[Text] = []

    def put(item: Text, between: str, *, is_new_line: bool = False) -> None:
        if lines and not is_new_line and lines[-1].cell_len + len(between) + item.cell_len <= width:
            lines[-1].append(between).append_text(item)
        else:
            lines.append(Text(" " * (indent + (hanging if lines else 0))).append_text(item))

    for item in items:
        is_long = indent + hanging + item.cell_len > width
        for number, part in enumerate(item.split(" ") if is_long else [item]):
            put(part, " " if number else separator, is_new_line=is_long and not number)
    return lines


def labelled(pairs: Iterable[tuple[str, str]], width: int) -> list["Text"]:
    """Labels in a column of their own, each with its words beside it, wrapped to the width."""
    from rich.text import Text  # slow to load, and plain columns do without

    rows = [(Text(label, style="bold"), value) for label, value in pairs]
    return format_table([Column(), Column(wraps=True)], rows, width)[1:]


def prose(text: str, width: int, *, style: str = "", indent: int = 0) -> list["Text"]:
    """A sentence on as many lines as the width asks for."""
    # As `flow` of the words does, for a hundredth of the time: a stranger's note may have a hundred thousand of them.
    from rich.cells import cell_len
    from rich.text import Text  # slow to load, and plain columns do without

    lines: list[str] = []
    taken = width
    for word in text.split(" "):
        length = len(word) if word.isascii() else cell_len(word)
        if indent + length <= width and taken + 1 + length <= width:
            lines[-1] += f" {word}"
            taken += 1 + length
        else:
            lines.append(word)
            taken = indent + length
    return [Text(" " * indent).append(line, style) for line in lines]


def left_out(count: int, what: str, width: int, *, hint: str = "--limit 0 shows all") -> list["Text"]:
    """The line below a table that leaves rows out; none if it does not.

    Args:
        what: one of them in words, if they have a name.
    """
    rows = plural(count, f"more {what}", "s") if what else f"{count:,} more"
    return prose(f"and {rows} ({hint})", width, style="dim") if count else []


def as_text(console: "Console", lines: Iterable["Text"]) -> str:
    """Lines as the console prints them, without trailing blanks."""
    return "".join(text_pieces(console, lines))


def text_pieces(console: "Console", lines: Iterable["Text"]) -> Iterator[str]:
    """The same piece by piece, so that nobody has to hold it."""
    # Without colours as the console would, for a twentieth of the time.
    texts = map(_plain, lines) if console.color_system is None else _printed(console, iter(lines))
    stripped = (text.rstrip() for text in texts)
    between = ""
    while some := [*itertools.islice(stripped, _LINES_AT_ONCE)]:
        piece = between + "\n".join(some)
        shown = piece.rstrip()
        yield shown
        between = piece[len(shown) :] + "\n"
    yield "\n"


def _printed(console: "Console", lines: Iterator["Text"]) -> Iterator[str]:
    while some := [*itertools.islice(lines, _LINES_AT_ONCE)]:
        with console.capture() as capture:
            console.print(*some, sep="\n", soft_wrap=True)
        yield from capture.get().splitlines()


def _plain(line: "Text") -> str:
    if "\t" in line.plain:
        line.expand_tabs(8)
    return line.plain
