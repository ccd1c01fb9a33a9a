"""Periods of sampled clocks that vary (``clock_periods.c``)."""

import ctypes
from ctypes import POINTER, c_double, c_int, c_uint64


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_vary_periods.argtypes = [POINTER(c_int), c_uint64, c_double, c_double, c_uint64, c_int]
    library.tdprof_vary_periods.restype = None
