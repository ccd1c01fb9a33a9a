"""SPE operations for machines: one JSON object."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.model.spe import LATENCIES, LineSharing, MemoryUser, SpeReport, mean_latency

QUANTILE_NAMES = ("p50", "p90", "p99")
_ROWS_AT_ONCE = 1024
_PLACE = "\0"

# What a key has in some rows, as JSON.
_Texts = Callable[[NDArray[np.int64]], Sequence[str]]
_Tree = Mapping[str, "_Texts | _Tree"]


def render_json(report: SpeReport, *, limit: int = 0) -> Iterator[str]:
    """One JSON object: all rows (or `limit` of them) with exact counts, quantiles, ratios and their 95 % intervals."""
    head = {
        "operations": report.total_operations,
        "weight": dataclasses.asdict(report.weight) if report.weight else None,
        "confidence": 0.95,
        "notes": list(report.notes),
    }
    yield json.dumps(head, indent=1).removesuffix("\n}") + ',\n "rows": ['
    # Rows differ in what they say and not in their keys, which are laid out once: there may be millions.
    layout = json.dumps(_places(_row_of(report)), indent=1).replace("%", "%%").replace(json.dumps(_PLACE), "%s")
    layout = "\n  " + layout.replace("\n", "\n  ")
    between = ""
    for part, order in report.parts(limit):
        cells = list(_leaves(_row_of(part)))
        for first in range(0, len(order), _ROWS_AT_ONCE):
            rows = order[first : first + _ROWS_AT_ONCE]
            texts = [layout % row for row in zip(*(cell(rows) for cell in cells), strict=True)]
            yield between + ",".join(texts)
            between = ","
    yield ("\n " if between else "") + "]\n}\n"


def _row_of(report: SpeReport) -> _Tree:
    latencies = {
        name: {"mean": _numbers(mean_latency(report, name))}
        | {label: _numbers(report.latencies[name][:, i]) for i, label in enumerate(QUANTILE_NAMES)}
        for name in LATENCIES
    }
    ratios = {
        name: {"value": _numbers(ratio.value), "low": _numbers(ratio.low), "high": _numbers(ratio.high)}
        for name, ratio in report.ratios.items()
    }
    tree: dict[str, _Texts | _Tree] = {
        "name": lambda rows: [json.dumps(report.names[row]) for row in rows.tolist()],
        "counts": {name.lower(): _counts(values) for name, values in report.counts.items()},
        "loads_by_level": {level: _counts(values) for level, values in report.levels.items()},
        "latency_cycles": latencies,
        "ratios": ratios,
    }
    if report.threads is not None:
        tree["threads"] = _counts(report.threads)
    if (sharing := report.sharing) is not None:
        tree["sharing"] = lambda rows: [json.dumps((found := sharing[row]) and found.how) for row in rows.tolist()]
        tree["shared_by"] = lambda rows: [json.dumps(_shared_by(sharing[row])) for row in rows.tolist()]
    if (users := report.users) is not None:
        tree["processes"] = lambda rows: [json.dumps([*map(_user, users[row])]) for row in rows.tolist()]
    return tree


def _shared_by(sharing: LineSharing | None) -> dict[str, Any] | None:
    if sharing is None:
        return None
    accesses = [
        {
            **_user(access.user),
            "offset": access.offset,
            "function": access.function or None,
            "loads": access.loads,
            "stores": access.stores,
        }
        for access in sharing.accesses
    ]
    order = {"changes": sharing.turns, "accesses": sharing.in_order} if sharing.in_order else None
    return {"order": order, "accesses": accesses}


def _user(user: MemoryUser) -> dict[str, Any]:
    return {
        "pid": user.pid,
        "command": user.command or None,
        "address": f"0x{user.address:x}",
        "threads": user.threads,
    }


def _counts(values: NDArray[Any]) -> _Texts:
    return lambda rows: [str(int(value)) for value in values[rows].tolist()]


def _numbers(values: NDArray[Any]) -> _Texts:
    return lambda rows: ["null" if value != value else repr(float(value)) for value in values[rows].tolist()]


def _leaves(tree: _Tree) -> Iterator[_Texts]:
    for value in tree.values():
        if callable(value):
            yield value
        else:
            yield from _leaves(value)


def _places(tree: _Tree) -> dict[str, Any]:
    return {key: _PLACE if callable(value) else _places(value) for key, value in tree.items()}
