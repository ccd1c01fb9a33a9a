"""Which threads run before what else is to run: while the recorder waits for its turn, callers and samples are lost."""

import contextlib
import os
from collections.abc import Iterator

_USUAL, _MOST_URGENT = 0, -20  # nice(2)


@contextlib.contextmanager
def urgent() -> Iterator[None]:
    """Have this thread, and those that it starts meanwhile, run first, if we may and nobody has chosen otherwise."""
    with contextlib.ExitStack() as restored:
        if os.getpriority(os.PRIO_PROCESS, 0) == _USUAL:
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, 0, _MOST_URGENT)
                restored.callback(os.setpriority, os.PRIO_PROCESS, 0, _USUAL)
        yield
