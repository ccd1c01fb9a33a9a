"""What a thread is doing; by itself, since those who record load no arrays."""

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
