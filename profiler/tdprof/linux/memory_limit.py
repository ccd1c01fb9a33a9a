"""A bound on the memory that a library may take while it reads what others wrote."""

import contextlib
import mmap
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Within the block this process may take that much more address space; then allocations fail (``MemoryError``).

    Holds for all its threads. Start none within: each takes more than it uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages, _, _ = Path("/proc/self/statm").read_text().partition(" ")
    most = int(pages) * mmap.PAGESIZE + more_bytes
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
