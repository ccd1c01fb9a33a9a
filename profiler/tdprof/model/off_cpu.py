"""Where threads are while they are recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ThreadState(IntEnum):
    """``enum thread_state`` of bpf/sample.h."""

    RUNNING = 0  # on a CPU
    RUNNABLE = 1  # waiting for one
    INTERRUPTIBLE = 2  # asleep, until something happens or a signal comes
    UNINTERRUPTIBLE = 3  # asleep, mostly until a device answers

    @property
    def words(self) -> str:
        """As reports say it."""
        return ("on a CPU", "waiting for a CPU", "asleep", "asleep beyond signals")[self]


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Where the time of all threads went, as it was added up at every switch.

    Attributes:
        threads: how many were recorded.
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
