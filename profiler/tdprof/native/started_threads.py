"""Which threads were started, by perf records (``started_threads.c``)."""

import ctypes


class Started(ctypes.Structure):
    """``struct started``."""

    _fields_ = (
        ("time_ns", ctypes.c_uint64),
        ("tid", ctypes.c_uint32),
        ("starter", ctypes.c_uint32),
    )
    time_ns: int
    tid: int
    starter: int


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_started_threads.argtypes = [
        ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(Started), ctypes.c_uint64
    ]  # fmt: skip
    library.tdprof_started_threads.restype = ctypes.c_uint64


def started_threads(library: ctypes.CDLL, records: bytes) -> list[Started]:
    """The threads that perf records say were started, in their order."""
    room = library.tdprof_started_threads(records, len(records), None, 0)
    found = (Started * room)()
    library.tdprof_started_threads(records, len(records), found, room)
    return list(found)
