"""Waiting for one descriptor."""

import select


def is_readable(descriptor: int, patience_s: float = 0) -> bool:
    """Whether there is something to read, or a process or peer that the descriptor is of has ended, in so many seconds.

    By poll(2): select(2) knows no descriptor from 1,024 on, of which a recording of many processes has as many.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0.0, patience_s) * 1000))
