"""``bpf_stacks.h``: call stacks that the sampling program sent."""

import ctypes


class BpfStacksResult(ctypes.Structure):
    """``struct bpf_stacks_result``."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("consumed", "stacks", "addresses", "damaged")]
    consumed: int
    stacks: int
    addresses: int
    damaged: int


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_bpf_stacks.argtypes = [ctypes.c_char_p, *[ctypes.c_uint64] * 2, *[ctypes.c_void_p] * 5]
    library.tdprof_bpf_stacks.restype = None
