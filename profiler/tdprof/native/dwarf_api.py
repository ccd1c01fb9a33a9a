"""``dwarf_api.h``: the reader of debug data."""

import ctypes

# In the order of `enum section_id` in dwarf.h.
SECTIONS = ("info", "abbrev", "line", "str", "line_str", "rnglists", "ranges", "addr", "str_offsets")


class DwarfSection(ctypes.Structure):
    """``struct dwarf_section``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("unread", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("fd", ctypes.c_int64),
    )


class DwarfSkeleton(ctypes.Structure):
    """``struct dwarf_skeleton``."""

    _fields_ = (
        ("unit", ctypes.c_uint64),
        ("dwo_id", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("directory", ctypes.c_char_p),
    )


_SIZES = (
    "ranges",
    "nodes",
    "functions",
    "files",
    "function_bytes",
    "file_bytes",
    "units",
    "bad_units",
    "first_bad_offset",
    "is_spent",
)


class DwarfSizes(ctypes.Structure):
    """``struct dwarf_sizes``."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in _SIZES)


COLUMNS = (
    "range_start",
    "range_node",
    "range_file",
    "range_line",
    "node_function",
    "node_file",
    "node_parent",
    "node_call_file",
    "node_call_line",
    "function_name",
    "file_name",
    "function_text",
    "file_text",
)


class DwarfColumns(ctypes.Structure):
    """``struct dwarf_columns``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in COLUMNS)


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    for name, result, arguments in (
        ("open", pointer, [pointer, pointer, u64, u64, u64]),
        ("skeletons", u64, [pointer, pointer, u64]),
        ("add_split", ctypes.c_int, [pointer, u64, pointer]),
        ("build", ctypes.c_int, [pointer, pointer, u64, ctypes.c_uint]),
        ("sizes", None, [pointer, pointer]),
        ("copy", None, [pointer, pointer]),
        ("close", None, [pointer]),
    ):
        function = getattr(library, f"tdprof_dwarf_{name}")
        function.restype, function.argtypes = result, arguments
