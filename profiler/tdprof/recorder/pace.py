"""When a recording drains, looks about, corrects its periods and ends, by the clock."""

import time

LOOK_INTERVAL_NS = 900_000_000  # how often, at least, CPUs and control groups are looked for, and the manifest written


class Pace:
    """Of one run of a recording's loop, which begins now.

    Args:
        duration_s: after which it ends; None: not by the clock.
        interval_ns: between two drains, at most.

    Attributes:
        interval_ns: the same; what is set counts from the next drain on.
    """

    def __init__(self, duration_s: float | None, interval_ns: int) -> None:
        now_ns = time.monotonic_ns()
        self.interval_ns = interval_ns
        self._end_ns = None if duration_s is None else now_ns + round(duration_s * 1e9)
        self._drain_ns = now_ns + interval_ns
        self._look_ns = now_ns + LOOK_INTERVAL_NS
        self._check_ns: int | None = None

    def is_over(self) -> bool:
        """Whether the recording lasted as long as it should."""
        return self._end_ns is not None and time.monotonic_ns() >= self._end_ns

    def is_drain_due(self) -> bool:
        """Whether an interval has lasted as long as one may."""
        return time.monotonic_ns() >= self._drain_ns

    def is_look_due(self) -> bool:
        """Whether nobody has looked about for too long."""
        return time.monotonic_ns() >= self._look_ns

    def is_check_due(self) -> bool:
        """Whether to correct periods."""
        return self._check_ns is not None and time.monotonic_ns() >= self._check_ns

    def drained(self) -> None:
        """All was drained, when it was due or before."""
        self._drain_ns = max(self._drain_ns, time.monotonic_ns()) + self.interval_ns

    def looked(self) -> None:
        """One has looked about."""
        self._look_ns = time.monotonic_ns() + LOOK_INTERVAL_NS

    def check_in(self, wait_ns: int) -> None:
        """Correct periods after so long."""
        self._check_ns = time.monotonic_ns() + wait_ns

    def check_no_more(self) -> None:
        """Nothing that has a period to correct counts now."""
        self._check_ns = None

    def wait_ms(self, most_ms: float) -> float:
        """How long nothing is due, at most ``most_ms``; 0: something is. A look can wait for what else is due."""
        now_ns = time.monotonic_ns()
        due_ns = [due for due in (self._end_ns, self._drain_ns, self._check_ns) if due is not None]
        return max(0.0, min(most_ms, (min(due_ns) - now_ns) / 1e6))
