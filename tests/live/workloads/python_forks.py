"""Works for as many seconds as the argument says, then starts processes that work for some milliseconds and end.

With another argument C code forks, of which CPython does not learn.
"""

import ctypes
import os
import sys
import time


def spin(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))


def child_work() -> None:
    spin(0.01)


def main() -> None:
    spin(float(sys.argv[1]))
    fork = ctypes.PyDLL(None).fork if len(sys.argv) > 2 else os.fork
    for _ in range(60):
        if child := fork():
            os.waitpid(child, 0)
        else:
            child_work()
            os._exit(0)


main()
