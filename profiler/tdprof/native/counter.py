"""The counter that SPE's timestamps are read from, beside a clock (``counter.c``)."""

import ctypes


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_clock_pair.argtypes = [ctypes.c_int, *[ctypes.POINTER(ctypes.c_uint64)] * 2]
    library.tdprof_clock_pair.restype = ctypes.c_int
