"""Where threads' time went, as JSON."""

from tdprof.model.off_cpu import TimeSpent
from tdprof.model.thread_state import ThreadState

_SPENT = [f"{state.name.lower()}_ns" for state in ThreadState]


def time_spent_json(time: TimeSpent | None) -> dict[str, int | None]:
    """Threads and nanoseconds; null where the recording does not tell."""
    if time is None:
        return dict.fromkeys(("threads", "wall_ns", *_SPENT, "unsampled_ns", "unsampled_threads"))
    return {
        "threads": time.threads,
        "wall_ns": time.wall_ns,
        **dict(zip(_SPENT, time.spent_ns, strict=True)),
        "unsampled_ns": time.unsampled_ns,
        "unsampled_threads": time.unsampled_threads,
    }
