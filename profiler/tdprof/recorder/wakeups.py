"""What wakes the loop of a recording, and what ends it: descriptors that become ready."""

import contextlib
import os
import select
from collections.abc import Iterable, Iterator, Sequence

from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Wakeups:
    """Of one run of the loop.

    Attributes:
        poller: knows everything that wakes it.
        ending: descriptors whose readiness ends it once all have been ready.
    """

    poller: select.poll
    ending: set[int]

    def add(self, descriptors: Iterable[int]) -> None:
        """Let these wake the loop, too."""
        for fd in descriptors:
            self.poller.register(fd, select.POLLIN)

    def wait(self, most_ms: float) -> set[int]:
        """The descriptors that are ready, once one is, or after so long none."""
        ready = set()
        for fd, mask in self.poller.poll(most_ms):
            ready.add(fd)
            # A ring hangs up when its last task has ended, and would wake us for ever.
            if fd in self.ending or mask & (select.POLLHUP | select.POLLERR):
                self.poller.unregister(fd)
        self.ending.difference_update(ready)
        return ready


@contextlib.contextmanager
def open_wakeups(
    descriptors: Iterable[int], *, command: int | None, pids: Sequence[int], is_endless: bool
) -> Iterator[Wakeups]:
    """Wakeups that follow processes for as long as they are open.

    Args:
        descriptors: that wake the loop.
        command: a descriptor of the command that is recorded.
        pids: processes whose end ends the recording, when that of all others has come.
        is_endless: no process's end ends it.
    """
    with contextlib.ExitStack() as stack:
        ending = set() if command is None else {command}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(pid)
                stack.callback(os.close, fd)
                ending.add(fd)
        wakeups = Wakeups(select.poll(), ending)
        wakeups.add((*descriptors, *ending))
        if is_endless:
            ending.add(-1)
        yield wakeups
