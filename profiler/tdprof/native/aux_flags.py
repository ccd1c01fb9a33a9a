"""What the kernel says of AUX data while it is recorded (``aux_flags.c``)."""

import ctypes


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_has_aux_flags.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64]
    library.tdprof_has_aux_flags.restype = ctypes.c_int
