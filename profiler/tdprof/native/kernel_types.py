"""Where the types stand in the kernel's own type information (``kernel_types.c``)."""

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int64, c_uint32, c_uint64

_LEAST_BYTES = 12  # of a type
_PLACE_BYTES = ctypes.sizeof(c_uint32)


class _Wanted(ctypes.Structure):
    """``struct wanted``."""

    _fields_ = (("name", c_uint32), ("kind", c_uint32), ("number", c_uint32))


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.tdprof_kernel_types.argtypes = [
        c_char_p, c_uint64, POINTER(_Wanted), c_uint64, POINTER(c_uint32), c_uint64
    ]  # fmt: skip
    library.tdprof_kernel_types.restype = c_int64


def find_types(
    library: ctypes.CDLL, types: bytes, wanted: Sequence[tuple[int, int]]
) -> tuple[Sequence[int], list[int]]:
    """Where each type begins, and the numbers of the first types that have a name (its offset) and kind, 0: none.

    Raises:
        ValueError: one is of no known kind, or cut off.
    """
    sought = (_Wanted * len(wanted))(*(_Wanted(*each) for each in wanted))
    places = array("I", bytes(len(types) // _LEAST_BYTES * _PLACE_BYTES))
    room = (c_uint32 * len(places)).from_buffer(places)
    count = library.tdprof_kernel_types(types, len(types), sought, len(sought), room, len(room))
    if count < 0:
        raise ValueError("a type of no known kind, or a part of one")
    return places[:count], [each.number for each in sought]
