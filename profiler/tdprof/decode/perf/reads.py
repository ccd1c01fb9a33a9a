"""Counter values that samples carry (``PERF_SAMPLE_READ``): each becomes a sample of its own event.

With ``perf record -e '{a,b}:S'`` only the group's leader interrupts, and each of its samples holds the running counts
of all members. What a member counted since its last reading is the weight of its sample at that place, as in perf's
``deliver_sample_value`` (util/session.c).
"""

from __future__ import annotations

import numpy as np

from tdprof.decode.perf.columns import NOT_RECORDED, SAMPLE_COLUMNS, Samples, Table
from tdprof.model.arrays import U64


class ReadDeltas:
    """Turns samples with counter values into samples of every counter; keeps each counter's last value.

    Args:
        per_thread: an id stands for a counter of each thread (``inherit`` with ``PERF_SAMPLE_READ``, Linux 6.12).
        backward: all rows of ``READ`` that will come, where the kernel wrote each counter's last ones first (``perf
            record --overwrite``); None: they come in the order in which they were counted.

    Attributes:
        unknown_ids: values of counters that no event has.
    """

    def __init__(self, *, per_thread: bool = False, backward: Table | None = None) -> None:
        self.unknown_ids = 0
        self._per_thread = per_thread
        self._last: dict[tuple[int, int], int] = {}
        self._ahead: U64 | None = None
        if backward is not None:
            rows = backward[(backward["sample"] >= 0) & (backward["event"] != NOT_RECORDED)]
            order = np.lexsort((-np.arange(len(rows)), rows["time_ns"]))
            self._ahead = np.empty(len(rows), np.uint64)
            self._ahead[order] = self._deltas(rows[order])

    def expand(self, samples: Samples, reads: Table) -> Samples:
        """The samples without counter values as they are, and one for every value that grew.

        Args:
            samples: a batch.
            reads: its rows of ``READ``, in file order.
        """
        reads = reads[reads["sample"] >= 0]
        if not len(reads):
            return samples
        known = reads["event"] != NOT_RECORDED
        self.unknown_ids += int((~known).sum())
        plain = np.ones(len(samples), bool)
        plain[reads["sample"]] = False
        reads = reads[known]
        period = self._deltas(reads) if self._ahead is None else self._ahead[: len(reads)]
        self._ahead = None if self._ahead is None else self._ahead[len(reads) :]
        grew = period > 0
        rows = np.concatenate([np.flatnonzero(plain), reads["sample"][grew]])
        columns = {name: getattr(samples, name)[rows] for name in SAMPLE_COLUMNS}
        start = int(plain.sum())
        columns["event"][start:] = reads["event"][grew]
        columns["period"][start:] = period[grew]
        return Samples(**columns)

    def _deltas(self, reads: Table) -> U64:
        tid = reads["tid"] if self._per_thread else np.zeros(len(reads), np.uint32)
        order = np.lexsort((np.arange(len(reads)), tid, reads["id"]))
        id_, tid, value = reads["id"][order], tid[order], reads["value"][order]
        before = np.empty(len(order), np.uint64)
        before[1:] = value[:-1]
        first = np.ones(len(order), bool)
        first[1:] = (id_[1:] != id_[:-1]) | (tid[1:] != tid[:-1])
        for row in np.flatnonzero(first).tolist():
            before[row] = self._last.get((int(id_[row]), int(tid[row])), 0)
        for row in np.flatnonzero(np.append(first[1:], True)).tolist() if len(order) else ():
            self._last[int(id_[row]), int(tid[row])] = int(value[row])
        deltas = np.empty(len(order), np.uint64)
        # A counter that went back was reset: what it shows is all since then.
        deltas[order] = np.where(value >= before, value - before, value)
        return deltas
