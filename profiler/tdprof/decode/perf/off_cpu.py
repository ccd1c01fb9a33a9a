"""Samples of time off a CPU, which perf's own BPF program makes (``--off-cpu``): their times and threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tdprof.decode.perf.attr import Attr
from tdprof.decode.perf.columns import Samples
from tdprof.model.arrays import distinct

# What the program added up until the end is written then, with times from here on (perf's util/bpf_off_cpu.c). Since
# Linux 6.16 that is what was shorter than half a second.
_AT_END_NS = np.uint64(2**64 - 2**32)


class OffCpuSamples:
    """Where samples of time off a CPU belong.

    Args:
        attrs: the file's events.
        mappings, processes: the capture's tables.
    """

    def __init__(self, attrs: Sequence[Attr], mappings: pa.Table, processes: pa.Table) -> None:
        self._events = np.array([number for number, attr in enumerate(attrs) if attr.is_off_cpu], np.uint32)
        self._pids = distinct(np.concatenate([table["pid"].to_numpy() for table in (mappings, processes)]))
        times = [table["time_ns"].to_numpy() for table in (mappings, processes)]
        self._last_ns = np.concatenate(times).max(initial=np.uint64(0))

    def correct(self, samples: Samples) -> None:
        """Give those of a batch, in place, the time and thread that they are of."""
        if not len(self._events) or not len(samples):
            return
        rows = np.flatnonzero(np.isin(samples.event, self._events))
        is_at_end = samples.time_ns[rows] >= _AT_END_NS
        at_end, at_once = rows[is_at_end], rows[~is_at_end]
        others = np.ones(len(samples), bool)
        others[at_end] = False
        self._last_ns = max(self._last_ns, samples.time_ns[others].max(initial=np.uint64(0)))
        samples.time_ns[at_end] = self._last_ns
        # Those that are written at once have the thread where the others have the process (perf's off_cpu.bpf.c).
        pid, tid = samples.pid[at_once], samples.tid[at_once]
        is_swapped = ~np.isin(pid, self._pids) & np.isin(tid, self._pids)
        samples.pid[at_once], samples.tid[at_once] = np.where(is_swapped, tid, pid), np.where(is_swapped, pid, tid)
