"""A fleet's functions for machines: one JSON object."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from tdprof.model.fleet import Estimates, FleetFunction, SetAside, Stratum, StratumShares


def render_json(shares: Sequence[StratumShares], set_aside: SetAside, *, limit: int) -> Iterator[str]:
    """The JSON text. Shares are fractions; null is not known."""
    strata = [
        {
            **stratum_json(each.stratum),
            "is_between_hosts": each.own.is_between,
            "functions": [
                {
                    **function_json(each.functions[row]),
                    "self": estimate_json(each.own, row),
                    "total": estimate_json(each.total, row),
                }
                for row in range(len(each.functions) if not limit else min(limit, len(each.functions)))
            ],
        }
        for each in shares
    ]
    yield dump({**set_aside_json(set_aside), "strata": strata})


def dump(value: Any) -> str:
    """A JSON text with a line end."""
    return json.dumps(value, indent=1) + "\n"


def set_aside_json(set_aside: SetAside) -> dict[str, Any]:
    """What an answer does not hold."""
    return {"notes": list(set_aside.notes), "rejected": set_aside.rejected}


def stratum_json(stratum: Stratum) -> dict[str, Any]:
    """What was put together."""
    return {
        "core": stratum.core,
        "event": stratum.event,
        "unit": stratum.unit,
        "hosts": len(stratum.hosts),
        "recordings": stratum.recordings,
        "samples": int(stratum.samples.sum()),
        "weight": int(stratum.weight.sum()),
    }


def function_json(function: FleetFunction) -> dict[str, Any]:
    """What a function is."""
    return {
        "module": function.module,
        "name": function.name,
        "file": function.file or None,
        "is_kernel": function.is_kernel,
    }


def estimate_json(estimates: Estimates, row: int) -> dict[str, Any]:
    """One value with its interval and what it rests on."""
    return {
        "share": number(estimates.value[row]),
        "half_width": number(estimates.half_width[row]),
        "low": number(estimates.low[row]),
        "high": number(estimates.high[row]),
        "hosts": int(estimates.hosts[row]),
        "samples": int(estimates.samples[row]),
        "design_effect": number(estimates.design_effect[row]),
    }


def number(value: float) -> float | None:
    """A number as JSON has it; null where it is not known."""
    return float(value) if math.isfinite(value) else None
