"""Reads a catalog file, ours or one published by Arm, and refuses whatever could give a wrong number later.

The format is Arm's telemetry schema v1.0. What Arm's has no place for stands in `product_configuration.tdprof`
(see docs/catalogs.md); a file without that object loads just as well.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tdprof.catalog.entries import Access, Catalog, CatalogEvent, Caveat, Metric, MetricGroup
from tdprof.catalog.expression import Expression, FormulaError, divides_by_zero, event_names, parse_formula
from tdprof.catalog.midr import Revision, parse_revision
from tdprof.catalog.units import units_of
from tdprof.errors import TdprofError

# Six programmable counters on every Neoverse core so far (docs/catalogs.md gives the sources).
DEFAULT_COUNTERS = 6
# Of the drawn tree, in which what several nodes lead to stands below each of them: published ones have tens of lines in
# four levels. One level more can double the lines.
_MOST_TREE_LINES, _MOST_TREE_LEVELS = 4096, 64
_MOST_METRICS = 512  # each is worked out of every function; published catalogs have less than two hundred
_NAME = re.compile(r"\w+", re.ASCII)


class _TwiceError(Exception):
    """The name that comes twice."""


def _distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file, of which readers usually keep the last of two with one name."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(name)
        found[name] = value
    return found


class _Entry:
    """One object of the file with its place, so that every complaint names file and entry."""

    def __init__(self, path: Path, place: str, value: Any) -> None:
        self.path, self.place = path, place
        if not isinstance(value, dict):
            raise self.error("is not an object")
        self.value: dict[str, Any] = value

    def error(self, problem: str) -> TdprofError:
        place = f"{self.place}: " if self.place else ""
        return TdprofError(f"catalog {self.path}: {place}{problem}")

    def child(self, key: str, *, place: str = "") -> "_Entry":
        if key not in self.value:
            raise self.error(f"has no '{key}'")
        return _Entry(self.path, place or (f"{self.place}.{key}" if self.place else key), self.value[key])

    def children(self, kind: str) -> Iterable[tuple[str, "_Entry"]]:
        for name in self.value:
            if not _NAME.fullmatch(name):
                raise self.error(f"{name!r} is no name of a {kind}")
            yield name, self.child(name, place=f"{kind} {name}")

    def items(self, key: str) -> Iterable["_Entry"]:
        """The objects of a list; none where there is no list."""
        value = self.value.get(key, [])
        if not isinstance(value, list):
            raise self.error(f"'{key}' is no list")
        for number, item in enumerate(value):
            yield _Entry(self.path, f"{self.place}.{key}[{number}]", item)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.value.get(key, default)
        if not isinstance(value, str):
            raise self.error(f"has no text '{key}'")
        return value

    def flag(self, key: str) -> bool:
        """Whether it is set; no, where it does not stand."""
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            raise self.error(f"'{key}' is neither true nor false")
        return value

    def names(self, key: str, *, optional: bool = False) -> tuple[str, ...]:
        value = self.value.get(key, [] if optional else None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(f"'{key}' is no list of names")
        return tuple(value)

    def number(self, key: str, low: int, high: int) -> int:
        """An integer, or its text in hexadecimal or decimal as Arm's files write it."""
        value = self.value.get(key)
        try:
            number = int(value, 0) if isinstance(value, str) else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise self.error(f"'{key}' is {value!r}, not a number from {low:#x} to {high:#x}")
        return number


def load_catalog(path: Path, revision: Revision | None = None) -> Catalog:
    """Read and check a catalog file.

    Args:
        path: the JSON file.
        revision: the core's revision where it is known; formulas that differ between revisions are chosen by it.

    Raises:
        TdprofError: naming file and entry, for a file that is damaged, inconsistent or refers to what it lacks.
    """
    return parse_catalog(read_catalog(path), path, revision)


def read_catalog(path: Path) -> str:
    """The text of a catalog file.

    Raises:
        TdprofError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TdprofError(f"cannot read catalog {path}: {error.strerror}", hint="tdprof list cpus") from error
    except ValueError as error:
        raise TdprofError(f"catalog {path}: not JSON: {error}") from error


def parse_catalog(text: str, path: Path, revision: Revision | None = None) -> Catalog:
    """Check a catalog's text, as `load_catalog` does; ``path``: where it is from, for complaints."""
    try:
        root = _Entry(path, "", json.loads(text, object_pairs_hook=_distinct_names))
    except _TwiceError as error:
        raise TdprofError(f"catalog {path}: '{error}' comes twice in one object") from error
    except (ValueError, RecursionError) as error:
        raise TdprofError(f"catalog {path}: not JSON: {error}") from error
    configuration = root.child("product_configuration")
    extension = _Entry(path, "product_configuration.tdprof", configuration.value.get("tdprof", {}))
    events = _read_events(root, extension)
    methodology = _read_methodology(root)
    groups = _read_groups(root, methodology)
    formulas, notes = _read_revision(extension, revision)
    metrics = _read_metrics(root.child("metrics"), extension, events, groups, formulas)
    for group in groups.values():
        _check_known(root, f"metric group {group.name}", group.metrics, metrics, "metric")
    roots, tree = _read_tree(root, methodology, metrics, groups)
    title = configuration.text("product_name")
    slots = configuration.number("num_slots", 0, 64) if "num_slots" in configuration.value else 0
    counters = extension.number("counters", 1, 31) if "counters" in extension.value else DEFAULT_COUNTERS
    return Catalog(
        name=extension.text("name", re.sub(r"\W+", "-", title.lower())),
        title=title,
        parts=_read_parts(configuration, extension),
        products=extension.names("products", optional=True),
        slots=slots or None,
        counters=counters,
        events=events,
        metrics=metrics,
        groups=groups,
        roots=roots,
        tree=tree,
        notes=notes,
        caveats=_read_caveats(extension, events),
    )


def _check_known(root: _Entry, place: str, names: Iterable[str], known: Mapping[str, object], kind: str) -> None:
    for name in names:
        if name not in known:
            raise _Entry(root.path, place, {}).error(f"unknown {kind} '{name}'")


def _read_parts(configuration: _Entry, extension: _Entry) -> frozenset[tuple[int, int]]:
    entries = [configuration] if "part_num" in configuration.value else []
    more = extension.value.get("more_parts", [])
    if not isinstance(more, list):
        raise extension.error("'more_parts' is no list")
    entries += [_Entry(extension.path, f"{extension.place}.more_parts", item) for item in more]
    return frozenset((entry.number("implementer", 0, 0xFF), entry.number("part_num", 0, 0xFFF)) for entry in entries)


def _read_events(root: _Entry, extension: _Entry) -> dict[str, CatalogEvent]:
    amu = _Entry(root.path, f"{extension.place}.amu", extension.value.get("amu", {}))
    group_of: dict[str, str] = {}
    for name, group in root.child("groups").child("function").children("function group"):
        members = group.names("events")
        _check_known(root, group.place, members, root.child("events").value, "event")
        group_of |= dict.fromkeys(members, name)
    events: dict[str, CatalogEvent] = {}
    owner: dict[int, str] = {}
    for name, entry in root.child("events").children("event"):
        if entry.value.get("system") is True:
            continue  # counted by another unit than the core's PMU
        code = entry.number("code", 0, 0xFFFF)
        if code in owner:
            raise entry.error(f"has the code 0x{code:04x} of {owner[code]}")
        owner[code] = name
        properties = _Entry(entry.path, f"{entry.place}.properties", entry.value.get("properties") or {})
        product = entry.value.get("product_defined_attributes") or {}
        try:
            # A private event has a code and nothing else; it is one of the PMU's.
            accesses = frozenset(Access(access) for access in entry.value.get("accesses", ["PMU"]))
        except (ValueError, TypeError) as error:
            raise entry.error(f"'accesses' is {entry.value['accesses']!r}") from error
        events[name] = CatalogEvent(
            name=name,
            code=code,
            title=entry.text("title", ""),
            description=entry.text("description", ""),
            group=group_of.get(name, ""),
            accesses=accesses,
            aliases=properties.names("aliases", optional=True),
            is_architectural=entry.value.get("architecture_defined") is True,
            is_debug=isinstance(product, dict) and product.get("debug") is True,
            amu_counter=amu.number(name, 0, 15) if name in amu.value else None,
        )
    return events


def _read_methodology(root: _Entry) -> _Entry | None:
    """The file's methodology; Arm's files have one."""
    for _, entry in root.child("methodologies").children("methodology"):
        return entry
    return None


def _read_groups(root: _Entry, methodology: _Entry | None) -> dict[str, MetricGroup]:
    stages: dict[str, int] = {}
    if methodology is not None:
        grouping = methodology.child("metric_grouping")
        for stage in (1, 2):
            names = grouping.names(f"stage_{stage}", optional=True)
            stages |= {name: stage for name in names if name not in stages}
    groups = {
        name: MetricGroup(
            name, entry.text("title"), entry.text("description"), stages.pop(name, None), entry.names("metrics")
        )
        for name, entry in root.child("groups").child("metrics").children("metric group")
    }
    _check_known(root, "metric_grouping", stages, groups, "metric group")
    return groups


def _read_revision(extension: _Entry, revision: Revision | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Formulas that replace the file's own at this revision, and what to tell the user of the choice."""
    if "revisions" not in extension.value:
        return {}, ()
    entry = extension.child("revisions")
    try:
        first = parse_revision(entry.text("from"))
    except ValueError as error:
        raise entry.error(str(error)) from error
    if revision is not None and revision >= first:
        formulas = entry.child("formulas")
        return {name: formulas.text(name) for name in formulas.value}, (entry.text("note"),)
    return {}, (entry.text("base_note"),)


def _read_caveats(extension: _Entry, events: Mapping[str, CatalogEvent]) -> tuple[Caveat, ...]:
    found = []
    for entry in extension.items("caveats"):
        caveat = Caveat(entry.names("events"), entry.text("text"), entry.text("origin"), entry.flag("if_absent"))
        _check_known(extension, entry.place, caveat.events, events, "event")
        found.append(caveat)
    return tuple(found)


def _read_metrics(
    section: _Entry,
    extension: _Entry,
    events: Mapping[str, CatalogEvent],
    groups: Mapping[str, MetricGroup],
    formulas: Mapping[str, str],
) -> dict[str, Metric]:
    advice = _Entry(extension.path, f"{extension.place}.advice", extension.value.get("advice", {}))
    _check_known(section, "product_configuration.tdprof.revisions", formulas, section.value, "metric")
    within = defaultdict[str, list[MetricGroup]](list)
    for group in groups.values():
        for name in dict.fromkeys(group.metrics):
            within[name].append(group)
    if len(section.value) > _MOST_METRICS:
        raise section.error(f"has {len(section.value)} metrics, more than {_MOST_METRICS}")
    metrics = {}
    for name, entry in section.children("metric"):
        formula = formulas.get(name, entry.text("formula"))
        expression = _parse(entry, formula)
        # The formula decides, not the file's list of events: lists have been incomplete in published files.
        used = event_names(expression)
        _check_known(section, f"{entry.place}: formula", used, events, "event")
        sampled = entry.names("sample_events", optional=True)
        _check_known(section, f"{entry.place}: sample_events", sampled, events, "event")
        metrics[name] = Metric(
            name=name,
            title=entry.text("title"),
            formula=formula,
            expression=expression,
            description=entry.text("description"),
            units=units_of(entry.text("units"), expression),
            groups=tuple(group.name for group in within[name]),
            stage=min((group.stage for group in within[name] if group.stage is not None), default=None),
            events=used,
            sample_events=sampled,
            advice=advice.text(name, ""),
        )
    return metrics


def _parse(entry: _Entry, formula: str) -> Expression:
    try:
        expression = parse_formula(formula)
    except FormulaError as error:
        raise entry.error(f"formula: {error}") from error
    if not event_names(expression):
        raise entry.error("formula: has no event")
    if divides_by_zero(expression):
        raise entry.error("formula: divides by zero")
    return expression


def _read_tree(
    root: _Entry, methodology: _Entry | None, metrics: Mapping[str, Metric], groups: Mapping[str, MetricGroup]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    if methodology is None:
        return (), {}
    section = methodology.child("decision_tree")
    nodes = section.value.get("metrics")
    if not isinstance(nodes, list):
        raise section.error("has no list 'metrics'")
    known = {**metrics, **groups}
    tree: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        entry = _Entry(root.path, section.place, node)
        name = entry.text("name")
        entry.place = f"tree node {name}"
        if name in tree:
            raise entry.error("stands there twice")
        tree[name] = entry.names("next_items")
        _check_known(root, entry.place, tree[name], known, "metric or metric group")
    roots = section.names("root_nodes")
    _check_known(root, "decision_tree", (*roots, *tree), metrics, "metric")
    cycle = _find_cycle(tree)
    if cycle:
        raise _Entry(root.path, f"tree node {cycle[0]}", {}).error(f"leads back to itself: {' -> '.join(cycle)}")
    if not _is_drawable(roots, tree):
        raise section.error(f"has more than {_MOST_TREE_LINES} lines or {_MOST_TREE_LEVELS} levels when it is drawn")
    return roots, tree


def _is_drawable(roots: Iterable[str], tree: Mapping[str, tuple[str, ...]]) -> bool:
    ahead = [(root, 1) for root in roots]
    for _ in range(_MOST_TREE_LINES):
        if not ahead:
            return True
        name, level = ahead.pop()
        if level > _MOST_TREE_LEVELS or len(ahead) > _MOST_TREE_LINES:
            return False
        ahead += [(child, level + 1) for child in tree.get(name, ())]
    return not ahead


def _find_cycle(tree: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """A path from a node back to itself, or empty. Depth first without recursion: the file may be hostile."""
    done: set[str] = set()
    for start in tree:
        path = {start: iter(tree[start])}
        while path:
            node, ahead = path.popitem()
            child = next(ahead, None)
            if child is None:
                done.add(node)
                continue
            path[node] = ahead
            if child in path:
                names = list(path)
                return (*names[names.index(child) :], child)
            if child not in done and child in tree:
                path[child] = iter(tree[child])
    return ()
