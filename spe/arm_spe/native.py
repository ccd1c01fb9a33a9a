"""The one place that finds, loads and calls the compiled decoder (`spe/native/*.c`).

``ctypes.CDLL`` releases the GIL for every call, so threads decode in parallel.
"""

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arm_spe.columns import OTHER_COLUMNS, RECORD_COLUMNS
from arm_spe.counts import Damage, DecodeCounts
from arm_spe.packet import Kind

Buffer = bytes | bytearray | memoryview
"""Anything whose bytes NumPy can see without a copy; also an `mmap.mmap`."""


class Sync(ctypes.Structure):
    """`struct spe_sync`."""

    _fields_ = (
        ("last", c_uint64),
        ("timestamp", c_uint64),
        ("present", c_uint32),
        ("required", c_uint32),
        ("slot_run", c_uint32),
        ("close", c_uint8),
        ("unknown_ok", c_uint8),
        ("reason", c_uint8),
        ("pad", c_uint8),
    )


class Decoder(ctypes.Structure):
    """`struct spe_decoder`."""

    _fields_ = (
        ("position", c_uint64),
        ("records", c_uint64),
        ("record_bytes", c_uint64),
        ("padding_bytes", c_uint64),
        ("damaged_regions", c_uint64),
        ("damaged_bytes", c_uint64),
        ("damage", c_uint64 * len(Damage)),
        ("open_records", c_uint64),
        ("open_bytes", c_uint64),
        ("unknown_packets", c_uint64),
        ("duplicate_packets", c_uint64),
        ("sync", Sync),
    )

    def counts(self) -> DecodeCounts:
        """The sums so far."""
        names = (name for name in DecodeCounts.__slots__ if name != "damage")
        return DecodeCounts(
            **{name: getattr(self, name) for name in names},
            damage={reason: self.damage[reason] for reason in Damage},
        )


class Columns(ctypes.Structure):
    """`struct spe_columns`."""

    _fields_ = (
        ("capacity", c_uint64),
        ("other_capacity", c_uint64),
        *((column.name, c_void_p) for column in (*RECORD_COLUMNS, *OTHER_COLUMNS)),
        ("is_lean", c_uint64),
    )

    @classmethod
    def over(cls, arrays: dict[str, NDArray[np.generic]]) -> "Columns":
        """The structure that points to these arrays; the caller keeps them alive."""
        pointers = {column.name: arrays[column.name].ctypes.data for column in (*RECORD_COLUMNS, *OTHER_COLUMNS)}
        return cls(capacity=len(arrays["pc"]), other_capacity=len(arrays["other_record"]), **pointers)


class Dumper(ctypes.Structure):
    """`struct spe_dumper`."""

    _fields_ = (
        ("position", c_uint64),
        ("piece_end", c_uint64),
        ("is_unparsed", c_uint64),
        ("sync", Sync),
    )


@functools.cache
def load_native() -> ctypes.CDLL | None:
    """The compiled decoder, or None where it was not built; callers then take the Python path."""
    for path in sorted(Path(__file__).parent.glob("_native*.so")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # built for another architecture or libc: same as not built
            continue
        try:
            _declare(library)
        except AttributeError:  # built from other sources: same as not built
            continue
        return library
    return None


def _declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.spe_decode.restype = c_uint64
    library.spe_decode.argtypes = (c_void_p, c_uint64, POINTER(Decoder), POINTER(Columns), POINTER(c_uint64))
    library.spe_dump.restype = c_uint64
    library.spe_dump.argtypes = (c_void_p, c_uint64, c_uint64, POINTER(Dumper), c_char_p, c_uint64)
    library.spe_validity.restype = None
    library.spe_validity.argtypes = (c_void_p, c_uint64, POINTER(c_void_p))
    library.spe_group.restype = c_uint64
    library.spe_group.argtypes = (c_void_p, c_void_p, c_uint64, c_void_p, c_void_p)
    library.spe_tally.restype = c_uint64
    library.spe_tally.argtypes = (
        POINTER(Columns), c_uint64, c_uint64, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p
    )  # fmt: skip
    library.spe_add_span.argtypes = (
        c_void_p, c_uint64, POINTER(Decoder), POINTER(Columns), c_void_p, c_void_p, c_void_p, c_void_p
    )  # fmt: skip
    library.spe_fold.argtypes = (c_void_p, c_void_p)
    library.spe_join_views.argtypes = (*[c_void_p] * 4, c_uint64, *[c_void_p] * 3)
    library.spe_join_views.restype = None
    library.spe_index_pages.restype = None
    library.spe_index_pages.argtypes = (c_void_p, c_uint64)
    library.spe_link.restype = library.spe_sum.restype = c_uint64
    library.spe_link.argtypes = (c_void_p, c_uint64, c_void_p)
    library.spe_sum.argtypes = (c_void_p, c_uint64, c_void_p, c_void_p)


class NotCompiledError(RuntimeError):
    """The compiled library is needed and was not built."""


def need_native() -> ctypes.CDLL:
    """The compiled library.

    Raises:
        NotCompiledError: it is not there.
    """
    library = load_native()
    if library is None:
        raise NotCompiledError("the compiled part of arm_spe was not built")
    return library


def validity_bitmaps(present: NDArray[np.uint32]) -> dict[Kind, NDArray[np.uint8]]:
    """For each field the bitmap of the records that have it, first record in the lowest bit, as Arrow keeps it.

    Each bitmap is a whole number of 4-byte words; the bits behind the last record are 0.
    """
    kinds = [kind for kind in Kind if kind < Kind.END]
    library = load_native()
    if library is None:
        return {kind: np.packbits(present >> kind & 1, bitorder="little") for kind in kinds}
    words = np.empty((len(kinds), (len(present) + 31) // 32), np.uint32)
    pointers = (c_void_p * len(kinds))(*(row.ctypes.data for row in words))
    present = np.ascontiguousarray(present)
    library.spe_validity(present.ctypes.data, len(present), pointers)
    return {kind: words[kind].view(np.uint8) for kind in kinds}
