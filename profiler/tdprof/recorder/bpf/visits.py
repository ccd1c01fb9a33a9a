"""Stays in the control groups that are recorded, as the BPF programs note them when the kernel moves who is moved."""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from tdprof.recorder.bpf.maps import BatchReader
from tdprof.recorder.bpf.standing_threads import StandingThread
from tdprof.recorder.host import is_in_initial_pid_namespace
from tdprof.values import dataclass

VISITS, TOLD_VISITS = "visits", "told_visits"  # the maps
_MOVED_PROCESS = 1 << 32  # MOVED_PROCESS of bpf/off_cpu.h
_NUMBER = struct.Struct("<Q")


class Visit(NamedTuple):
    """``struct visit`` of bpf/off_cpu.h: CLOCK_MONOTONIC; 0: not while time was recorded."""

    came_ns: int
    left_ns: int
    is_runnable: int = 0

    @property
    def is_over(self) -> bool:
        """Whether who came has left, or has left who was there."""
        return self.left_ns > self.came_ns


_VISIT = struct.Struct("<3Q")
_NONE = Visit(0, 0)


@dataclass(frozen=True, slots=True)
class Visits:
    """The last ones.

    Attributes:
        last: by number of a thread, or of a process with `_MOVED_PROCESS`; the numbers are the kernel's own.
        told_ns: by number of a thread: when the one ended whose time the programs have told.
    """

    last: Mapping[int, Visit]
    told_ns: Mapping[int, int]

    @classmethod
    def take(cls, maps: Mapping[str, int]) -> "Visits":
        """Out of the programs' maps; none where this process numbers others otherwise than the kernel does."""
        if not is_in_initial_pid_namespace():
            return cls({}, {})
        last: dict[int, Visit] = {}
        for keys, values in BatchReader(_NUMBER.size, _VISIT.size).take(maps[VISITS]):
            visits = map(Visit._make, _VISIT.iter_unpack(values))
            last.update(zip((number for (number,) in _NUMBER.iter_unpack(keys)), visits, strict=True))
        told_ns: dict[int, int] = {}
        for keys, values in BatchReader(_NUMBER.size, _NUMBER.size).take(maps[TOLD_VISITS]):
            numbers = ((number for (number,) in _NUMBER.iter_unpack(part)) for part in (keys, values))
            told_ns.update(zip(*numbers, strict=True))
        return cls(last, told_ns)

    @property
    def over(self) -> set[int]:
        """Processes that have come into the groups, and are there no more."""
        whole = ((key & ~_MOVED_PROCESS, visit) for key, visit in self.last.items() if key & _MOVED_PROCESS)
        return {pid for pid, visit in whole if visit.came_ns and visit.is_over}

    def of_thread(self, pid: int, tid: int) -> Visit:
        """Its own, or its process's where that is later."""
        alone, with_all = self.last.get(tid, _NONE), self.last.get(_MOVED_PROCESS | pid, _NONE)
        came = max(alone, with_all, key=lambda visit: visit.came_ns)
        return came._replace(left_ns=max(alone.left_ns, with_all.left_ns))

    def is_untold(self, thread: StandingThread) -> bool:
        """Whether it has left the groups, and no program has told so: it has not come to a CPU or left one since."""
        visit = self.of_thread(thread.pid, thread.tid)
        return visit.is_over and self.told_ns.get(thread.tid, 0) <= visit.came_ns
