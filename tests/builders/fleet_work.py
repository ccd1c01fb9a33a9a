"""Work for a cluster that goes wrong as some captures ask for, or tells of its worker; workers import it by name."""

import ctypes
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tdprof.fleet.work import roll_up_captures


def slowly(sources: Sequence[str], options: str) -> bytes:
    time.sleep(0.2)
    return roll_up_captures(sources, options)


def deadly(sources: Sequence[str], options: str) -> bytes:
    """Kills its process where a capture is called ``killer``."""
    if any(source.endswith("killer") for source in sources):
        os.kill(os.getpid(), signal.SIGKILL)
    return roll_up_captures(sources, options)


def hunted(sources: Sequence[str], options: str) -> bytes:
    """Somebody kills the worker each time that a capture called ``hunted`` is read, until no shot is left in ``shots``
    beside it; what works for the worker in a process of its own is not hit.
    """
    for source in map(Path, sources):
        shots = sorted(source.with_name("shots").glob("*")) if source.name == "hunted" else []
        if shots:
            shots[0].unlink()
            is_worker = multiprocessing.parent_process() is not None
            os.kill(os.getpid() if is_worker else os.getppid(), signal.SIGKILL)
            time.sleep(60)  # whoever is left goes with it
    return roll_up_captures(sources, options)


def heaps(sources: Sequence[str], options: str) -> bytes:
    """How many heaps glibc has in a worker (malloc_info(3))."""
    del sources, options
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as told:
        stream = ctypes.c_void_p(libc.fopen(told.name.encode(), b"w"))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        return b"%d" % len(re.findall(rb"<heap nr=", told.read()))
