"""What code made at run time stands where, as it is told of, piece by piece."""

import bisect
from dataclasses import field

from tdprof.values import dataclass

_MOST_FUNCTIONS = 1 << 16


@dataclass(slots=True)
class CodeRanges:
    """The functions of one process that no later one covers."""

    _start: list[int] = field(default_factory=list)
    _end: list[int] = field(default_factory=list)
    _name: list[bytes] = field(default_factory=list)

    def put(self, start: int, size: int, name: bytes) -> bool:
        """Whether a function covers what has another name."""
        first, last = bisect.bisect_right(self._end, start), bisect.bisect_left(self._start, start + size)
        if not size or first > last:
            return False
        is_other = any(each != name for each in self._name[first:last])
        if len(self._start) >= _MOST_FUNCTIONS:
            self._start, self._end, self._name, first, last = [], [], [], 0, 0
        self._start[first:last], self._end[first:last], self._name[first:last] = [start], [start + size], [name]
        return is_other
