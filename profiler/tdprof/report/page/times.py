"""A profile's samples by time, as the page's strip and all that follows a choice on it read them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, I64
from tdprof.model.choices import GroupKind
from tdprof.model.profile import Profile
from tdprof.model.time_range import NS_PER_S
from tdprof.profile.frames import function_names, number_values
from tdprof.profile.groups import group_samples
from tdprof.profile.intervals import Intervals
from tdprof.report.page.packing import Columns, Header, shortened
from tdprof.values import dataclass

MOST_BINS = 600
_MOST_TURNS, _CLOSE = 30, 1e-4  # of a fit
_BITS = 13  # of a factor


@dataclass(frozen=True, slots=True)
class SampledPlaces:
    """Where samples fell, as far as the page tells it: a node of its calls, a line of its lines, and who woke them.

    Attributes:
        node, line, waker: int64[n], ascending by node; each three once.
        of_sample: int32[samples], the place of each.
    """

    node: I64
    line: I64
    waker: I64
    of_sample: NDArray[np.int32]


def find_places(node: I64, line: I64, waker: I64) -> SampledPlaces:
    """The places of samples in these nodes and lines, with these wakers."""
    pairs, pair = number_values((node << 32 | line).astype(np.uint64))
    keys, of_sample = number_values(pair.astype(np.uint64) << np.uint64(32) | waker.astype(np.uint64))
    pair_of, low = pairs[(keys >> np.uint64(32)).astype(np.int64)], np.uint64(0xFFFF_FFFF)
    node_of, line_of, waker_of = pair_of >> np.uint64(32), pair_of & low, keys & low
    return SampledPlaces(node_of.astype(np.int64), line_of.astype(np.int64), waker_of.astype(np.int64), of_sample)


def place_columns(places: SampledPlaces) -> dict[str, NDArray[np.integer]]:
    """Node, less that of the place before, and line of each place."""
    return {"placeNodeStep": np.diff(places.node, prepend=0), "placeLine": places.line}


def phases_header(profile: Profile, event: int) -> list[dict[str, Any]]:
    """When each phase was, in seconds, and its hottest function; empty where the profile has one only."""
    if event >= len(profile.events):
        return []
    phases = group_samples(profile, GroupKind.PHASE, event)
    if len(phases) < 2:
        return []
    names = function_names(profile)
    rows = zip(phases.seconds, phases.hottest.tolist(), phases.hottest_share.tolist(), strict=True)
    return [
        {
            "begin": begin_ns / NS_PER_S,
            "end": end_ns / NS_PER_S,
            "hottest": names[hottest] if share > 0 else None,
            "share": share if share > 0 else 0,
        }
        for (begin_ns, end_ns), hottest, share in rows
    ]


def time_columns(
    profile: Profile, places: SampledPlaces, bins: Intervals, events: Sequence[int]
) -> tuple[Header, Columns]:
    """Header and columns of some events' samples by event, bin and place; entries without any are left out.

    ``timeStart`` is where the entries of each bin of each event begin, with their end behind; ``timeStep`` the place
    less that of the entry before in the bin; ``timeCount`` the samples. One of these weighs the event's mean times
    ``timeWeight``, of each event's nodes that have any, and ``timeScale``, of each bin of each of the events; both are
    1 where the period is fixed, and so is ``timeEffective``, of each bin: its effective number of samples, for each.
    """
    samples, n = profile.samples, len(bins.end)
    many = max(1, len(places.node))
    row_of = np.full(len(profile.events), -1, np.int64)
    row_of[list(events)] = np.arange(len(events))
    row = row_of[samples.event]
    chosen = row >= 0
    keys = (row[chosen] * n + bins.number[chosen]) * many + places.of_sample[chosen]
    counts = samples.count[chosen]
    order = np.argsort(keys, kind="stable")
    is_first = np.diff(keys[order], prepend=-1) != 0
    first = np.flatnonzero(is_first)
    distinct = keys[order][first]
    count = np.add.reduceat(counts[order], first) if len(first) else counts
    place = distinct % many
    start = np.searchsorted(distinct, np.arange(len(events) * n + 1) * many)
    step = np.diff(place, prepend=0)
    begins = start[:-1][start[:-1] < len(place)]
    step[begins] = place[begins]
    weight, scale = _weights(profile, places.node[places.of_sample], bins)
    header = {
        "begin": _seconds(bins.begin),
        "end": _seconds(bins.end),
        "isBySample": profile.has_sample_times,
        "events": list(events),
    }
    return header, {
        **place_columns(places),
        "timeStart": start,
        "timeStep": step,
        "timeCount": count,
        "timeWeight": shortened(weight, _BITS),
        "timeScale": shortened(scale.reshape(-1, n)[list(events)].reshape(-1), _BITS),
        "timeEffective": shortened(_effective_parts(profile, bins)[list(events)].reshape(-1), _BITS),
    }


def _weights(profile: Profile, node: I64, bins: Intervals) -> tuple[F64, F64]:
    """Factors of each event's nodes that have samples, and of its bins: times the event's mean what a sample weighs.

    Added up by bin these are the samples' weights, and by node nearly so: proportions are fitted in turns, as where a
    period follows the time (a rate that is asked for, a clock that slows down) whatever runs.
    """
    samples, n, nodes = profile.samples, len(bins.end), int(node.max(initial=0)) + 1
    event = samples.event.astype(np.int64)
    keys, group = number_values((event * nodes + node).astype(np.uint64))
    cell, cells = event * n + bins.number, len(profile.events) * n
    weight, count = samples.weight.astype(np.float64), samples.count.astype(np.float64)
    of_node, of_bin = np.bincount(group, weight, len(keys)), np.bincount(cell, weight, cells)
    by_node, by_bin = np.zeros(len(keys)), np.ones(cells)
    for _ in range(_MOST_TURNS):
        before, usual = by_bin, np.bincount(group, count * by_bin[cell], len(keys))
        by_node = np.divide(of_node, usual, out=np.zeros(len(keys)), where=usual > 0)
        usual = np.bincount(cell, count * by_node[group], cells)
        by_bin = np.divide(of_bin, usual, out=np.ones(cells), where=usual > 0)
        if np.allclose(by_bin, before, rtol=_CLOSE, atol=0):
            break
    mean = profile.total_weight() / np.maximum(profile.total_samples(), 1)
    return by_node / np.where(mean > 0, mean, 1)[keys.astype(np.int64) // nodes], by_bin


def _effective_parts(profile: Profile, bins: Intervals) -> F64:
    """float64[events, bins]: Kish's effective number of the samples, for each of them; 1 where there are none."""
    samples, shape = profile.samples, (len(profile.events), len(bins.end))
    cell = samples.event.astype(np.int64) * shape[1] + bins.number
    weight, count = samples.weight.astype(np.float64), samples.count.astype(np.float64)
    sums = [np.bincount(cell, each, shape[0] * shape[1]) for each in (weight, count, weight**2 / count)]
    parts: F64 = np.divide(sums[0] ** 2, sums[1] * sums[2], out=np.ones_like(sums[0]), where=sums[2] > 0)
    return parts.reshape(shape)


def _seconds(ns: I64) -> list[float]:
    return [round(each / NS_PER_S, 6) for each in ns.tolist()]
