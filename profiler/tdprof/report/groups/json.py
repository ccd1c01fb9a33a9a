"""Samples by process, thread, command, module, control group, language, second, phase or state, as one JSON object."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from tdprof.model.cgroups import Cgroup
from tdprof.model.choices import TIME_KINDS, GroupKind
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names
from tdprof.profile.groups import Groups
from tdprof.profile.phases import FALSE_POSITIVE_RATE
from tdprof.report.groups.phases import changes_json
from tdprof.report.groups.seconds import functions_json
from tdprof.report.time_spent import time_spent_json
from tdprof.text import printable


def render_json(profile: Profile, groups: Groups, *, limit: int = 0) -> str:
    """One JSON object with at most ``limit`` rows (0: all); what is not known is null."""
    header = {
        "by": groups.kind.value,
        "event": profile.events[groups.event].name if profile.events else None,
        "confidence": 0.95,
        "losses": asdict(profile.losses),
        "notes": [*profile.notes],
        **({"false_positive_rate": FALSE_POSITIVE_RATE} if groups.kind is GroupKind.PHASE else {}),
        **({"functions": functions_json(profile, groups)} if groups.kind in TIME_KINDS else {}),
        "rows": list(rows_json(profile, groups, limit)),
    }
    return json.dumps(header, indent=1) + "\n"


def rows_json(profile: Profile, groups: Groups, limit: int) -> Iterator[dict[str, Any]]:
    """A row for each group, with the columns that its kind has."""
    names, events = function_names(profile), [event.name for event in profile.events]
    for row in range(min(limit or len(groups), len(groups))):
        yield {
            **_identity(groups, row),
            "share": _number(groups.share[row]),
            "half_width": _number(groups.half_width[row]),
            "samples": int(groups.samples[row].sum()),
            "weight": dict(zip(events, groups.weight[row].tolist(), strict=True)),
            "hottest": None if np.isnan(groups.hottest_share[row]) else names[groups.hottest[row]],
            "hottest_share": _number(groups.hottest_share[row]),
            **({"time_spent": time_spent_json(groups.spent[row])} if groups.spent else {}),
            **({"threads_waiting": groups.waiting[row]} if groups.waiting else {}),
            **({"changes": changes_json(groups.changes[row], names)} if groups.changes else {}),
        }


def _identity(groups: Groups, row: int) -> dict[str, Any]:
    name, pid, tid = groups.name[row] or None, groups.pid[row], groups.tid[row]
    match groups.kind:
        case GroupKind.PROCESS:
            return {"pid": pid, "command": name}
        case GroupKind.THREAD:
            return {"pid": pid, "tid": tid, "thread": name}
        case GroupKind.COMMAND:
            return {"command": name, "processes": groups.members[row]}
        case GroupKind.MODULE:
            return {"module": name}
        case GroupKind.LANGUAGE:
            return {"language": name}
        case GroupKind.CPU:
            return {"cpu": None if name is None else int(name)}
        case GroupKind.STATE:
            return {"state": name}
        case GroupKind.WAKER:
            return {"waker": name}
        case GroupKind.SECOND | GroupKind.PHASE:
            begin_ns, end_ns = groups.seconds[row]
            return {"begin_ns": begin_ns, "end_ns": end_ns}
        case GroupKind.CGROUP:
            return _cgroup(groups.cgroup[row])


def _cgroup(found: Cgroup | None) -> dict[str, Any]:
    cgroup = found or Cgroup(None, None)
    texts = {"path": cgroup.path, "container": cgroup.container, "pod": cgroup.pod, "unit": cgroup.unit}
    return {"cgroup": cgroup.id, **{key: None if text is None else printable(text) for key, text in texts.items()}}


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
