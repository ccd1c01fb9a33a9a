"""How far code reaches of which it is only known where it begins (``code_reach.c``)."""

import ctypes
from ctypes import c_bool, c_uint64, c_void_p


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_code_reach.argtypes = [
        *(c_void_p, c_uint64, c_uint64, c_bool),
        *(c_void_p, c_void_p, c_uint64, c_void_p),
    ]
    library.tdprof_code_reach.restype = None
