"""A little of everything that a core's counters tell apart (``varied_work.c``)."""

import ctypes

_ROOM = 64


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_vary_work.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    library.tdprof_vary_work.restype = ctypes.c_uint64
    library.tdprof_varied_events.argtypes = [ctypes.POINTER(ctypes.c_uint16), ctypes.c_uint64]
    library.tdprof_varied_events.restype = ctypes.c_uint64


def varied_events(library: ctypes.CDLL) -> frozenset[int]:
    """Codes of the events that its rare instructions certainly make happen on this core, none but on aarch64."""
    codes = (ctypes.c_uint16 * _ROOM)()
    return frozenset(codes[: library.tdprof_varied_events(codes, _ROOM)])
