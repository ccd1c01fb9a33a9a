"""A little of everything that a core's counters tell apart (``varied_work.c``)."""

import ctypes


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_vary_work.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    library.tdprof_vary_work.restype = ctypes.c_uint64
