"""SPE operations for people: latencies, where loads were served from, ratios and their intervals."""

import itertools
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from tdprof.model.arrays import I64
from tdprof.model.spe import LineAccess, MemoryUser, RatioColumn, SpeReport, mean_latency
from tdprof.report.columns import Column, left_out, names, numbers, table_lines, text_pieces
from tdprof.text import printable
from tdprof.values import dataclass

# Shown as columns of the text: the others are in the JSON.
_TEXT_RATIOS = {
    "branch_misprediction_ratio": "mispredict",
    "l1d_cache_miss_ratio": "L1D miss",
    "dtlb_walk_ratio": "DTLB walk",
}
# Narrower tables leave their columns to the names.
WIDE_COLUMNS = 120
# The JSON has all.
_MOST_USERS, _MOST_LINES, _MOST_ACCESSES = 3, 8, 8


def render_text(report: SpeReport, console: Console, *, limit: int, title: str) -> Iterator[str]:
    """A table, most operations first; shares in percent, latencies in cycles. In pieces: it may be long."""
    levels = report.levels_met
    columns = numbers("ops %", "ops", "ld %", "st %", "br %", "mean", "p50", "p90", "p99")
    columns += numbers(*(f"{level} %" for level in levels))
    ratios = _TEXT_RATIOS if console.width >= WIDE_COLUMNS else {}
    columns += numbers(*(f"{heading} %" for heading in ratios.values()))
    columns += numbers("threads") if report.threads is not None else []
    columns += [Column("sharing")] if report.sharing is not None else []
    columns += names(title)
    table = table_lines(columns, _Rows(report, [*ratios], limit), console.width)
    rows = len(report.names) + report.following
    lines = left_out(rows - min(rows, limit or rows) + report.left_out, "row", console.width)
    lines += [
        Text(),
        Text(f"{report.total_operations} operations; shares of loads by level; in brackets 95 % intervals"),
    ]
    if report.weight:
        lines.append(Text(f"each stands for about {report.weight.value:.0f} of the program's ({report.weight.source})"))
    lines += [Text(f"note: {note}") for note in report.notes]
    return text_pieces(console, itertools.chain(table, lines, _shared_lines(report, limit, console.width)))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The table's rows, made anew each time that somebody goes through them: there may be many."""

    report: SpeReport
    ratios: Sequence[str]
    limit: int

    def __iter__(self) -> Iterator[Sequence[str]]:
        for part, rows in self.report.parts(self.limit):
            yield from _cells(part, rows, self.report.levels_met, self.ratios)


def _cells(part: SpeReport, rows: I64, levels: Sequence[str], ratios: Sequence[str]) -> Iterator[Sequence[str]]:
    """A column at a time."""
    counts = {
        name: part.counts[name][rows].tolist() for name in ("OPERATIONS", "RETIRED", "LOADS", "STORES", "BRANCHES")
    }
    mean, quantiles = mean_latency(part, "total_latency")[rows], part.latencies["total_latency"][rows]
    columns = [
        [_percent(count, part.total_operations) for count in counts["OPERATIONS"]],
        [*map(str, counts["OPERATIONS"])],
    ]
    columns += [[*map(_percent, counts[name], counts["RETIRED"])] for name in ("LOADS", "STORES", "BRANCHES")]
    columns += [[*map(_cycles, values.tolist())] for values in (mean, *quantiles.T)]
    columns += [[*map(_percent, part.levels[level][rows].tolist(), counts["LOADS"])] for level in levels]
    columns += [_intervals(part.ratios[name], rows) for name in ratios]
    if part.threads is not None:
        columns.append([*map(str, part.threads[rows].tolist())])
    if part.sharing is not None:
        columns.append([found.how if (found := part.sharing[row]) else "" for row in rows.tolist()])
    users = part.users
    columns.append(
        [": ".join(filter(None, [part.names[row], _known_as(users[row]) if users else ""])) for row in rows.tolist()]
    )
    return zip(*columns, strict=True)


def _known_as(users: Sequence[MemoryUser]) -> str:
    """Who knows a block of memory by which address, of many the first."""
    known = [f"{printable(str(user))} 0x{user.address:x}".lstrip() for user in users[:_MOST_USERS]]
    return ", ".join([*known, *[f"{len(users) - _MOST_USERS} more"] * (len(users) > _MOST_USERS)])


def _shared_lines(report: SpeReport, limit: int, width: int) -> Iterator[Text]:
    """Who does what in the lines that are shared, of many the first."""
    columns = numbers("offset", "loads", "stores", "threads") + names("process", "function")
    shown = 0
    for part, rows in report.parts(limit) if report.sharing is not None else ():
        for row in rows.tolist():
            sharing = part.sharing[row] if part.sharing is not None else None
            shown += sharing is not None
            if sharing is None or shown > _MOST_LINES:
                continue
            seen = ""
            if sharing.in_order:
                seen = f": {sharing.turns} of {sharing.in_order} accesses came after another's"
            yield from (Text(), Text(f"{part.names[row]}, {sharing.how} sharing{seen}"))
            yield from table_lines(columns, [*map(_access, sharing.accesses[:_MOST_ACCESSES])], width)
            yield from _not_shown(len(sharing.accesses) - _MOST_ACCESSES, "row", width)
    yield from _not_shown(shown - _MOST_LINES, "shared line", width)


def _access(access: LineAccess) -> Sequence[str]:
    counts = access.offset, access.loads, access.stores, access.user.threads
    return (*map(str, counts), _known_as([access.user]), printable(access.function))


def _not_shown(count: int, what: str, width: int) -> Sequence[Text]:
    return left_out(max(0, count), what, width, hint="--json has all")


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _cycles(value: float) -> str:
    return "-" if value != value else f"{value:.0f}"


def _intervals(ratio: RatioColumn, rows: I64) -> list[str]:
    bounds = (values[rows].tolist() for values in (ratio.value, ratio.low, ratio.high))
    return [
        "-" if value != value else f"{100 * value:.1f} ({100 * low:.1f}-{100 * high:.1f})"
        for value, low, high in zip(*bounds, strict=True)
    ]
