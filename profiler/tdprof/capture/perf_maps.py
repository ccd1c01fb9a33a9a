"""Maps of code made at run time, ``perf-PID.map``, in a capture; and beside each, if known, when its lines came.

The map's format: tools/perf/Documentation/jit-interface.txt in the Linux sources: ``START SIZE name`` a line, hex.
"""

import re
import struct
import zlib
from collections.abc import Sequence
from typing import Self

from tdprof.values import dataclass

MAP_LINE = re.compile(rb"^(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) ([^\r\n]+)[\r\n]", re.MULTILINE)
MOST_STEPS = 1 << 16
_HEADER = struct.Struct("<8sIIQQ")  # magic, CRC-32 of what was seen of the map, number of steps, bytes seen, until_ns
_STEP = struct.Struct("<QQ")  # end, time
_MAGIC = b"TDMAPT\0\1"


def times_name(map_name: str) -> str:
    """Of the file beside a map."""
    return f"{map_name.removesuffix('.map')}.times"


@dataclass(frozen=True, slots=True)
class MapTimes:
    """When the lines of a map were written.

    Attributes:
        seen_bytes, crc32: of the map, from its beginning; the rest was written after ``until_ns``.
        until_ns: CLOCK_MONOTONIC.
        end, time_ns: up to which byte it reached after each time that it was seen to have grown, and when, both
            ascending; the last end is ``seen_bytes``.
    """

    seen_bytes: int
    crc32: int
    until_ns: int
    end: Sequence[int]
    time_ns: Sequence[int]

    @classmethod
    def of(cls, text: bytes | bytearray, steps: Sequence[tuple[int, int]], until_ns: int) -> Self:
        """Those of what was seen of a map, by (end, time) of its steps."""
        return cls(len(text), zlib.crc32(text), until_ns, [end for end, _ in steps], [time for _, time in steps])

    def to_bytes(self) -> bytes:
        """As `from_bytes` reads it."""
        header = _HEADER.pack(_MAGIC, self.crc32, len(self.end), self.seen_bytes, self.until_ns)
        return header + b"".join(map(_STEP.pack, self.end, self.time_ns))

    @classmethod
    def from_bytes(cls, data: bytes, text: bytes) -> Self | None:
        """The times of this map; None: they are damaged, or another's."""
        if len(data) < _HEADER.size:
            return None
        magic, crc32, count, seen_bytes, until_ns = _HEADER.unpack_from(data)
        if magic != _MAGIC or not 0 < count <= MOST_STEPS or len(data) != _HEADER.size + count * _STEP.size:
            return None
        if seen_bytes > len(text) or zlib.crc32(text[:seen_bytes]) != crc32:
            return None
        end, time_ns = zip(*_STEP.iter_unpack(data[_HEADER.size :]), strict=True)
        all_ends, all_times = (0, *end), (1, *time_ns, until_ns)
        if end[-1] != seen_bytes or list(all_ends) != sorted(set(all_ends)) or list(all_times) != sorted(all_times):
            return None
        return cls(seen_bytes, crc32, until_ns, end, time_ns)
