"""Reads event counts from elsewhere: a JSON object of counts, or what `perf stat` writes as JSON or CSV."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from tdprof.catalog.entries import Catalog, CatalogEvent
from tdprof.errors import TdprofError
from tdprof.text import few
from tdprof.values import dataclass

# perf's generic names and the events that Linux gives them on PMUv3 (drivers/perf/arm_pmuv3.c, armv8_pmuv3_perf_map).
# `branches` is left out: it is PC_WRITE_RETIRED or BR_RETIRED, by kernel version.
_PERF_NAMES = {
    "cycles": "CPU_CYCLES",
    "cpu-cycles": "CPU_CYCLES",
    "instructions": "INST_RETIRED",
    "cache-references": "L1D_CACHE",
    "cache-misses": "L1D_CACHE_REFILL",
    "branch-misses": "BR_MIS_PRED",
    "bus-cycles": "BUS_CYCLES",
    "stalled-cycles-frontend": "STALL_FRONTEND",
    "stalled-cycles-backend": "STALL_BACKEND",
}

# What perf stat writes in place of a count.
_NOT_COUNTED = {"<not counted>", "<not supported>"}

_MOST_UNKNOWN = 5  # unknown events that get a line each

# Where perf's JSON says which interval, CPU, thread, … a count belongs to.
_PLACE_KEYS = ("interval", "socket", "die", "cluster", "cache", "core", "cpu", "node", "thread", "cgroup")


@dataclass(frozen=True, slots=True)
class CountFile:
    """Counts by the catalog's event names, and what the user should know of them, one line each."""

    counts: dict[str, float]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One count: None where the event was not counted, `place` the interval and CPU it is for."""

    event: str
    value: float | None
    place: tuple[str, ...] = ()


def parse_counts(text: str, catalog: Catalog, source: str) -> CountFile:
    """Counts of the catalog's events in a text of any accepted format.

    Counts for different intervals, CPUs or threads are added. Several counts of one event for the same place, as
    multiplexed groups give them, are estimates of the same number and are averaged.

    Args:
        source: the file's name, for messages.

    Raises:
        TdprofError: naming the file and the line or event, if the text is of no accepted format.
    """
    entries, is_perf = _read_entries(text, source)
    places: dict[str, dict[tuple[str, ...], list[float]]] = {}
    uncounted: set[str] = set()
    unknown: list[str] = []
    domains: set[str] = set()
    for entry in entries:
        event, modifiers = find_perf_event(entry.event, catalog)
        if event is None:
            unknown.append(entry.event)
            continue
        domains.add(modifiers)
        if entry.value is None:
            uncounted.add(event.name)
        else:
            places.setdefault(event.name, {}).setdefault(entry.place, []).append(entry.value)
    if not is_perf:
        for name, by_place in places.items():
            if any(len(set(values)) > 1 for values in by_place.values()):
                raise TdprofError(
                    f"{source}: {name} is given twice, with different counts", hint="give each event once"
                )
    counts = {
        name: sum(math.fsum(values) / len(values) for values in by_place.values())
        for name, by_place in places.items()
        if name not in uncounted  # a sum that lacks an interval or a CPU would be a wrong number
    }
    notes = [] if is_perf else list(_unknown_notes(unknown, catalog))
    if not counts and not uncounted:
        raise TdprofError(f"{source}: no count of an event that {catalog.title} has", hint="tdprof list events")
    if uncounted:
        notes.append(f"not counted by perf: {few(sorted(uncounted))}")
    if len(domains) > 1:
        notes.append("counts of user space only and of everything are mixed; ratios between them mean nothing")
    return CountFile(counts, tuple(notes))


def find_perf_event(text: str, catalog: Catalog) -> tuple[CatalogEvent | None, str]:
    """The catalog's event for a name as perf writes it, and its modifiers ("u", "k" or both)."""
    name, modifiers = text.strip(), ""
    if found := re.fullmatch(r"[\w.-]+/(.*)/:?(\w*)|([^:]+):(\w+)", name):
        name, modifiers = found[1] or found[3], found[2] or found[4] or ""
    code = re.search(r"(?:^r|\b(?:event|config)=0x)([0-9a-fA-F]+)$", name.split(",")[0])
    domain = "".join(sorted(set(modifiers) & set("uk")))
    domain = "" if domain == "ku" else domain
    known = catalog.find_event(_PERF_NAMES.get(name.lower(), name))
    if known is None and code is not None:
        known = catalog.find_event_by_code(int(code[1], 16))
    return known, domain


def _unknown_notes(names: Sequence[str], catalog: Catalog) -> Iterator[str]:
    for name in names[:_MOST_UNKNOWN]:
        close = get_close_matches(name.upper(), catalog.events, n=1)
        yield f"{catalog.title} has no event {name}" + (f"; did you mean {close[0]}?" if close else "")
    if rest := names[_MOST_UNKNOWN:]:
        yield f"{catalog.title} has none of {len(rest)} more events either: {few(rest)}"


def _read_entries(text: str, source: str) -> tuple[list[_Entry], bool]:
    """The counts in a text, and whether perf wrote it (then events of other PMUs are no mistake)."""
    stripped = text.lstrip("\ufeff \t\r\n")
    if not stripped.startswith("{"):
        return list(_read_csv(stripped, source)), True
    try:
        whole = json.loads(stripped)
    except RecursionError as error:
        raise TdprofError(f"{source}: nested too deeply") from error
    except ValueError as error:
        if '"counter-value"' not in stripped:
            raise TdprofError(f"{source}: not JSON: {error}") from error
        return list(_read_perf_json(stripped, source)), True
    if "counter-value" in whole:
        return list(_read_perf_json(stripped, source)), True
    # What `tdprof stat --json` writes has the counts under "events".
    nested = whole.get("events")
    if isinstance(nested, dict):
        return [_Entry(name, _number(value.get("value"), name, source)) for name, value in nested.items()], True
    return [_Entry(name, _number(value, name, source)) for name, value in whole.items()], False


def _number(value: Any, name: str, source: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TdprofError(f"{source}: the count of {name} is {value!r}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise TdprofError(f"{source}: the count of {name} is {value}; counts are finite and not negative")
    return number


def _read_perf_json(text: str, source: str) -> Iterable[_Entry]:
    """`perf stat -j`: one object a line."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except RecursionError as error:
            raise TdprofError(f"{source}, line {number}: nested too deeply") from error
        except ValueError as error:
            raise TdprofError(f"{source}, line {number}: not JSON: {error}") from error
        if not isinstance(entry, dict):
            raise TdprofError(f"{source}, line {number}: not an object as perf stat -j writes it")
        yield from _perf_json_entry(entry, f"{source}, line {number}")


def _perf_json_entry(entry: Mapping[str, Any], source: str) -> Iterable[_Entry]:
    event, value = entry.get("event"), entry.get("counter-value")
    if not isinstance(event, str) or not isinstance(value, str | int | float):
        return  # a line that holds only a metric
    place = tuple(str(entry.get(key, "")) for key in _PLACE_KEYS)
    yield _Entry(event, _perf_value(str(value), event, source), place)


def _perf_value(text: str, event: str, source: str) -> float | None:
    if text.strip() in _NOT_COUNTED:
        return None
    try:
        return _number(float(text), event, source)
    except ValueError as error:
        raise TdprofError(f"{source}: the count of {event} is '{text}', not a number") from error


def _read_csv(text: str, source: str) -> Iterable[_Entry]:
    """`perf stat -x SEPARATOR`: [interval,][cpu,…]value,unit,event,…; the separator is the first that fits."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        entry = next((entry for mark in ",;\t|" if (entry := _csv_entry(line.split(mark)))), None)
        if entry is None:
            raise TdprofError(
                f"{source}, line {number}: no count of an event: {line[:60]!r}",
                hint="give a JSON object {event: count}, or the output of perf stat -j or perf stat -x,",
            )
        yield _Entry(entry[1], _perf_value(entry[0], entry[1], f"{source}, line {number}"), entry[2])


def _csv_entry(fields: list[str]) -> tuple[str, str, tuple[str, ...]] | None:
    """(value, event, place): the first number followed by a unit and an event, neither of which is a number."""
    for index in range(len(fields) - 2):
        value, unit, event = (field.strip() for field in fields[index : index + 3])
        if (value in _NOT_COUNTED or _is_number(value)) and not _is_number(unit) and event and not _is_number(event):
            return value, event, tuple(fields[:index])
    return None


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?([eE][-+]?\d+)?", text, re.ASCII) is not None
