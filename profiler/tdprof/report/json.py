"""The report for machines: one JSON object, all counts exact."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tdprof.frames import function_names, module_names, printable
from tdprof.profile import Profile
from tdprof.report.hotspots import Hotspots, UnknownSamples


def render_json(profile: Profile, hotspots: Hotspots, unknown: list[UnknownSamples]) -> Iterator[str]:
    """Pieces of the JSON text; each entry of ``functions`` has a line of its own.

    ``samples`` and ``self`` of a function count where it is the leaf, ``total`` counts where it is anywhere in the
    stack, recursion once. ``file`` and ``line`` are null where they are not known.
    """
    header = json.dumps(_header(profile, unknown), indent=2)
    yield header.removesuffix("\n}") + ',\n  "functions": ['
    separator = "\n    "
    for function in _functions(profile, hotspots):
        yield separator + json.dumps(function)
        separator = ",\n    "
    yield "\n  ]\n}\n"


def _header(profile: Profile, unknown: list[UnknownSamples]) -> dict[str, Any]:
    weight = profile.total_weight()
    samples = profile.total_samples()
    names = [event.name for event in profile.events]
    return {
        "command": [printable(word) for word in profile.command],
        "rung": profile.rung,
        "rung_reason": profile.rung_reason,
        "start_realtime_ns": profile.start_realtime_ns,
        "duration_ns": profile.duration_ns,
        "events": [
            {**asdict(event), "samples": int(samples[i]), "weight": int(weight[i])}
            for i, event in enumerate(profile.events)
        ],
        "losses": asdict(profile.losses),
        "notes": [*profile.notes],
        "unknown": [
            {
                "reason": "no_stack" if each.reason is None else each.reason.name.lower(),
                "samples": each.samples,
                "self": dict(zip(names, each.weight.tolist(), strict=True)),
            }
            for each in unknown
        ],
    }


def _functions(profile: Profile, hotspots: Hotspots) -> Iterator[dict[str, Any]]:
    names = function_names(profile)
    modules = module_names(profile)
    files = [*map(printable, profile.functions.file), ""]
    mapped_file = [*profile.functions.mapped_file.tolist(), -1]
    events = [event.name for event in profile.events]
    columns = (
        hotspots.function.tolist(),
        hotspots.line.tolist(),
        hotspots.self_samples.sum(axis=1).tolist(),
        hotspots.self_weight.tolist(),
        hotspots.inclusive_weight.tolist(),
    )
    for function, line, samples, self_weight, inclusive_weight in zip(*columns, strict=True):
        yield {
            "name": names[function],
            "module": modules[mapped_file[function]] or None,
            "file": files[function] or None,
            "line": line or None,
            "samples": samples,
            "self": dict(zip(events, self_weight, strict=True)),
            "total": dict(zip(events, inclusive_weight, strict=True)),
        }
