"""One thread runs an older subinterpreter within a newer one, for as many seconds of CPU time as the argument says."""

import sys

try:
    import _interpreters  # type: ignore[import-not-found]
except ImportError:  # before CPython 3.13
    import _xxsubinterpreters as _interpreters  # type: ignore[import-not-found, no-redef]

INNER = """
import time

def within():
    until = time.process_time() + SECONDS
    while time.process_time() < until:
        for _ in range(20_000):
            pass

within()
"""
OUTER = """
import MODULE

def around():
    MODULE.run_string(OLDER, INNER)

around()
"""

older, newer = _interpreters.create(), _interpreters.create()
source = OUTER.replace("INNER", repr(INNER.replace("SECONDS", sys.argv[1])))
_interpreters.run_string(newer, source.replace("MODULE", _interpreters.__name__).replace("OLDER", str(int(older))))
