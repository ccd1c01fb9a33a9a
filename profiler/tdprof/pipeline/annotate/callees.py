"""Where the samples of a function are that has none in its own code: in what it calls."""

from collections import Counter

import numpy as np

from tdprof.model.profile import Profile
from tdprof.profile.choice import ChosenFunction
from tdprof.profile.frames import frame_stacks, function_names

_MOST_NAMED = 4


def why_no_samples(profile: Profile, function: ChosenFunction, event: int) -> str:
    """A sentence on a function without samples of its own: which functions that it calls have an event's samples."""
    stacks = frame_stacks(profile)
    weight = np.zeros(len(stacks.start) - 1)
    chosen = profile.samples.event == event
    np.add.at(weight, profile.samples.stack[chosen], profile.samples.weight[chosen])
    frame = np.flatnonzero(np.isin(stacks.function, function.ids))
    stack = np.searchsorted(stacks.start, frame, side="right") - 1
    # The innermost of a recursion.
    stack, first = np.unique(stack, return_index=True)
    frame = frame[first]
    calls = frame > stacks.start[stack]
    callees: Counter[str] = Counter()
    names = function_names(profile)
    for callee, part in zip(stacks.function[frame[calls] - 1].tolist(), weight[stack[calls]].tolist(), strict=True):
        callees[names[callee]] += part
    total = float(weight.sum())
    named = [f"{name} {part / total:.1%}" for name, part in callees.most_common(_MOST_NAMED) if part]
    if not named:
        return "no sample fell into its code"
    more = ", …" if len(callees) > len(named) else ""
    return (
        f"no sample fell into its own code; {sum(callees.values()) / total:.1%} of all are in what it calls: "
        f"{', '.join(named)}{more} (tdprof annotate CAPTURE NAME)"
    )
