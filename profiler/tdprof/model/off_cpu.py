"""Where threads are while they are recorded."""

from collections.abc import Sequence

from tdprof.model.arrays import U32, U64
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Where the time of some threads went, as it was added up at every switch.

    Attributes:
        threads: how many.
        wall_ns: from the beginning of each, or of its recording, to the end.
        spent_ns: by `ThreadState`; they add up to the time that passed.
        unsampled_ns: of that, waits that had not ended when the recording did: no sample stands for them.
        unsampled_threads: of so many threads.
    """

    threads: int
    wall_ns: int
    spent_ns: Sequence[int]
    unsampled_ns: int
    unsampled_threads: int

    @property
    def unaccounted_ns(self) -> int:
        """Wall time in no state (negative: in two), which is none unless something is wrong."""
        return self.wall_ns - sum(self.spent_ns)


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Where the time of each thread went, with the meanings of `TimeSpent`; a number may have been several threads'.

    Attributes:
        pid, tid: uint32[n].
        wall_ns, unsampled_ns: uint64[n].
        spent_ns: uint64[n, states].
    """

    pid: U32
    tid: U32
    wall_ns: U64
    spent_ns: U64
    unsampled_ns: U64

    def total(self) -> TimeSpent:
        """Of all threads."""
        return TimeSpent(
            len(self.pid),
            int(self.wall_ns.sum()),
            [int(each) for each in self.spent_ns.sum(axis=0)],
            int(self.unsampled_ns.sum()),
            int((self.unsampled_ns > 0).sum()),
        )
