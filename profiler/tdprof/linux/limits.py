"""Limits of this process that are raised for a while; a command started afterwards must not inherit them."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

NR_OPEN = Path("/proc/sys/fs/nr_open")


@contextlib.contextmanager
def raised_descriptor_limit() -> Iterator[None]:
    """What the hard limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with _raised(resource.RLIMIT_NOFILE, (hard, hard)):
        yield


@contextlib.contextmanager
def unlimited_descriptors() -> Iterator[None]:
    """One for each event, thread and CPU adds up: what the kernel allows, where CAP_SYS_RESOURCE allows that."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        most = max(int(NR_OPEN.read_text()), hard)
    except (OSError, ValueError):  # no /proc
        most = hard
    with raised_descriptor_limit(), _raised(resource.RLIMIT_NOFILE, (most, most)):
        yield


@contextlib.contextmanager
def unlimited_locked_memory() -> Iterator[None]:
    """No limit where CAP_SYS_RESOURCE allows that; else the hard one, and what is refused then says so."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    none = resource.RLIM_INFINITY
    with _raised(resource.RLIMIT_MEMLOCK, (hard, hard)), _raised(resource.RLIMIT_MEMLOCK, (none, none)):
        yield


@contextlib.contextmanager
def _raised(kind: int, limits: tuple[int, int]) -> Iterator[None]:
    before = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, limits)
    except (ValueError, OSError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
