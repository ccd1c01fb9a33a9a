"""Limits of this process that are raised for a while; a command started afterwards must not inherit them."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def raised_descriptor_limit() -> Iterator[None]:
    """One descriptor for each event, thread and CPU adds up: what the hard limit allows, as perf takes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with _raised(resource.RLIMIT_NOFILE, (hard, hard)):
        yield


@contextlib.contextmanager
def unlimited_locked_memory() -> Iterator[None]:
    """No limit where CAP_SYS_RESOURCE allows that; else what there is, and what is refused then says so."""
    with _raised(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
        yield


@contextlib.contextmanager
def _raised(kind: int, limits: tuple[int, int]) -> Iterator[None]:
    before = resource.getrlimit(kind)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, limits)
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
