"""Work for a cluster that goes wrong as some captures ask for; workers import it by name."""

import os
import signal
import time
from collections.abc import Sequence

from tdprof.fleet.work import roll_up_captures


def slowly(sources: Sequence[str], options: str) -> bytes:
    time.sleep(0.2)
    return roll_up_captures(sources, options)


def deadly(sources: Sequence[str], options: str) -> bytes:
    """Kills its process where a capture is called ``killer``."""
    if any(source.endswith("killer") for source in sources):
        os.kill(os.getpid(), signal.SIGKILL)
    return roll_up_captures(sources, options)
