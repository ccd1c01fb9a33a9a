"""Keeps the process of a command that reads captures small."""

import ctypes
import importlib.abc
import sys
from importlib.machinery import ModuleSpec

import pyarrow as pa

_M_MMAP_THRESHOLD = -3  # malloc.h
_GLIBCS_BYTES = 128 << 10  # as glibc begins with


class _WithoutPandas(importlib.abc.MetaPathFinder):
    """Arrow loads pandas, where it is installed, on converting to NumPy: 0.3 s for something that nothing here uses."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not needed by tdprof", name=fullname)
        return None


def take_memory_from_the_system() -> None:
    """For this process: Arrow allocates as all others do, instead of keeping what was freed for itself."""
    pa.set_memory_pool(pa.system_memory_pool())


def keep_process_small(mapped_from_bytes: int = _GLIBCS_BYTES) -> None:
    """For this process: columns that are freed go back to the system at once, and pandas stays out.

    Args:
        mapped_from_bytes: memory of smaller columns is used again, which saves clearing it, and stays.
    """
    take_memory_from_the_system()
    # glibc raises this limit with every large block that is freed, and then keeps blocks of that size for itself.
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_MMAP_THRESHOLD, mapped_from_bytes)
    if not any(isinstance(finder, _WithoutPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WithoutPandas())
