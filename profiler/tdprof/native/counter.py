"""The counter that SPE's timestamps are read from (``counter.c``)."""

import ctypes


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_read_counter.argtypes = []
    library.tdprof_read_counter.restype = ctypes.c_uint64
