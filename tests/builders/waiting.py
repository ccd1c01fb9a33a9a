"""Waits of tests, all of which end: in what was waited for, or in words."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

# How long anything may take on a machine that is busy with other work; nothing waits this long unless it hangs.
PATIENCE_S = 300.0


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[Any] | None = None, *, patience_s: float = PATIENCE_S
) -> None:
    """Return when ``condition`` holds.

    Raises:
        AssertionError: it never did, or ``process`` ended before.
    """
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        assert process is None or process.poll() is None, "ended early"
        time.sleep(0.02)


@contextlib.contextmanager
def ends_within(seconds: int, failure: Exception) -> Iterator[None]:
    """Raise ``failure`` within, in the main thread, once it took so long."""

    def fail(*_: object) -> None:
        raise failure

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
