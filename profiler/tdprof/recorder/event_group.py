"""Opens perf events that are on the PMU together or not at all, whoever samples or counts them."""

import contextlib
import os
from collections.abc import Callable, Sequence

from tdprof.recorder import perf_event as pe

# Asked about an event, by its index, that the kernel will not open: True goes on without it, False gives up what is
# left of the group. It may raise.
Refused = Callable[[int, OSError], bool]


def open_group(
    attrs: Sequence[pe.PerfEventAttr],
    task: int,
    cpu: int,
    refused: Refused,
    *,
    starts_at_exec: bool = False,
    is_cgroup: bool = False,
) -> list[int | None]:
    """Open a group of events for one task, -1 for all, on one CPU, -1 for any; nothing counts yet.

    ``is_cgroup``: the task is a control group's open folder.

    The first that opens is the leader: it alone waits for exec, or for ``enable``, and the others follow it.

    Args:
        attrs: of the events; whether they wait is set here.

    Returns:
        A descriptor for each event, to be closed by the caller; None for one that is not open.
    """
    fds: list[int | None] = [None] * len(attrs)
    leader = -1
    with contextlib.ExitStack() as on_failure:
        for index, attr in enumerate(attrs):
            attr.disabled = leader < 0
            attr.enable_on_exec = leader < 0 and starts_at_exec
            try:
                fd = pe.perf_event_open(attr, task, cpu, leader, is_cgroup=is_cgroup)
            except OSError as error:
                if refused(index, error):
                    continue
                break
            on_failure.callback(os.close, fd)
            fds[index] = fd
            leader = fd if leader < 0 else leader
        on_failure.pop_all()
    return fds


def open_whole_group(
    attrs: Sequence[pe.PerfEventAttr], task: int, cpu: int, *, starts_at_exec: bool = False, is_cgroup: bool = False
) -> list[int]:
    """As `open_group`, all of it.

    Raises:
        OSError: the kernel refuses an event.
    """

    def refuse(_index: int, error: OSError) -> bool:
        raise error

    opened = open_group(attrs, task, cpu, refuse, starts_at_exec=starts_at_exec, is_cgroup=is_cgroup)
    return [fd for fd in opened if fd is not None]
