"""Keeps the process of a command that reads captures small, its start short. To be loaded before what loads NumPy."""

from tdprof.cli.stand_ins import keep_out
from tdprof.cli.without_threads import with_environment
from tdprof.linux.heap import GLIBCS_BYTES, map_large_blocks

KEPT_BYTES = 4 << 20
"""Memory of a command's smaller columns is used again: the system would clear it for each anew."""

# One of Arrow's allocators starts a thread that keeps the scheduling policy of who loads it: idle time alone may be
# its, with locks that others wait for.
with with_environment({"JE_ARROW_MALLOC_CONF": "background_thread:false"}):
    import pyarrow as pa


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
    keep_out("pandas")  # Arrow loads it, where it is installed, on converting to NumPy: 0.3 s
