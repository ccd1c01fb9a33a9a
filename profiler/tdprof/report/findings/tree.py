"""The methodology tree with the metrics of the program, or of one function beside the program's, for people."""

from collections.abc import Sequence
from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.catalog.entries import Catalog
from tdprof.catalog.tree import tree_lines
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.profile.choice import ChosenFunction
from tdprof.profile.frames import function_names, whole_functions
from tdprof.profile.hotspots import Hotspots, UnknownSamples
from tdprof.report.columns import Column, as_text, format_table, left_out, numbers
from tdprof.report.findings.text import FunctionShares, advice_lines, header_lines, level_1_lines, path_lines
from tdprof.report.metric_text import CodeMetrics, doubt_legend, level_1_bar, metric_cell, metrics_of
from tdprof.report.summary import format_value
from tdprof.text import printable

# Narrower ones leave out units, and the metrics of a function with its callees.
_WIDE_COLUMNS = 100
_MOST_PATHS = 10


def render_tree(profile: Profile, findings: Findings, unknown: list[UnknownSamples], console: Console) -> str:
    """The whole program's tree."""
    own, diagnosis = metrics_of(findings.program, 0), findings.program_diagnosis
    bar = level_1_bar(findings.catalog, own.values, min(60, max(24, console.width // 4)))
    lines = [*header_lines(profile, findings, unknown, console.width), Text(), bar, Text()]
    lines += _tree(findings.catalog, [("program", own)], diagnosis.path, console.width)
    lines += [*doubt_legend(console.width), Text(), *advice_lines(diagnosis, console.width)]
    return as_text(console, lines)


def render_function(
    profile: Profile,
    findings: Findings,
    chosen: ChosenFunction,
    hotspots: Hotspots,
    console: Console,
    *,
    sort_event: int,
) -> str:
    """Everything about one function: where it is, what it took, its metrics beside the program's, its lines.

    Args:
        hotspots: all rows by function.
    """
    rows = findings.row_of()
    lines: list[Text] = []
    for index, function in enumerate(hotspots.function.tolist()):
        if function not in chosen.ids:
            continue
        title = FunctionShares(profile, hotspots.rows(slice(index, index + 1)), sort_event).title(0, function)
        file = printable(profile.functions.file[function]) or "source file not known"
        where = file + (f":{hotspots.line[index]}" if hotspots.line[index] else "")
        lines += [title, Text(f"  {where}", style="dim"), Text()]
        if (row := rows.get(function)) is not None:
            lines += _metrics(findings, row, console.width)
        lines += [*_counts(profile, hotspots, index, console.width), Text()]
        if by_line := _lines(profile, findings, function, console.width):
            lines += [*by_line, Text()]
        if by_path := _paths(profile, findings, function, console.width):
            lines += [*by_path, Text()]
    return as_text(console, lines)


def _metrics(findings: Findings, row: int, width: int) -> list[Text]:
    """What one function does, the reasons, and its tree beside the program's."""
    catalog, own, diagnosis = findings.catalog, metrics_of(findings.functions, row), findings.diagnoses[row]
    columns = [("itself", own), ("program", metrics_of(findings.program, 0))]
    if width >= _WIDE_COLUMNS:
        columns.insert(1, ("with callees", metrics_of(findings.inclusive, row)))
    return [
        *level_1_lines(catalog, own, Text("its own instructions", style="bold"), width),
        *path_lines(own, diagnosis, width),
        *advice_lines(diagnosis, width),
        Text(),
        *_tree(catalog, columns, diagnosis.path, width),
        *doubt_legend(width),
        Text(),
    ]


def _tree(catalog: Catalog, columns: Sequence[tuple[str, CodeMetrics]], path: Sequence[str], width: int) -> list[Text]:
    """Metrics down, pieces of code across; the bottleneck's way is marked."""
    has_spe = any(column.spe for _, column in columns)
    is_wide = width >= _WIDE_COLUMNS
    table = [Column("metric"), *numbers(*(name for name, _ in columns), *(["by SPE"] if has_spe else []))]
    table += [Column("units")] if is_wide else []
    rows = []
    measured = {name for _, column in columns for name in (*column.values, *column.spe)}
    told: set[str] = set()
    for line in tree_lines(catalog):
        blanks = " " * line.depth
        if line.is_group:
            group = catalog.groups[line.name]
            if measured & set(group.metrics):
                seen_above = " (above)" if line.name in told else ""
                told.add(line.name)
                title = Text.assemble(blanks, (group.title, "underline"), seen_above)
                rows.append([title, *(Text() for _ in table[1:])])
        elif line.name in measured:
            is_followed = line.name in path
            values = [column.values.get(line.name) for _, column in columns]
            is_spe_alone = any(value is not None and value.source == "spe" for value in values)
            cells = [Text() if is_spe_alone else metric_cell(value) for value in values]
            if has_spe:
                spe = columns[0][1].spe.get(line.name)
                cells.append(metric_cell(spe) if spe else Text())
            mark = " <--" if is_followed else ""
            name = Text(blanks + line.name + mark, style="bold" if is_followed else "")
            units = [Text(catalog.metrics[line.name].units, style="dim")] if is_wide else []
            rows.append([name, *cells, *units])
    return format_table(table, rows, width)


def _counts(profile: Profile, hotspots: Hotspots, index: int, width: int) -> list[Text]:
    """Events of one function: samples, counts and shares."""
    rows = []
    total = profile.total_weight().astype(np.float64)
    for number, event in enumerate(profile.events):
        own, inclusive = (int(each[index, number]) for each in (hotspots.self_weight, hotspots.inclusive_weight))
        if inclusive:
            cells = (
                printable(event.name),
                f"{hotspots.self_samples[index, number]:,}",
                format_value(own, event.unit),
                f"{own / total[number]:.1%}",
                format_value(inclusive, event.unit),
                f"{inclusive / total[number]:.1%}",
            )
            rows.append(cells)
    columns = [Column("event"), *numbers("samples", "itself", "share", "with callees", "share")]
    return format_table(columns, rows, width)


def _lines(profile: Profile, findings: Findings, function: int, width: int) -> list[Text]:
    """Level-1 metrics of a function's lines, of those with enough samples; with their file where it is another one."""
    whole = np.append(whole_functions(profile.functions, profile.mapped_files), -1)
    chosen = np.flatnonzero(whole[findings.line_function] == function).tolist()
    if not chosen:
        return []
    files = [*profile.functions.file, ""]
    places = {row: (files[findings.line_function[row]], int(findings.line[row])) for row in chosen}
    rows = []
    for row, (file, line) in sorted(places.items(), key=lambda each: (each[1][0] != files[function], each[1])):
        values = metrics_of(findings.lines, row).values
        where = str(line) if file == files[function] else f"{PurePath(printable(file)).name or '?'}:{line}"
        rows.append([Text(where), *(metric_cell(values.get(name)) for name in findings.catalog.roots)])
    return format_table(numbers("line", *findings.catalog.roots), rows, width)


def _paths(profile: Profile, findings: Findings, function: int, width: int) -> list[Text]:
    """Level-1 metrics of a function by the way it was reached, where there are several ways."""
    paths = findings.call_paths
    chosen = paths.ending_in(function) if paths else []
    if paths is None or len(chosen) < 2:
        return []
    names = function_names(profile)
    rows = []
    for path in chosen[:_MOST_PATHS]:
        values = metrics_of(paths.metrics, path).values
        callers = " < ".join(names[caller] for caller in paths.functions_of(path)[1:]) or "nothing known"
        cells = (metric_cell(values.get(name)) for name in findings.catalog.roots)
        rows.append([Text(f"{paths.share[path]:.1%}"), *cells, Text(callers)])
    columns = [*numbers("share", *findings.catalog.roots), Column("called by")]
    more = left_out(max(len(chosen) - _MOST_PATHS, 0), "way", width, hint="--json has all")
    return [*format_table(columns, rows, width), *more]
