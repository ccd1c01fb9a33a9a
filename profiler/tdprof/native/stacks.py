"""``stacks.h``: tables of call stacks."""

import ctypes

_pointer, _u64 = ctypes.c_void_p, ctypes.c_uint64


class StackPlaces(ctypes.Structure):
    """``struct stack_places``."""

    _fields_ = [
        ("slots", _pointer),
        ("slot_mask", _u64),
        ("address", _pointer),
        ("context", _pointer),
        ("rows", _u64),
        ("capacity", _u64),
        ("seed", _u64),
    ]


class StackMerge(ctypes.Structure):
    """``struct stack_merge``."""

    _fields_ = [
        ("start", _pointer),
        ("function", _pointer),
        ("stacks", _u64),
        ("slots", _pointer),
        ("slot_mask", _u64),
        ("seed", _u64),
        ("merged", _pointer),
        ("representative", _pointer),
    ]


class CallMerge(ctypes.Structure):
    """``struct call_merge``."""

    _fields_ = [
        ("start", _pointer),
        ("function", _pointer),
        ("stacks", _u64),
        ("slots", _pointer),
        ("slot_mask", _u64),
        ("seed", _u64),
        ("parent", _pointer),
        ("node_function", _pointer),
        ("nodes", _u64),
        ("capacity", _u64),
        ("node_of_stack", _pointer),
    ]


class StackNames(ctypes.Structure):
    """``struct stack_names``."""

    _fields_ = [("start", _pointer), ("text", _pointer), ("inner_rank", _pointer), ("leaf_rank", _pointer)]


class FoldedColumns(ctypes.Structure):
    """``struct folded_rows``."""

    _fields_ = [
        ("start", _pointer),
        ("function", _pointer),
        ("names", StackNames),
        ("thread_start", _pointer),
        ("thread_text", _pointer),
        ("thread", _pointer),
        ("stack", _pointer),
        ("weight", _pointer),
        ("rows", _u64),
    ]


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    for name, result, arguments in (
        ("number_places", _u64, [*[_pointer] * 5, _u64, _u64, _pointer, _pointer]),
        ("rehash_places", None, [_pointer, _pointer, _u64]),
        ("cut_chains", None, [_pointer, _pointer, _u64, *[_pointer] * 3]),
        ("gather_numbered", None, [*[_pointer] * 5, _u64, _pointer]),
        ("count_frames", None, [_pointer, _pointer, _u64, _pointer, _pointer]),
        ("expand_frames", None, [_pointer, _pointer, _u64, *[_pointer] * 6]),
        ("rows_in_stacks", _u64, [_pointer, _pointer, _u64, *[_pointer] * 3]),
        ("merge_stacks", _u64, [_pointer]),
        ("merge_calls", _u64, [_pointer, _u64]),
        ("rehash_calls", None, [_pointer]),
        ("order_calls", None, [_pointer, _pointer, _u64, _pointer, _pointer]),
        ("add_callees", None, [_pointer, _u64, _pointer]),
        ("add_caller", None, [_pointer, _u64, ctypes.c_int64, _pointer]),
        ("rank_stacks", _u64, [*[_pointer] * 4, _u64, _pointer]),
        ("folded_lines", _u64, [_pointer, _u64, _pointer, _u64, _pointer]),
    ):
        function = getattr(library, f"tdprof_{name}")
        function.restype, function.argtypes = result, arguments
