"""Simulated runs of one program: samples of functions over time, with the scatter that real machines have."""

import itertools
from collections.abc import Mapping

import numpy as np

from builders.profiles import CLOCK, ProfileBuilder
from tdprof.model.events import EventInfo
from tdprof.model.profile import Profile

INTERVAL_NS = 1_000_000_000


def simulate_run(
    random: np.random.Generator,
    shares: Mapping[str, float],
    *,
    seconds: float = 10.0,
    frequency_hz: int = 999,
    jitter: float = 0.0,
    machine: float = 0.0,
    has_phases: bool = False,
    slow: Mapping[str, float] | None = None,
) -> Profile:
    """A run of a command that spends ``shares`` of ``seconds`` in its functions, in a loop or one after the other.

    Args:
        jitter: relative standard deviation of a function's speed from one second to the next.
        machine: relative standard deviation of the whole run's speed.
        has_phases: each function runs to its end before the next begins.
        slow: factors on functions' time.
    """
    names = list(shares)
    time_s = np.array([shares[name] * seconds * (slow or {}).get(name, 1.0) for name in names])
    time_s *= np.exp(random.normal(0, machine)) if machine else 1.0
    intervals = max(1, round(float(time_s.sum())))
    if has_phases:
        edges = np.cumsum([0.0, *time_s])
        ticks = np.linspace(0, edges[-1], intervals + 1)
        in_interval = np.array(
            [
                np.clip(np.minimum(ticks[1:], end) - np.maximum(ticks[:-1], start), 0, None)
                for start, end in itertools.pairwise(edges)
            ]
        )
    else:
        in_interval = np.repeat(time_s[:, None] / intervals, intervals, axis=1)
    if jitter:
        in_interval = in_interval * np.exp(random.normal(0, jitter, in_interval.shape))
    samples = random.poisson(in_interval * frequency_hz)
    period = 1_000_000_000 // frequency_hz
    event = EventInfo(**{**_fields(CLOCK), "frequency_hz": frequency_hz, "total": round(in_interval.sum() * 1e9)})
    builder = ProfileBuilder([event])
    for row, name in enumerate(names):
        for interval in np.flatnonzero(samples[row]).tolist():
            count = int(samples[row, interval])
            builder.add("main", name, count=count, weight=count * period, time_ns=(interval + 1) * INTERVAL_NS)
    return builder.build(duration_ns=round(in_interval.sum() * 1e9), is_whole_run=True)


def _fields(event: EventInfo) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__slots__}
