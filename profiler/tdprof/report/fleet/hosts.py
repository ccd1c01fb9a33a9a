"""Outlier hosts: for people, as JSON and CSV."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from tdprof.model.fleet import OutlierHosts, SetAside
from tdprof.report.columns import as_text, format_table, left_out, names, numbers, prose
from tdprof.report.csv_lines import write_rows
from tdprof.report.fleet.json import dump, function_json, number, set_aside_json, stratum_json
from tdprof.report.fleet.text import function_text, notes_lines, percent
from tdprof.text import few, plural, printable

COLUMNS = ("core", "event", "host", "module", "function", "file", "share", "rest", "p", "q")
# By stratum's core and function: NAME=VALUE that all its outlier hosts have in common, and how many others have it.
Common = Mapping[tuple[str, int], Sequence[tuple[str, int]]]
_MOST_SHARED = 4


def render_hosts_text(
    outliers: Sequence[OutlierHosts], common: Common, set_aside: SetAside, console: Console, *, limit: int
) -> str:
    """A table for each kind of core, the surest outlier first."""
    width = console.width
    lines = notes_lines(set_aside, width)
    for each in outliers:
        stratum = each.stratum
        about = f"{printable(stratum.core)}: {printable(stratum.event)}, {plural(len(stratum.hosts), 'host', 's')}, "
        lines += prose(f"{about}{plural(each.tests, 'test', 's')}", width, style="bold")
        if not each.tests:
            lines += [*prose("Too few hosts or samples to tell any from the others.", width), Text()]
            continue
        if not len(each.function):
            lines += [
                *prose("No function takes another share on any host than hosts usually differ by.", width),
                Text(),
            ]
            continue
        shown = len(each.function) if not limit else min(limit, len(each.function))
        columns = names("host") + numbers("share", "other hosts", "times", "q") + names("module", "function")
        rows: list[list[str | Text]] = []
        for row in range(shown):
            function = each.functions[each.function[row]]
            times = f"{each.share[row] / each.rest[row]:.2f}"
            cells = [printable(stratum.hosts[each.host[row]]), percent(each.share[row]), percent(each.rest[row]), times]
            rows.append(
                [*cells, f"{each.q[row]:.1g}", Text(printable(function.module), "dim"), function_text(function)]
            )
        lines += [Text(), *format_table(columns, rows, width), *left_out(len(each.function) - shown, "", width)]
        lines += [*_common_lines(each, common, width), Text()]
    return as_text(console, lines)


def _common_lines(outliers: OutlierHosts, common: Common, width: int) -> list[Text]:
    lines: list[Text] = []
    for (core, row), shared in sorted(common.items()):
        if core != outliers.stratum.core or not shared:
            continue
        told = few(
            [f"{printable(what)} ({plural(others, 'other host', 's')})" for what, others in shared], _MOST_SHARED
        )
        lines += prose(f"All outliers of {printable(outliers.functions[row].name)} have {told}.", width)
    return [Text(), *lines] if lines else lines


def render_hosts_json(
    outliers: Sequence[OutlierHosts], common: Common, set_aside: SetAside, *, limit: int
) -> Iterator[str]:
    """One JSON object."""
    strata = [
        {
            **stratum_json(each.stratum),
            "tests": each.tests,
            "outliers": [
                {
                    "host": each.stratum.hosts[each.host[row]],
                    **function_json(each.functions[each.function[row]]),
                    "share": number(each.share[row]),
                    "other_hosts": number(each.rest[row]),
                    "p": number(each.p[row]),
                    "q": number(each.q[row]),
                    "in_common": [
                        {"attribute": what, "other_hosts": others}
                        for what, others in common.get((each.stratum.core, int(each.function[row])), ())
                    ],
                }
                for row in range(len(each.function) if not limit else min(limit, len(each.function)))
            ],
        }
        for each in outliers
    ]
    yield dump({**set_aside_json(set_aside), "strata": strata})


def render_hosts_csv(outliers: Sequence[OutlierHosts], *, limit: int) -> Iterator[str]:
    """A line for each host and function."""
    rows = (
        (
            *(each.stratum.core, each.stratum.event, each.stratum.hosts[each.host[row]]),
            *(function.module, function.name, function.file),
            *(float(values[row]) for values in (each.share, each.rest, each.p, each.q)),
        )
        for each in outliers
        for row in range(len(each.function) if not limit else min(limit, len(each.function)))
        for function in (each.functions[each.function[row]],)
    )
    return write_rows(COLUMNS, rows)
