"""A bound on the memory that a library may take while it reads what others wrote."""

import contextlib
import mmap
import resource
from collections.abc import Iterator
from pathlib import Path

_DATA = 5  # which number of /proc/PID/statm: pages of data and stacks (proc(5))


@contextlib.contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Within the block this process may take that much more memory; then allocations fail (``MemoryError``).

    Holds for all its threads. Counted is what can be written to, not what is merely reserved: each thread that
    allocates reserves 64 MiB of addresses or more, and other threads may begin to at any time.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(Path("/proc/self/statm").read_text().split()[_DATA]) * mmap.PAGESIZE + more_bytes
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
