"""Inclusive values that add up over functions which a fleet takes for one."""

from collections.abc import Sequence

import numpy as np

from tdprof.model.arrays import U64
from tdprof.model.profile import Profile
from tdprof.profile.frames import frame_stacks
from tdprof.profile.hotspots import Hotspots


def totals_once(profile: Profile, hotspots: Hotspots, alike: Sequence[Sequence[int]]) -> tuple[U64, U64]:
    """Inclusive weight and samples of functions, uint64[hotspots, events] each: of those alike a stack counts for one.

    It is the innermost, so that none has less than at the leaf.

    Args:
        alike: rows of the hotspots, two or more each, no row twice.
    """
    if not alike:
        return hotspots.inclusive_weight, hotspots.inclusive_samples
    stacks, rows, events = frame_stacks(profile), len(hotspots), len(profile.events)
    group_of_row = np.full(rows, -1)
    for group, members in enumerate(alike):
        group_of_row[members] = group
    row_of = np.full(int(hotspots.function.max(initial=-1)) + 2, rows)
    row_of[hotspots.function] = np.arange(rows)  # -1, no function, finds the last
    group_of = np.append(group_of_row, -1)[row_of]
    frames = np.flatnonzero(group_of[stacks.function] >= 0)
    stack = np.searchsorted(stacks.start, frames, "right") - 1
    _, innermost = np.unique(stack * len(alike) + group_of[stacks.function[frames]], return_index=True)
    stack, row = stack[innermost], row_of[stacks.function[frames[innermost]]]
    weight, samples = hotspots.inclusive_weight.copy(), hotspots.inclusive_samples.copy()
    for column, total in ((profile.samples.weight, weight), (profile.samples.count, samples)):
        total[group_of_row >= 0] = 0
        for event in range(events):
            mine, of_stack = profile.samples.event == event, np.zeros(len(stacks.start) - 1, np.uint64)
            np.add.at(of_stack, profile.samples.stack[mine], column[mine])
            np.add.at(total[:, event], row, of_stack[stack])
    return weight, samples
