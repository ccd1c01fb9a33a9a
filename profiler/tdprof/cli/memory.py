"""Keeps the process of a command that reads captures small. To be loaded before what loads NumPy."""

import importlib.abc
import sys
from importlib.machinery import ModuleSpec

from tdprof.cli.without_threads import with_environment
from tdprof.linux.heap import GLIBCS_BYTES, map_large_blocks

# One of Arrow's allocators starts a thread that keeps the scheduling policy of who loads it: idle time alone may be
# its, with locks that others wait for.
with with_environment({"JE_ARROW_MALLOC_CONF": "background_thread:false"}):
    import pyarrow as pa


class _WithoutPandas(importlib.abc.MetaPathFinder):
    """Arrow loads pandas, where it is installed, on converting to NumPy: 0.3 s for something that nothing here uses."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not needed by tdprof", name=fullname)
        return None


def take_memory_from_the_system() -> None:
    """For this process: Arrow allocates as all others do, instead of keeping what was freed for itself."""
    pa.set_memory_pool(pa.system_memory_pool())


def keep_process_small(mapped_from_bytes: int = GLIBCS_BYTES) -> None:
    """For this process: columns that are freed go back to the system at once, and pandas stays out.

    Args:
        mapped_from_bytes: memory of smaller columns is used again, which saves clearing it, and stays.
    """
    take_memory_from_the_system()
    map_large_blocks(mapped_from_bytes)
    if not any(isinstance(finder, _WithoutPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WithoutPandas())
