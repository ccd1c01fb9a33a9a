"""Who calls whom for machines: one JSON object."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from tdprof.model.profile import Profile
from tdprof.profile.call_lines import CallLines
from tdprof.profile.frames import function_names, module_names


def render_json(profile: Profile, trees: Mapping[str, CallLines], event: int, *, limit: int = 0) -> str:
    """One JSON object with at most ``limit`` rows of each tree (0: all), of the most weight.

    ``row`` numbers the rows of a tree, ``parent`` is the row that calls, or in ``callers`` is called; null at the root.
    """
    header: dict[str, Any] = {
        "event": profile.events[event].name if profile.events else None,
        "losses": asdict(profile.losses),
        "notes": [*profile.notes],
    }
    rows = {name: list(rows_json(profile, tree, limit)) for name, tree in trees.items()}
    return json.dumps(header | rows, indent=1) + "\n"


def rows_json(profile: Profile, tree: CallLines, limit: int) -> Iterator[dict[str, Any]]:
    """A row for each call, a caller before what it calls."""
    names, modules = function_names(profile), module_names(profile)
    mapped_file = [*profile.functions.mapped_file.tolist(), -1]
    for row in tree.heaviest(limit).tolist():
        function = int(tree.function[row])
        yield {
            "row": row,
            "parent": int(tree.parent[row]) if tree.parent[row] >= 0 else None,
            "depth": int(tree.depth[row]),
            "function": names[function],
            "module": modules[mapped_file[function]] or None,
            "share": None if np.isnan(tree.share[row]) else float(tree.share[row]),
            "total": int(tree.total[row]),
            "self": int(tree.own[row]),
            "samples": int(tree.samples[row]),
            "guessed": int(tree.guessed[row]),
        }
