"""The code addresses of a function that samples fell on, and what they add up to."""

from collections.abc import Sequence

import numpy as np

from tdprof.model.annotation import Cost
from tdprof.model.arrays import U64
from tdprof.model.profile import Profile
from tdprof.profile.choice import ChosenFunction
from tdprof.profile.frames import leaf_locations
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class SampledCode:
    """The code addresses at which samples fell into the function, itself or inlined into others.

    Attributes:
        location: location ids, n of them.
        line, file: of the function's frame there: int, and the source file's path.
        is_own: whether it is the innermost frame.
        weight, samples: uint64[n, events].
    """

    location: Sequence[int]
    line: Sequence[int]
    file: Sequence[str]
    is_own: Sequence[bool]
    weight: U64
    samples: U64


def find_sampled_code(profile: Profile, function: ChosenFunction) -> SampledCode:
    """Where a function's samples fell, by address of its code and of what was inlined into it."""
    locations, events = profile.locations, len(profile.events)
    at = leaf_locations(profile)[profile.samples.stack]
    known = at >= 0
    weight, samples = (np.zeros((len(locations.address), events), np.uint64) for _ in range(2))
    np.add.at(weight, (at[known], profile.samples.event[known]), profile.samples.weight[known])
    np.add.at(samples, (at[known], profile.samples.event[known]), profile.samples.count[known])

    is_chosen = np.isin(locations.frame_function, function.ids)
    frame_location = np.repeat(np.arange(len(locations.address)), np.diff(locations.frame_start).astype(np.int64))
    frames = np.flatnonzero(is_chosen & (samples.sum(axis=1) > 0)[frame_location])
    # The innermost of a recursion that was inlined into itself.
    location, first = np.unique(frame_location[frames], return_index=True)
    frames = frames[first]
    functions = locations.frame_function[frames].tolist()
    return SampledCode(
        location=location.tolist(),
        line=locations.frame_line[frames].tolist(),
        file=[profile.functions.file[each] for each in functions],
        is_own=(frames == locations.frame_start[location]).tolist(),
        weight=weight[location],
        samples=samples[location],
    )


def sum_cost(places: SampledCode, rows: Sequence[int] | range, events: int) -> Cost:
    """What some places took together, of each event."""
    own = [row for row in rows if places.is_own[row]]
    inlined = [row for row in rows if not places.is_own[row]]
    sums = [
        values[part].sum(axis=0, dtype=np.uint64).reshape(events)
        for part in (own, inlined)
        for values in (places.weight, places.samples)
    ]
    return Cost(*sums)
