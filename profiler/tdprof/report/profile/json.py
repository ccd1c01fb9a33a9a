"""The report for machines: one JSON object, all counts exact."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tdprof.model.findings import Findings
from tdprof.model.profile import Profile, StackWalks
from tdprof.profile.frames import function_names, module_names
from tdprof.profile.guesses import guessed_shares
from tdprof.profile.hotspots import Hotspots, UnknownSamples
from tdprof.report.findings.json import function_json, metrics_json, program_json
from tdprof.report.time_spent import time_spent_json
from tdprof.text import printable


def render_json(
    profile: Profile,
    hotspots: Hotspots,
    unknown: list[UnknownSamples],
    findings: Findings | None = None,
    *,
    by_line: bool = False,
    is_whole: bool = False,
    more: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Pieces of the JSON text; each entry of ``functions`` has a line of its own.

    ``samples`` and ``self`` of a function count where it is the leaf, ``total`` counts where it is anywhere in the
    stack, recursion once. ``file`` and ``line`` are null where they are not known.

    Args:
        findings: of a Topdown recording, or of SPE records beside the samples; adds metrics and bottlenecks.
        by_line: whether the rows are source lines.
        is_whole: each function's inclusive metrics and those of its lines and call paths, too.
        more: further keys of the object.
    """
    added = {} if findings is None else program_json(findings)
    header = json.dumps({**_header(profile, unknown), **added, **(more or {})}, indent=2)
    yield header.removesuffix("\n}") + ',\n  "functions": ['
    separator = "\n    "
    for function, metrics in zip(
        _functions(profile, hotspots),
        _metrics(profile, hotspots, findings, by_line=by_line, is_whole=is_whole),
        strict=True,
    ):
        yield separator + json.dumps(function | metrics)
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
        "time": None if profile.window is None else asdict(profile.window),
        "events": [
            {**asdict(event), "samples": int(samples[i]), "weight": int(weight[i])}
            for i, event in enumerate(profile.events)
        ],
        "losses": asdict(profile.losses),
        "stacks": _walks_json(profile.walks),
        "time_spent": None if profile.thread_times is None else time_spent_json(profile.thread_times.total()),
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


def _walks_json(walks: StackWalks | None) -> dict[str, Any] | None:
    """How many samples' user call stacks ended how; null where that is not known."""
    if walks is None:
        return None
    return {
        "samples": walks.total,
        "ends": {end.word: count for end, count in walks.ends.items()},
        "guessed": walks.guessed,
    }


def _metrics(
    profile: Profile, hotspots: Hotspots, findings: Findings | None, *, by_line: bool, is_whole: bool
) -> Iterator[dict[str, Any]]:
    """What each row has of metrics; nothing without a Topdown recording. A line has no diagnosis of its own."""
    if findings is None:
        yield from ({} for _ in range(len(hotspots)))
    elif by_line:
        lines = zip(findings.line_function.tolist(), findings.line.tolist(), strict=True)
        row_of_line = {line: row for row, line in enumerate(lines)}
        for line in zip(hotspots.function.tolist(), hotspots.line.tolist(), strict=True):
            yield {"metrics": metrics_json(findings.lines, row_of_line.get(line))}
    else:
        row_of, names = findings.row_of(), function_names(profile)
        for function in hotspots.function.tolist():
            yield function_json(findings, row_of.get(function), names if is_whole else None)


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
        guessed_shares(profile)[hotspots.function].tolist(),
    )
    for function, line, samples, self_weight, inclusive_weight, guessed in zip(*columns, strict=True):
        yield {
            "name": names[function],
            "module": modules[mapped_file[function]] or None,
            "file": files[function] or None,
            "line": line or None,
            "samples": samples,
            "self": dict(zip(events, self_weight, strict=True)),
            "total": dict(zip(events, inclusive_weight, strict=True)),
            "guessed": guessed,
        }
