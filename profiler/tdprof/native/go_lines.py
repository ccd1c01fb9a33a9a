"""``go_lines.h``: lines and inlined calls of Go programs."""

import ctypes

_pointer, _u64, _u32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32


class GoFunctions(ctypes.Structure):
    """``struct go_functions``."""

    _fields_ = (
        ("data", _pointer),
        ("inlined", _pointer),
        ("size", _u64),
        ("inlined_size", _u64),
        ("inlined_base", _u64),
        ("text", _u64),
        ("functions", _u64),
        ("units", _u64),
        ("files", _u64),
        ("values", _u64),
        ("lines", _u64),
        ("magic", _u32),
        ("quantum", _u32),
    )


RANGE_COLUMNS = ("range_start", "range_node", "range_file", "range_line")
NODE_COLUMNS = ("node_function", "node_parent", "node_call_file", "node_call_line", "node_tree")


class GoColumns(ctypes.Structure):
    """``struct go_columns``."""

    _fields_ = (
        *((name, _pointer) for name in RANGE_COLUMNS + NODE_COLUMNS),
        ("range_room", _u64),
        ("node_room", _u64),
        ("ranges", _u64),
        ("nodes", _u64),
        ("steps", _u64),
    )


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_go_lines.restype = ctypes.c_int
    library.tdprof_go_lines.argtypes = [_pointer, _pointer, _u64, _pointer]
