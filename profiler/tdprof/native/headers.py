"""Whether the compiled libraries are of the headers beside them: a checkout may have gone on without building them."""

import ctypes
import zlib
from collections.abc import Sequence
from pathlib import Path


def headers_of(checkout: Path) -> list[Path]:
    """What the compiled libraries are built with beside their sources; none where there is no checkout."""
    folders = ("bpf", "profiler/native", "spe/native")
    return [header for folder in folders for header in sorted((checkout / folder).glob("*.h"))]


def checksum(headers: Sequence[Path]) -> int:
    """CRC-32 of all their bytes; `setup.py` has it compiled in."""
    crc = 0
    for header in headers:
        crc = zlib.crc32(header.read_bytes(), crc)
    return crc


def is_current(library: ctypes.CDLL, checkout: Path) -> bool:
    """Whether a library, and the decoder that is built with it, have the headers of a checkout, as `setup.py` saw them.

    Structures that have changed since would be read and written past their ends. Where there is no checkout the
    libraries were installed together with what calls them.
    """
    if not (checkout / "profiler/native").is_dir():
        return True
    try:
        return ctypes.c_uint32.in_dll(library, "headers_crc").value == checksum(headers_of(checkout))
    except ValueError:  # built before it was told
        return False
