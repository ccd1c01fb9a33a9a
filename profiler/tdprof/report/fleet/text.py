"""A fleet's functions for people."""

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.model.fleet import Estimates, FleetFunction, SetAside, StratumShares
from tdprof.report.columns import as_text, format_table, left_out, names, numbers, prose
from tdprof.text import plural, printable

WIDE_COLUMNS = 80
_LEGEND = (
    "Behind each share is its 95 % interval over hosts: what another fleet of such hosts would show. Design effect: "
    "how many times the variance is that of as many samples of one host."
)
FEW_HOSTS = "~: of too few hosts to know how they differ, so that the interval is only the chance of sampling these."


def render_text(shares: Sequence[StratumShares], set_aside: SetAside, console: Console, *, limit: int) -> str:
    """A table for each kind of core, as the console's width and colours allow.

    Args:
        limit: the most functions of each; 0 for all.
    """
    width = console.width
    lines = notes_lines(set_aside, width)
    for each in shares:
        stratum = each.stratum
        about = ", ".join(
            [
                plural(len(stratum.hosts), "host", "s"),
                plural(stratum.recordings, "recording", "s"),
                plural(int(stratum.samples.sum()), "sample", "s"),
            ]
        )
        lines += [
            *prose(f"{printable(stratum.core)}: {printable(stratum.event)}, {about}", width, style="bold"),
            Text(),
        ]
        shown = len(each.functions) if not limit else min(limit, len(each.functions))
        lines += _table(each, shown, width)
        lines += left_out(len(each.functions) - shown, "function", width)
        lines.append(Text())
    lines += prose(_LEGEND, width, style="dim")
    if any(not each.own.is_between for each in shares):
        lines += prose(FEW_HOSTS, width, style="dim")
    return as_text(console, lines)


def notes_lines(set_aside: SetAside, width: int) -> list[Text]:
    """What the answer does not hold, with an empty line behind."""
    lines: list[Text] = []
    for note in set_aside.notes:
        lines += prose(printable(note), width, style="yellow")
    return [*lines, Text()] if lines else lines


def _table(shares: StratumShares, shown: int, width: int) -> list[Text]:
    is_wide = width >= WIDE_COLUMNS
    columns = numbers("self", "95 %", "total") + (numbers("95 %") if is_wide else [])
    columns += numbers("samples", "hosts", "design effect")
    columns += names(*(("module",) if is_wide else ()), "function")
    rows: list[list[str | Text]] = []
    for row in range(shown):
        function = shares.functions[row]
        cells: list[str | Text] = [percent(shares.own.value[row]), _interval(shares.own, row)]
        cells += [percent(shares.total.value[row])] + ([_interval(shares.total, row)] if is_wide else [])
        cells += [f"{shares.own.samples[row]:,}", f"{shares.total.hosts[row]:,}", _effect(shares.own, row)]
        rows.append([*cells, *([Text(printable(function.module), "dim")] if is_wide else []), function_text(function)])
    return format_table(columns, rows, width)


def percent(share: float) -> str:
    """A share; empty where it is not known."""
    return "" if np.isnan(share) else f"{share:.2%}"


def _interval(estimates: Estimates, row: int) -> str:
    """An interval in percent, marked where it says nothing of other hosts; "?" where it is not known."""
    low, high = float(estimates.low[row]), float(estimates.high[row])
    if np.isnan(low):
        return "?"
    return f"{'' if estimates.is_between else '~'}{100 * low:.2f}-{100 * high:.2f}"


def _effect(estimates: Estimates, row: int) -> str:
    effect = float(estimates.design_effect[row])
    return "" if np.isnan(effect) else f"{effect:,.1f}"


def function_text(function: FleetFunction) -> Text:
    """A function's name, with its source file where the module has several of that name."""
    name = f"{function.name} ({function.file})" if function.file else function.name
    return Text(printable(name), "dim" if name.startswith("[") else "")
