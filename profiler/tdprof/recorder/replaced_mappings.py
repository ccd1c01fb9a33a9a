"""Notices when a library takes the place of another in a process, as after dlclose and dlopen.

BPF rows are added up over an interval, within which an address then has two meanings. An interval that ends soon after
such a moment keeps them apart.
"""

from collections import defaultdict
from collections.abc import Set
from typing import NamedTuple

from tdprof.recorder.held_programs import mapped_files

# Of processes and of the mappings of each; beyond that all is forgotten, which costs an interval that is not ended.
_MOST_PROCESSES, _MOST_MAPPINGS = 4096, 4096


class Place(NamedTuple):
    """Addresses of a process at which a file was mapped."""

    pid: int
    start: int
    end: int


class ReplacedMappings:
    """What is mapped where, by the records that were looked at."""

    def __init__(self) -> None:
        self._mapped: dict[int, list[tuple[int, int, bytes]]] = defaultdict(list)
        self._times: dict[tuple[Place, bytes], int] = {}

    @property
    def has_found(self) -> bool:
        """Whether there is something to take."""
        return bool(self._times)

    def look(self, records: bytes) -> None:
        """Find perf records that tell of a mapping that covers an earlier one of another file."""
        for pid, start, length, _, file in mapped_files(records):
            place = Place(pid, start, start + length)
            mapped = self._mapped[pid]
            covered = [each for each in mapped if each[0] < place.end and start < each[1]]
            if any(each[2] != file for each in covered):
                earlier = (self._times.get((Place(pid, *each[:2]), each[2]), 0) for each in covered)
                self._times[place, file] = 1 + max(earlier)
            for each in covered:
                mapped.remove(each)
            if len(mapped) >= _MOST_MAPPINGS:
                mapped.clear()
            mapped.append((start, place.end, file))
        if len(self._mapped) > _MOST_PROCESSES:
            self._mapped.clear()

    def take(self) -> dict[Place, int]:
        """Where that was since the last call; how often one had taken another's place there by then."""
        found: dict[Place, int] = {}
        for (place, _), times in self._times.items():
            found[place] = max(found.get(place, 0), times)
        self._times.clear()
        return found

    def forget_all_but(self, running: Set[int]) -> None:
        """Of processes that have ended nothing covers anything any more."""
        for pid in self._mapped.keys() - running:
            del self._mapped[pid]
