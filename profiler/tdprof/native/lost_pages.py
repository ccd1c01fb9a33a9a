"""Mapped files whose pages can go away (``lost_pages.c``)."""

import ctypes
from ctypes import c_int, c_uint64, c_void_p


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_watch_pages.argtypes = [c_void_p, c_uint64]
    library.tdprof_watch_pages.restype = c_int
    library.tdprof_pages_lost.argtypes = [c_int]
    library.tdprof_pages_lost.restype = c_int
    library.tdprof_unwatch_pages.argtypes = [c_int]
    library.tdprof_unwatch_pages.restype = None
