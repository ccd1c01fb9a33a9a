"""Which events the kernel lets this process open."""

import os

from tdprof.recorder import perf_event as pe
from tdprof.recorder.events import Event


def can_open(event: Event, *, sampling: bool) -> bool:
    """Whether the kernel lets this process open an event on itself, optionally with an overflow interrupt."""
    attr = event.attr()
    attr.disabled = 1
    if sampling:
        attr.sample_period = 1_000_000
    try:
        os.close(pe.perf_event_open(attr, 0, -1))
    except OSError:
        return False
    return True


def restrict_to_permitted(event: Event) -> Event:
    """The event without its kernel part where only that is refused, as perf does for an ordinary user."""
    if not event.exclude_kernel and not event.exclude_user and not can_open(event, sampling=True):
        restricted = event.user_only()
        if can_open(restricted, sampling=True):
            return restricted
    return event
