"""``parquet_page.h``: the values of a Parquet page of integers."""

import ctypes
from ctypes import c_uint32, c_uint64, c_void_p

MOST_WORDS = 256


class ParquetColumn(ctypes.Structure):
    """``struct parquet_column``."""

    _fields_ = [
        ("values", c_void_p),
        ("valid", c_void_p),
        ("rows", c_uint64),
        ("width", c_uint32),
        ("is_signed", c_uint32),
    ]


class ParquetPage(ctypes.Structure):
    """``struct parquet_page``."""

    _fields_ = [
        ("dense", c_void_p),
        ("words", c_uint64 * MOST_WORDS),
        ("out", c_void_p),
        ("values", c_uint64),
        ("distinct", c_uint64),
        ("bytes", c_uint64),
    ]


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    column, page = ctypes.POINTER(ParquetColumn), ctypes.POINTER(ParquetPage)
    library.tdprof_parquet_room.argtypes = [c_uint64]
    library.tdprof_parquet_room.restype = c_uint64
    library.tdprof_parquet_integers.argtypes = [column, page]
    library.tdprof_parquet_integers.restype = None
    library.tdprof_parquet_places.argtypes = [column, c_uint64, page]
    library.tdprof_parquet_places.restype = None
