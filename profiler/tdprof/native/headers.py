"""Whether the compiled libraries are of the headers beside them: a checkout may have gone on without building them."""

import ctypes
import zlib
from pathlib import Path

FOLDERS = ("bpf", "profiler/native", "spe/native")  # those of setup.py


def is_current(library: ctypes.CDLL, checkout: Path) -> bool:
    """Whether a library, and the decoder that is built with it, have the headers of a checkout, as `setup.py` saw them.

    Structures that have changed since would be read and written past their ends. Where there is no checkout the
    libraries were installed together with what calls them.
    """
    if not (checkout / "profiler/native").is_dir():
        return True
    crc = 0
    for folder in FOLDERS:
        for header in sorted((checkout / folder).glob("*.h")):
            crc = zlib.crc32(header.read_bytes(), crc)
    try:
        return ctypes.c_uint32.in_dll(library, "headers_crc").value == crc
    except ValueError:  # built before it was told
        return False
