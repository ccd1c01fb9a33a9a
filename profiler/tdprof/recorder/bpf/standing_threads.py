"""Threads that were there before their time was recorded, as /proc has them: the BPF programs see those that switch."""

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tdprof.model.thread_state import ThreadState
from tdprof.recorder.host import read_text

_PROC = Path("/proc")
# Other letters of proc_pid_stat(5) are sleeps that something ends.
_STATES = {"R": ThreadState.RUNNABLE, "D": ThreadState.UNINTERRUPTIBLE}
_ENDED = "ZXx"  # and nobody has waited for it yet


class StandingThread(NamedTuple):
    """A thread at one moment.

    Attributes:
        pid, tid: its process, and itself.
        name: of the thread.
        state: one that is on a CPU counts as waiting for it, since /proc tells neither from the other.
        run_ns: how long it has been on CPUs, as of the last tick of its own; -1: the kernel does not tell.
    """

    pid: int
    tid: int
    name: str
    state: ThreadState
    run_ns: int

    def state_for(self, length_ns: int, earlier: "StandingThread | None") -> ThreadState:
        """In which one it has been for that long, if it came to no CPU and left none meanwhile.

        Args:
            earlier: as it was before that; None: not known.
        """
        if earlier and earlier.state is not ThreadState.RUNNABLE:
            return earlier.state  # if it can run now, something has just woken it
        if self.state is not ThreadState.RUNNABLE:
            return self.state
        ran_ns = self.run_ns - (earlier.run_ns if earlier else 0)
        if self.run_ns < 0 or ran_ns >= length_ns // 2:  # it is all of it or nothing, and known as of the last tick
            return ThreadState.RUNNING
        return ThreadState.RUNNABLE if earlier else ThreadState.INTERRUPTIBLE


def standing_threads(processes: Iterable[int], without: Collection[int] = ()) -> Iterator[StandingThread]:
    """The threads of processes as they are now, but for some by number."""
    for pid in processes:
        with contextlib.suppress(OSError):
            for entry in (_PROC / str(pid) / "task").iterdir():
                if int(entry.name) not in without and (thread := _read(pid, entry)):
                    yield thread


def _read(pid: int, folder: Path) -> StandingThread | None:
    # proc_pid_stat(5): the name, in parentheses, may hold anything; the state is the field after it.
    name, _, rest = read_text(folder / "stat").partition(" (")[2].rpartition(") ")
    if not rest or rest[0] in _ENDED:
        return None
    state = _STATES.get(rest[0], ThreadState.INTERRUPTIBLE)
    run = read_text(folder / "schedstat").split(" ", 1)[0] if state is ThreadState.RUNNABLE else ""
    return StandingThread(pid, int(folder.name), name, state, int(run) if run.isdigit() else -1)
