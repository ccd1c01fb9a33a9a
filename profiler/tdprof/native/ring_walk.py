"""``ring_walk.h``: the walk over copied user stacks on their way out of perf's ring buffers."""

import ctypes

MOST_REGISTERS = 17
MOST_RECORD_BYTES = 1 << 16  # RING_WALK_RECORD


class Mapping(ctypes.Structure):
    """``struct unwind_mapping``."""

    _fields_ = (
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("file_offset", ctypes.c_uint64),
        ("table", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
    )


class RingSpace(ctypes.Structure):
    """``struct ring_space``."""

    _fields_ = (
        ("begin_ns", ctypes.c_uint64),
        ("mappings", ctypes.c_void_p),
        ("pid", ctypes.c_uint32),
        ("mapping_count", ctypes.c_uint32),
        ("copies_left", ctypes.c_uint32),
        ("is_asked", ctypes.c_uint32),
    )
    begin_ns: int
    pid: int
    mapping_count: int
    copies_left: int


class RingWalk(ctypes.Structure):
    """``struct ring_walk``."""

    _fields_ = (
        ("spaces", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("asked", ctypes.c_void_p),
        ("copied_bytes_left", ctypes.c_uint64),
        ("walked", ctypes.c_uint64),
        ("copied", ctypes.c_uint64),
        ("not_copied", ctypes.c_uint64),
        ("space_count", ctypes.c_uint32),
        ("table_count", ctypes.c_uint32),
        ("asked_count", ctypes.c_uint32),
        ("asked_capacity", ctypes.c_uint32),
        ("register_count", ctypes.c_uint32),
        ("places", ctypes.c_int32 * MOST_REGISTERS),
        ("machine", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16),
    )
    walked: int
    copied: int
    not_copied: int
    asked_count: int


class Part(ctypes.Structure):
    """``struct ring_part``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
    )
    start: int
    end: int


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_ring_forget.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64]
    library.tdprof_ring_forget.restype = None
    library.tdprof_ring_side_band.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.tdprof_ring_side_band.restype = ctypes.c_uint64
    library.tdprof_ring_walk.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    library.tdprof_ring_walk.restype = ctypes.c_uint64
