"""Samples added up by control group."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import U64
from tdprof.model.events import EventInfo


@dataclass(frozen=True, slots=True)
class CgroupReport:
    """One row for each event and control group, most weight of an event first.

    Attributes:
        events: of the capture.
        event: int64[n].
        cgroup: the kernel's id, None where the sample has none.
        path: None where the recording does not tell the id's path.
        count, weight: uint64[n], samples, and what they stand for in the event's unit.
        share, half_width: float64[n], of the event's weight, and half its 95 % interval.
    """

    events: Sequence[EventInfo]
    event: Sequence[int]
    cgroup: Sequence[int | None]
    path: Sequence[str | None]
    count: U64
    weight: U64
    share: NDArray[np.float64]
    half_width: NDArray[np.float64]
