"""`tdprof list`: what the catalogs know of a core."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from tdprof.catalog.choose import catalog_names, format_cpus, load_packaged
from tdprof.catalog.entries import Catalog, CatalogEvent, Metric, MetricGroup
from tdprof.catalog.midr import read_core_types
from tdprof.catalog.tree import tree_nodes
from tdprof.cli.core_options import core_options, required_catalog
from tdprof.cli.form import Form, Output, output_options, print_plain
from tdprof.cli.standard_error import say
from tdprof.report.columns import format_columns
from tdprof.report.csv_lines import write_rows

Json = dict[str, Any]


@click.command("list", short_help="what is known of a core: events, metrics, groups, tree")
@click.argument("what", type=click.Choice(["cpus", "events", "metrics", "groups", "tree"]))
@core_options
@output_options(
    json="Machine-readable: one array of objects.",
    csv="Comma-separated values: a row for each; lists joined by semicolons.",
)
def command(what: str, cpu: str, catalog_file: Path | None, output: Output) -> None:
    """Show what the catalogs know of a core.

    \b
    tdprof list cpus                      the cores that have a catalog, and this machine's
    tdprof list events --cpu neoverse-n3  every PMU event with its code
    tdprof list metrics --cpu v1 --json   every metric with its formula, for scripts
    tdprof list tree --cpu n3             which metric leads to which
    """
    if what == "cpus":
        _print(_cpus(), _cpu_lines, output.form)
        return
    choice = required_catalog(cpu, catalog_file)
    for note in choice.notes:
        say(f"tdprof: {choice.catalog.title}: {note}")
    for caveat in choice.catalog.caveats_of(choice.catalog.metrics.values()) if what == "metrics" else ():
        say(f"tdprof: {choice.catalog.title}: {caveat}")
    objects, lines = _VIEWS[what]
    _print(objects(choice.catalog), lines, output.form)


def _print(objects: list[Json], lines: Callable[[list[Json]], list[str]], form: Form) -> None:
    print_plain(
        form,
        json=lambda: [json.dumps(objects, indent=1, ensure_ascii=False), "\n"],
        csv=lambda: _csv(objects),
        text=lambda: (f"{line}\n" for line in lines(objects)),
    )


def _csv(objects: list[Json]) -> Iterator[str]:
    heading = list(dict.fromkeys(key for each in objects for key in each))
    return write_rows(heading, ([_cell(each.get(key)) for key in heading] for each in objects))


def _cell(value: Any) -> Any:
    """A value in one cell: items of a list stand between semicolons, parts of an object between slashes."""
    if isinstance(value, list):
        return ";".join(str(_cell(each)) for each in value)
    if isinstance(value, dict):
        return "/".join(str(each) for each in value.values())
    return "" if value is None else value


def _cpus() -> list[Json]:
    here: dict[tuple[int, int], list[int]] = {}
    for core in read_core_types():
        here.setdefault((core.midr.implementer, core.midr.part), []).extend(core.cpus)
    return [_cpu(load_packaged(name), here) for name in catalog_names()]


def _cpu(catalog: Catalog, here: dict[tuple[int, int], list[int]]) -> Json:
    return {
        "name": catalog.name,
        "title": catalog.title,
        "midr": [
            {"implementer": f"0x{implementer:02x}", "part": f"0x{part:03x}"}
            for implementer, part in sorted(catalog.parts)
        ],
        "slots": catalog.slots,
        "counters": catalog.counters,
        "events": len(catalog.events),
        "metrics": len(catalog.metrics),
        "groups": len(catalog.groups),
        "products": list(catalog.products),
        "cpus_here": sorted(cpu for part in catalog.parts for cpu in here.get(part, [])),
        "notes": list(catalog.notes),
    }


def _cpu_lines(cpus: list[Json]) -> list[str]:
    rows = [["NAME", "MIDR", "SLOTS", "EVENTS", "METRICS", "HERE", "PRODUCTS"]]
    rows += [
        [
            cpu["name"],
            ",".join(f"{midr['implementer']}/{midr['part']}" for midr in cpu["midr"]) or "-",
            str(cpu["slots"] or "-"),
            str(cpu["events"]),
            str(cpu["metrics"]),
            f"CPUs {format_cpus(cpu['cpus_here'])}" if cpu["cpus_here"] else "-",
            ", ".join(cpu["products"]),
        ]
        for cpu in cpus
    ]
    return format_columns(rows, right=(2, 3, 4))


def _events(catalog: Catalog) -> list[Json]:
    users: dict[str, list[str]] = {}
    for metric in catalog.metrics.values():
        for event in metric.events:
            users.setdefault(event, []).append(metric.name)
    return [_event(event, users.get(event.name, [])) for event in catalog.events.values()]


def _event(event: CatalogEvent, metrics: list[str]) -> Json:
    return {
        "name": event.name,
        "code": event.code,
        "title": event.title,
        "description": event.description,
        "group": event.group,
        "countable": event.is_countable,
        "architectural": event.is_architectural,
        "debug": event.is_debug,
        "aliases": list(event.aliases),
        "amu_counter": event.amu_counter,
        "metrics": metrics,
    }


def _event_lines(events: list[Json]) -> list[str]:
    rows = [["CODE", "NAME", "GROUP", "DESCRIPTION"]]
    for event in events:
        aliases = f" (also {', '.join(event['aliases'])})" if event["aliases"] else ""
        uncountable = "" if event["countable"] else " [no PMU count]"
        amu = "" if event["amu_counter"] is None else f" [AMU {event['amu_counter']}]"
        description = (event["description"] or event["title"]) + aliases + uncountable + amu
        rows.append([f"0x{event['code']:04x}", event["name"], event["group"] or "-", description])
    return format_columns(rows)


def _metrics(catalog: Catalog) -> list[Json]:
    return [_metric(metric) | {"caveats": catalog.caveats_of([metric])} for metric in catalog.metrics.values()]


def _metric(metric: Metric) -> Json:
    return {
        "name": metric.name,
        "title": metric.title,
        "formula": metric.formula,
        "units": metric.units,
        "groups": list(metric.groups),
        "events": list(metric.events),
        "stage": metric.stage,
        "description": metric.description,
        "sample_events": list(metric.sample_events),
        "advice": metric.advice,
    }


def _metric_lines(metrics: list[Json]) -> list[str]:
    rows = [["STAGE", "NAME", "UNITS", "FORMULA"]]
    rows += [[str(m["stage"] or "-"), m["name"], m["units"], m["formula"]] for m in metrics]
    return format_columns(rows)


def _groups(catalog: Catalog) -> list[Json]:
    return [_group(group) for group in catalog.groups.values()]


def _group(group: MetricGroup) -> Json:
    return {
        "name": group.name,
        "title": group.title,
        "stage": group.stage,
        "description": group.description,
        "metrics": list(group.metrics),
    }


def _group_lines(groups: list[Json]) -> list[str]:
    lines = []
    for group in groups:
        lines += [f"{group['name']} (stage {group['stage'] or '-'}): {group['description']}"]
        lines += [f"    {metric}" for metric in group["metrics"]]
    return lines


def _tree(catalog: Catalog) -> list[Json]:
    """One object a line of the drawing, in its order; `next` names the children."""
    return [
        {
            "name": row.name,
            "kind": "group" if row.is_group else "metric",
            "depth": row.depth,
            "title": (catalog.groups if row.is_group else catalog.metrics)[row.name].title,
            "next": list(catalog.tree.get(row.name, ())),
            "advice": "" if row.is_group else catalog.metrics[row.name].advice,
        }
        for row in tree_nodes(catalog)
    ]


def _tree_lines(rows: list[Json]) -> list[str]:
    """The tree with box-drawing branches; groups in brackets."""
    lines: list[str] = []
    for index, row in enumerate(rows):
        depth = row["depth"]
        if depth == 0 and lines:
            lines.append("")
        branches = ""
        for level in range(1, depth + 1):
            more = _has_sibling_below(rows, index, level)
            own = level == depth
            branches += ("├── " if more else "└── ") if own else ("│   " if more else "    ")
        lines.append(f"{branches}[{row['name']}]" if row["kind"] == "group" else f"{branches}{row['name']}")
    return lines


def _has_sibling_below(rows: list[Json], index: int, level: int) -> bool:
    for row in rows[index + 1 :]:
        if row["depth"] <= level:
            return bool(row["depth"] == level)
    return False


_VIEWS: dict[str, tuple[Callable[[Catalog], list[Json]], Callable[[list[Json]], list[str]]]] = {
    "events": (_events, _event_lines),
    "metrics": (_metrics, _metric_lines),
    "groups": (_groups, _group_lines),
    "tree": (_tree, _tree_lines),
}
