"""Where the time of processes and of threads went, of those that have rows of their own."""

from collections.abc import Sequence

import numpy as np

from tdprof.model.arrays import group_rows
from tdprof.model.off_cpu import ThreadTimes, TimeSpent


def times_of(
    times: ThreadTimes, pids: Sequence[int | None], tids: Sequence[int | None] | None
) -> list[TimeSpent | None]:
    """Of each of some threads, or of processes where there are no ``tids``; None for whom it is not told."""
    found: dict[tuple[int | None, int | None], TimeSpent] = {}
    order, start = group_rows(times.pid, times.pid if tids is None else times.tid)
    for rows in np.split(order, start[1:]):
        some = ThreadTimes(
            times.pid[rows], times.tid[rows], times.wall_ns[rows], times.spent_ns[rows], times.unsampled_ns[rows]
        )
        for pid, tid in zip(some.pid[:1].tolist(), some.tid[:1].tolist(), strict=True):
            found[pid, None if tids is None else tid] = some.total()
    asked = zip(pids, [None] * len(pids) if tids is None else tids, strict=True)
    return [found.get(each) for each in asked]
