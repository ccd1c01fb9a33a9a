"""Who ended the sleeps that a page shows, as names and call stacks."""

from typing import Any

import numpy as np

from tdprof.model.arrays import I64
from tdprof.model.events import OFF_CPU
from tdprof.model.profile import Profile
from tdprof.profile.frames import frame_stacks
from tdprof.profile.wakers import ON_A_CPU, sample_wakers
from tdprof.report.page.functions import cut_text


def page_wakers(profile: Profile, row_of: I64) -> tuple[dict[str, Any], I64] | None:
    """The wakers as the page lists them, and int64[samples]: which of them each sample has; None: nobody asked.

    Each has the call stack, leaf first, in which it ended most of its sleep; empty where it is none of a thread.

    Args:
        row_of: int64[functions + 1], the page's row of each.
    """
    names = [event.name for event in profile.events]
    if profile.wakers is None or OFF_CPU not in names:
        return None
    texts, number = sample_wakers(profile)
    stacks, samples = frame_stacks(profile), profile.samples
    known = np.flatnonzero((samples.waker >= 0) & (number > texts.index(ON_A_CPU)))
    weight = np.zeros(len(profile.wakers.stack))
    np.add.at(weight, samples.waker[known], samples.weight[known].astype(np.float64))
    text_of = np.full(len(weight), -1, np.int64)
    text_of[samples.waker[known]] = number[known]
    found: list[list[int]] = [[] for _ in texts]
    for waker in np.argsort(weight, kind="stable").tolist():  # so that the one with most is what stays
        if text_of[waker] >= 0:
            stack = profile.wakers.stack[waker]
            found[text_of[waker]] = row_of[stacks.function[stacks.start[stack] : stacks.start[stack + 1]]].tolist()
    return {"event": names.index(OFF_CPU), "names": [cut_text(text) for text in texts], "stacks": found}, number
