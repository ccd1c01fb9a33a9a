"""Headers and columns as bytes that compress well, for the page's script."""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

COMPRESSION_LEVEL = 6
_SMALL_BYTES = 2 << 20  # uncompressed: not worth a look
Header = dict[str, Any]
Columns = dict[str, NDArray[Any]]


def compressed_size(document: bytes) -> int:
    """In bytes; of what is small without it, as it is."""
    return len(document) if len(document) <= _SMALL_BYTES else len(zlib.compress(document, COMPRESSION_LEVEL))


def shortened(values: NDArray[np.float64], bits: int) -> NDArray[np.float32]:
    """Values rounded to so many bits of float32's mantissa of 23, since zeros compress; NaN stays."""
    raw = values.astype(np.float32).view(np.uint32)
    unit = np.uint32(1 << 23 - bits)
    rounded = ((raw + unit // 2) & ~(unit - np.uint32(1))).view(np.float32)
    return np.where(np.isfinite(values), rounded, np.float32(np.nan))


def pack(header: Header, columns: Columns) -> bytes:
    """A header and its columns, as `data.page_document` tells their layout."""
    body = bytearray()
    listed: dict[str, Sequence[object]] = {}
    for name, column in columns.items():
        packed, kind = _smallest(column)
        listed[name] = (kind, len(body), len(packed))
        body += packed.view(np.uint8).reshape(-1, packed.itemsize).T.tobytes()
    text = json.dumps(header | {"columns": listed}, separators=(",", ":")).encode()
    return struct.pack("<I", len(text)) + text + bytes(body)


def _smallest(column: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """A column in the narrowest type that holds it, and what JavaScript calls an array of it."""
    if column.dtype.kind == "f":
        return column.astype(f"<f{column.dtype.itemsize}"), f"Float{column.dtype.itemsize * 8}Array"
    most = int(column.max(initial=0))
    bits = next((bits for bits in (8, 16, 32) if most < 1 << bits), 0)
    if not bits:
        return column.astype("<f8"), "Float64Array"
    return column.astype(f"<u{bits // 8}"), f"Uint{bits}Array"
