"""Lets the BPF programs take events of whole CPUs of some processes only, and of all that these start.

An event that follows a task starts its period anew with each task that inherits it, so that short tasks are sampled
less than they run; and each task has a copy of the event for each CPU. Events of CPUs know no tasks.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterable, Mapping
from enum import IntEnum

from tdprof.recorder.bpf.maps import BPF_MAP_DELETE_ELEM, BPF_MAP_UPDATE_ELEM, map_element, possible_cpus, update_u32
from tdprof.recorder.bpf.object_file import attach_tracepoint

ACTIVE_FOLLOW = 3  # enum active of bpf/sample.h
FILTER_THREADS, FILTER_CGROUPS = 1, 2  # enum filter of bpf/sample.h
# The programs that keep the threads that are followed, and where the kernel runs each.
FOLLOWERS = {
    "follow_new": "task_newtask",
    "follow_exec": "task_rename",  # the first one after events that wait for an exec begin to count (begin_new_exec)
    "follow_exit": "sched_process_exit",
    "follow_no_more": "sched_process_free",
    "follow_successor": "sched_process_exec",
}
_FOLLOWED_PER_CPU, _LEAST_FOLLOWED, _MOST_FOLLOWED = 4096, 1 << 14, 1 << 16


def most_followed() -> int:
    """Threads that can be followed at a time, at 80 bytes each: large machines run programs of more."""
    return min(max(_FOLLOWED_PER_CPU * possible_cpus(), _LEAST_FOLLOWED), _MOST_FOLLOWED)


class Follow(IntEnum):
    """``enum follow`` of bpf/sample.h: from when on a thread is followed."""

    NOW = 0
    FROM_EXEC = 1


class TaskFilter:
    """The filter, in force from its making on: until something is named, nothing is sampled.

    Args:
        maps, programs: descriptors by name.

    Raises:
        OSError: the kernel lacks one of the tracepoints.
    """

    def __init__(self, maps: Mapping[str, int], programs: Mapping[str, int]) -> None:
        self._named = maps["named"]
        with contextlib.ExitStack() as on_failure:
            for program, tracepoint in FOLLOWERS.items():
                on_failure.callback(os.close, attach_tracepoint(tracepoint, programs[program]))
            update_u32(maps["active"], ACTIVE_FOLLOW, FILTER_THREADS)
            self._attached = on_failure.pop_all()

    def follow(self, threads: Mapping[int, int], since: Follow) -> None:
        """Take samples of threads, by number, each with its process's, and of all that they start from then on.

        Raises:
            OSError: more threads than there is room for.
        """
        for tid, pid in threads.items():
            named_as = ctypes.c_uint64(pid << 32 | since)  # of bpf/tasks.bpf.h
            map_element(BPF_MAP_UPDATE_ELEM, self._named, ctypes.c_uint32(tid), named_as)

    def forget(self, threads: Iterable[int]) -> None:
        """Take no samples of what has these numbers by now: their threads may have ended before they were named."""
        for tid in threads:
            with contextlib.suppress(FileNotFoundError):  # it ended afterwards
                map_element(BPF_MAP_DELETE_ELEM, self._named, ctypes.c_uint32(tid))

    def close(self) -> None:
        """Run the programs no more."""
        self._attached.close()
