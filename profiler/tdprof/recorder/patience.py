"""Calls that may never return, in threads that are left behind then.

A file system may not answer. And a user may lay a process's memory into one of his own that never does: who asks the
kernel for what the process maps waits then for its mmap_lock, and no signal but SIGKILL ends that.
"""

import errno
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")
# For all processes that do not answer together: so much at once, and this share of the time.
_MOST_S, _SHARE = 2.0, 0.05
_LEAST_S = 0.005  # for each, when that is used up


class Call(Generic[_T]):
    """One call, which another thread is to `run`.

    Args:
        work: what to call.
        discard: called with what it returned too late, when nobody takes it any more.
    """

    def __init__(self, work: Callable[[], _T], discard: Callable[[_T], object] | None = None) -> None:
        self._work, self._discard = work, discard
        self._results: list[_T] = []
        self._failures: list[BaseException] = []
        self._is_wanted = True
        self._lock = threading.Lock()  # of results and of whether they are wanted
        self._over = threading.Event()

    def run(self) -> None:
        """Make it."""
        try:
            result = self._work()
            with self._lock:
                if self._is_wanted:
                    self._results.append(result)
                    return
            if self._discard:
                self._discard(result)
        except BaseException as error:  # handed over to the caller
            self._failures.append(error)
        finally:
            self._over.set()

    def wait(self, patience_s: float | None = None) -> bool:
        """Whether it is over by then."""
        return self._over.wait(patience_s)

    def result(self, patience_s: float, who: str) -> _T:
        """What it returned.

        Raises:
            TimeoutError: it has not; ``who`` did not answer, and is not waited for again.
            BaseException: from the call.
        """
        self.wait(patience_s)
        if self._failures:
            raise self._failures.pop()  # kept, it would keep its traceback, which keeps this
        with self._lock:
            self._is_wanted = bool(self._results)
        if not self._results:
            raise TimeoutError(errno.ETIMEDOUT, f"{who} did not answer")
        return self._results[0]


class _Asker(threading.Thread):
    """Makes one call after the other: where CPUs are busy a thread for each would take ten times as long to begin."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._calls = queue.SimpleQueue[Call[Any] | None]()
        self.start()

    def ask(self, call: Call[Any] | None) -> None:
        """Have it make a call; None: it is to end."""
        self._calls.put(call)

    def run(self) -> None:
        """As `Thread` has it."""
        while call := self._calls.get():
            call.run()
            del call  # kept until the next one, it would keep what it is about


class Patience:
    """With processes that are asked again and again; all that do not answer share it, so that they hold nobody up.

    Attributes:
        late: processes that have not answered in time, each with its call.
    """

    def __init__(self) -> None:
        self.late: dict[int, Call[Any]] = {}
        self._askers: list[_Asker] = []  # that have nothing to do
        weakref.finalize(self, _end_all, self._askers).atexit = False
        self._left_s = _MOST_S
        self._looked_s = time.monotonic()

    def ask(self, pid: int, work: Callable[[], _T], discard: Callable[[_T], object] | None = None) -> _T:
        """Call what asks the kernel about a process; ``discard`` is called with an answer that comes too late.

        Raises:
            TimeoutError: there is no answer; or none yet to what was asked before, and it is not asked anew.
            OSError: from the call.
        """
        before = self.late.get(pid)
        if before and not before.wait(0):
            raise TimeoutError(errno.ETIMEDOUT, "the process did not answer")
        self.late.pop(pid, None)
        now = time.monotonic()
        self._left_s = min(_MOST_S, self._left_s + _SHARE * (now - self._looked_s))
        self._looked_s = now
        call = Call(work, discard)
        try:
            asker = self._askers.pop()
        except IndexError:  # the first one, or another thread's call is made
            asker = _Asker()
        asker.ask(call)
        try:
            return call.result(max(self._left_s / 2, _LEAST_S), "the process")
        except TimeoutError:
            if not call.wait(0):
                self.late[pid] = call
                self._left_s -= time.monotonic() - now
            raise
        finally:
            if call.wait(0):
                self._askers.append(asker)
            else:  # it is left behind
                asker.ask(None)

    def forget(self, pid: int) -> None:
        """A process has ended."""
        self.late.pop(pid, None)


def _end_all(askers: list[_Asker]) -> None:
    for asker in askers:
        asker.ask(None)
