"""Notices when a library takes the place of another in a process, as after dlclose and dlopen.

BPF rows are added up over an interval, within which an address then has two meanings. An interval that ends soon after
such a moment keeps them apart.
"""

from collections import defaultdict
from collections.abc import Set

from tdprof.recorder.held_programs import mapped_files

# Of processes and of the mappings of each; beyond that all is forgotten, which costs an interval that is not ended.
_MOST_PROCESSES, _MOST_MAPPINGS = 4096, 4096


class ReplacedMappings:
    """What is mapped where, by the records that were looked at."""

    def __init__(self) -> None:
        self._mapped: dict[int, list[tuple[int, int, bytes]]] = defaultdict(list)

    def look(self, records: bytes) -> dict[int, int]:
        """Processes of which perf records tell a mapping that covers an earlier one of another file; how often one
        took another's place at most, where these records tell of several."""
        found: dict[int, int] = {}
        times: dict[tuple[int, int, int, bytes], int] = {}
        for pid, start, length, _, file in mapped_files(records):
            end = start + length
            mapped = self._mapped[pid]
            covered = [each for each in mapped if each[0] < end and start < each[1]]
            if any(each[2] != file for each in covered):
                times[pid, start, end, file] = 1 + max(times.get((pid, *each), 0) for each in covered)
                found[pid] = max(found.get(pid, 0), times[pid, start, end, file])
            for each in covered:
                mapped.remove(each)
            if len(mapped) >= _MOST_MAPPINGS:
                mapped.clear()
            mapped.append((start, end, file))
        if len(self._mapped) > _MOST_PROCESSES:
            self._mapped.clear()
        return found

    def forget_all_but(self, running: Set[int]) -> None:
        """Of processes that have ended nothing covers anything any more."""
        for pid in self._mapped.keys() - running:
            del self._mapped[pid]
