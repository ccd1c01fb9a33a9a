"""Where a thread is while it is recorded."""

from enum import IntEnum


class ThreadState(IntEnum):
    """``enum thread_state`` of bpf/sample.h."""

    RUNNING = 0  # on a CPU
    RUNNABLE = 1  # waiting for one
    INTERRUPTIBLE = 2  # asleep, until something happens or a signal comes
    UNINTERRUPTIBLE = 3  # asleep, mostly until a device answers
