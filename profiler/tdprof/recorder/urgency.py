"""Which threads run before what else is to run: while the recorder waits for its turn, callers and samples are lost."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator

_USUAL, _MOST_URGENT = 0, -20  # nice(2)
# Usually Python lets a thread wait for 5 ms while another has something to do.
_SWITCH_S = 5e-4


@contextlib.contextmanager
def urgent(threads: Iterable[int] = (0,)) -> Iterator[None]:
    """Have this thread or others, and what they start meanwhile, run first, if we may and nobody has chosen otherwise.

    Args:
        threads: their ids as the kernel has them; 0 is this one.
    """
    with contextlib.ExitStack() as restored:
        for thread in threads:
            with contextlib.suppress(PermissionError, ProcessLookupError):
                if os.getpriority(os.PRIO_PROCESS, thread) == _USUAL:
                    os.setpriority(os.PRIO_PROCESS, thread, _MOST_URGENT)
                    restored.callback(_make_usual, thread)
        yield


def _make_usual(thread: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, thread, _USUAL)


def python_threads() -> list[int]:
    """Those of this process that run Python: who waits for one that has the interpreter is no sooner than that is."""
    return [thread.native_id for thread in threading.enumerate() if thread.native_id]


@contextlib.contextmanager
def soon_switched() -> Iterator[None]:
    """Have a thread that has something to do wait no longer for another one's Python than it must."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)
