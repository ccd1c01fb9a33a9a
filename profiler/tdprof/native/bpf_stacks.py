"""``bpf_stacks.h``: call stacks, and copies of such, that the sampling program sent."""

import ctypes


class BpfStacksResult(ctypes.Structure):
    """``struct bpf_stacks_result``."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("consumed", "stacks", "addresses", "damaged")]
    consumed: int
    stacks: int
    addresses: int
    damaged: int


class BpfCopies(ctypes.Structure):
    """``struct bpf_copies``."""

    _fields_ = [
        *[
            (name, ctypes.c_void_p)
            for name in ("identity", "time_ns", "registers", "stack_start", "pages", "pid", "stack_bytes")
        ],
        ("capacity", ctypes.c_uint64),
    ]


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_bpf_stacks.argtypes = [ctypes.c_char_p, *[ctypes.c_uint64] * 2, *[ctypes.c_void_p] * 5]
    library.tdprof_bpf_stacks.restype = None
    library.tdprof_bpf_copies.argtypes = [ctypes.c_char_p, ctypes.c_uint64, *[ctypes.c_void_p] * 2]
    library.tdprof_bpf_copies.restype = None
