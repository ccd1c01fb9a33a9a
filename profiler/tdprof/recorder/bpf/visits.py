"""Stays in the control groups that are recorded, as the BPF programs note them when the kernel moves who is moved."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tdprof.recorder.bpf.maps import BatchReader
from tdprof.recorder.host import is_in_initial_pid_namespace
from tdprof.values import dataclass

VISITS, TOLD_VISITS = "visits", "told_visits"  # the maps
_MOVED_PROCESS = 1 << 32  # MOVED_PROCESS of bpf/off_cpu.h
_NUMBER = struct.Struct("<Q")


class Stay(NamedTuple):
    """``struct stay`` of bpf/off_cpu.h: CLOCK_MONOTONIC; 0: not while time was recorded."""

    came_ns: int
    left_ns: int

    @property
    def is_over(self) -> bool:
        """Whether who came has left, or has left who was there."""
        return self.left_ns > self.came_ns


class Visit(NamedTuple):
    """``struct visit`` of bpf/off_cpu.h: the stays that it has room for, the oldest first.

    Of the last one `left_ns` may be when the one before it ended.
    """

    stays: Sequence[Stay]
    forgotten_ns: int = 0


MOST_STAYS = 8  # of bpf/off_cpu.h, before the last one
_STAY = struct.Struct("<2Q8x")
_FORGOTTEN = struct.Struct("<Q")
_VISIT_BYTES = _STAY.size * (1 + MOST_STAYS) + _FORGOTTEN.size
# The last one, then the others behind when another was forgotten.
_STAY_PLACES = [0, *(_STAY.size * number + _FORGOTTEN.size for number in range(1, 1 + MOST_STAYS))]
_NONE = Visit([Stay(0, 0)])


@dataclass(frozen=True, slots=True)
class Visits:
    """The last ones.

    Attributes:
        last: by number of a thread, or of a process with `_MOVED_PROCESS`; the numbers are the kernel's own.
        told_ns: by number of a thread: when the stay ended that the programs have told of last.
    """

    last: Mapping[int, Visit]
    told_ns: Mapping[int, int]

    @classmethod
    def take(cls, maps: Mapping[str, int]) -> "Visits":
        """Out of the programs' maps; none where this process numbers others otherwise than the kernel does."""
        if not is_in_initial_pid_namespace():
            return cls({}, {})
        last: dict[int, Visit] = {}
        for keys, values in BatchReader(_NUMBER.size, _VISIT_BYTES).take(maps[VISITS]):
            visits = (_visit(values[at : at + _VISIT_BYTES]) for at in range(0, len(values), _VISIT_BYTES))
            last.update(zip((number for (number,) in _NUMBER.iter_unpack(keys)), visits, strict=True))
        told_ns: dict[int, int] = {}
        for keys, values in BatchReader(_NUMBER.size, _NUMBER.size).take(maps[TOLD_VISITS]):
            numbers = ((number for (number,) in _NUMBER.iter_unpack(part)) for part in (keys, values))
            told_ns.update(zip(*numbers, strict=True))
        return cls(last, told_ns)

    @property
    def over(self) -> set[int]:
        """Processes that have come into the groups, and are there no more."""
        whole = ((key & ~_MOVED_PROCESS, visit.stays[-1]) for key, visit in self.last.items() if key & _MOVED_PROCESS)
        return {pid for pid, last in whole if last.came_ns and last.is_over}

    def of_thread(self, pid: int, tid: int) -> Visit:
        """Its own stays and its process's, in order; without any, one that is not known to begin or to end."""
        alone, with_all = self.last.get(tid, _NONE), self.last.get(_MOVED_PROCESS | pid, _NONE)
        (*earlier, last), (*of_process, of_all) = alone.stays, with_all.stays
        if last.is_over and last.left_ns <= of_all.came_ns:
            earlier.append(last)
        until_ns = earlier[-1].left_ns if earlier else 0
        earlier += [stay for stay in of_process if stay.came_ns >= until_ns]
        came_ns, left_ns = max(last.came_ns, of_all.came_ns), max(last.left_ns, of_all.left_ns)
        return Visit([*earlier, Stay(came_ns, left_ns)], max(alone.forgotten_ns, with_all.forgotten_ns))


def _visit(value: bytes) -> Visit:
    last, *earlier = (Stay(*_STAY.unpack_from(value, at)) for at in _STAY_PLACES)
    (forgotten_ns,) = _FORGOTTEN.unpack_from(value, _STAY.size)
    return Visit([*(stay for stay in reversed(earlier) if stay.left_ns), last], forgotten_ns)
