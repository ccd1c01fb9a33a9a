"""Samples of a capture added up by control group."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tdprof.model.cgroups import CgroupReport
from tdprof.model.events import EventInfo
from tdprof.profile.frames import group_rows
from tdprof.profile.hotspots import effective_number
from tdprof.profile.statistics import wilson_95


def add_up_cgroups(events: Sequence[EventInfo], samples: pa.Table, paths: Mapping[int, str]) -> CgroupReport:
    """Add samples up by event and control group.

    Args:
        events: of the capture.
        samples: its table, with the column ``cgroup``.
        paths: of control groups, by id.
    """
    event = samples["event"].to_numpy().astype(np.int64)
    cgroup, count, weight = (samples[name].fill_null(0).to_numpy() for name in ("cgroup", "count", "weight"))
    order, start = group_rows(event, cgroup)
    counts = np.add.reduceat(count[order], start) if len(start) else count
    weights = np.add.reduceat(weight[order], start) if len(start) else weight
    of_event, ids = event[order[start]], cgroup[order[start]]
    share, half_width = np.full(len(start), np.nan), np.full(len(start), np.nan)
    for number in range(len(events)):
        mine = of_event == number
        total = float(weights[mine].sum())
        if total:
            share[mine] = weights[mine] / total
            n = effective_number(weight[event == number], count[event == number])
            half_width[mine] = wilson_95(share[mine], n)[1]
    by_weight = np.lexsort((ids, -weights.astype(np.float64), of_event))
    return CgroupReport(
        events=events,
        event=of_event[by_weight].tolist(),
        cgroup=[number or None for number in ids[by_weight].tolist()],
        path=[paths.get(number) for number in ids[by_weight].tolist()],
        count=counts[by_weight],
        weight=weights[by_weight],
        share=share[by_weight],
        half_width=half_width[by_weight],
    )
