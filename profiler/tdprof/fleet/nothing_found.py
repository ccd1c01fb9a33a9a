"""Why a store has no recordings of what was asked for, and what could be asked of it."""

import shlex
from collections.abc import Iterator

from tdprof.errors import TdprofError
from tdprof.fleet.read import read_parts
from tdprof.fleet.selection import COLUMNS, Chosen
from tdprof.fleet.store import Store
from tdprof.text import few, printable


def nothing_found(store: Store, chosen: Chosen) -> TdprofError:
    """The first of the conditions that no recording satisfies, with what some do.

    Raises:
        TdprofError: a roll-up is missing or damaged.
    """
    known: dict[str, set[str]] = {name: set() for name in COLUMNS}
    for name, value in _names(store, chosen):
        known.setdefault(name, set()).add(value)
    if not known["host"]:
        return TdprofError(
            f"{store.place} has no recordings", hint=f"tdprof fleet add {shlex.quote(store.place)} CAPTURE…"
        )
    for name in dict(chosen.where):
        if name not in known:
            message = f"no recording of {store.place} has a label '{printable(name)}'"
            return TdprofError(message, hint=f"what they have: {few([*known], 12)}")
        asked = [value for key, value in chosen.where if key == name]
        if not known[name].intersection(asked):
            examples = [shlex.quote(f"{name}={printable(value)}") for value in sorted(known[name])]
            return TdprofError(
                f"{store.place} has no recordings of {name}={printable(asked[0])}", hint=f"such as {few(examples)}"
            )
    return TdprofError(f"{store.place} has no recordings of what was asked for", hint=_times(store))


def _names(store: Store, chosen: Chosen) -> Iterator[tuple[str, str]]:
    """Each name and value that a condition may be on; builds only where one is asked for."""
    parts = read_parts(store, Chosen(), each_recording=chosen.has_builds)
    for each in parts.recordings:
        row = each.events[0]
        labels, builds = row["labels"], row["builds"]
        assert isinstance(labels, list)
        assert isinstance(builds, list)
        yield from _of_host(each.stem.core_name, each.stem.host_name, str(row["kernel"]), labels)
        yield from (("build", build) for build in builds)
    for sums in parts.sums:
        for group in sums.groups.values():
            yield from _of_host(group.core, group.host, group.kernel, group.labels)


def _of_host(core: str, host: str, kernel: str, labels: list[str] | tuple[str, ...]) -> Iterator[tuple[str, str]]:
    yield from (("core", core), ("host", host), ("kernel", kernel))
    for label in labels:
        name, _, value = label.partition("=")
        yield name, value


def _times(store: Store) -> str:
    dates = sorted(stem.date for stem in store.stems())
    return f"its recordings are of {dates[0]} to {dates[-1]}"
