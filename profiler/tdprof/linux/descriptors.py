"""What a forked child holds of its parent's files."""

import contextlib
import os
from collections.abc import Collection


def keep_only(kept: Collection[int]) -> None:
    """Close all descriptors but these; standard input, output and error that are not among them become /dev/null.

    For a child that may be left behind, where it is stuck: who waits for the end of a pipe, for a lock or for the end
    of an event that its parent had would wait for the child's.
    """
    standard = {0, 1, 2}.difference(kept)
    for fd in standard:  # first, so that there is room for what follows
        with contextlib.suppress(OSError):
            os.close(fd)
    # Not os.closerange: where Python has no close_range(2) it tries each number, and the limit may be 2^30.
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(fd)
    for _ in standard:
        os.open(os.devnull, os.O_RDWR)  # takes the lowest number
