"""Waiting for one descriptor, whatever its number."""

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from tdprof.linux.readable import is_readable


@pytest.fixture(params=[3, 1024, 1500])
def pipe(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Both ends of a pipe; the first has a number from the parameter on, beyond what select(2) knows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip(f"no more than {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    low, write = os.pipe()
    read = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, request.param)
    os.close(low)
    yield read, write
    for fd in (read, write):
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_written_can_be_read(pipe: tuple[int, int]) -> None:
    read, write = pipe
    assert not is_readable(read)
    assert not is_readable(read, 0.001)
    assert not is_readable(read, -1)
    os.write(write, b"x")
    assert is_readable(read)
    assert is_readable(read, 60)


def test_a_process_that_has_ended_is_noticed(pipe: tuple[int, int]) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    handle = os.pidfd_open(child)
    high = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, pipe[0])
    assert is_readable(high, 60)
    os.close(handle)
    os.close(high)
    os.waitpid(child, 0)
