"""Where the time of processes and of threads went, of those that have rows of their own."""

from collections.abc import Iterable

import numpy as np

from tdprof.model.off_cpu import ThreadTimes, TimeSpent
from tdprof.profile.frames import group_rows


def times_of(times: ThreadTimes, pids: Iterable[int | None], tids: Iterable[int | None]) -> list[TimeSpent | None]:
    """Of each of some threads, or processes where the thread is None; None for whom it is not told."""
    found: dict[tuple[int | None, int | None], TimeSpent] = {}
    for is_of_process in (False, True):
        order, start = group_rows(times.pid, times.pid if is_of_process else times.tid)
        for rows in np.split(order, start[1:]):
            some = ThreadTimes(
                times.pid[rows], times.tid[rows], times.wall_ns[rows], times.spent_ns[rows], times.unsampled_ns[rows]
            )
            for pid, tid in zip(some.pid[:1].tolist(), some.tid[:1].tolist(), strict=True):
                found[pid, None if is_of_process else tid] = some.total()
    return [found.get(each) for each in zip(pids, tids, strict=True)]
