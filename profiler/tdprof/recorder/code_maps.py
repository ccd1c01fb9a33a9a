"""Perf maps read as they grow, so that a sample is known to be of what stood there when it was taken."""

import os
import time
from collections.abc import Callable
from dataclasses import field

from tdprof.capture.files import PERF_MAP_FOLDER
from tdprof.capture.perf_maps import MAP_LINE, MOST_STEPS, MapTimes, times_name
from tdprof.capture.spool import limit_of_files
from tdprof.linux.clocks import file_time_to_monotonic_ns
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder.code_ranges import CodeRanges
from tdprof.recorder.shares import Shares
from tdprof.values import dataclass

_LONGEST_LINE = 1 << 16
# Read and taken apart in pieces, with pauses: the interpreter is shared with the thread that drains the buffers.
_PIECE_BYTES, _PAUSE_S = 1 << 18, 0.002
# The rest of a line that is longer in coming was in the buffer of its program, as other lines may have been.
_LONGEST_WRITE_NS = 100_000_000


@dataclass(slots=True)
class MapLog:
    """What one process wrote into its map.

    Attributes:
        room: bytes that may be read of all maps together, since all of it is kept.
        uid: whose process it is.
        started_ticks: when its process began, which tells it from others of its number.
        file: (device, inode) of the map.
        position: in the file, behind the last whole line; -1: it is too long to be followed.
        text: the lines that were read.
        taken_bytes: of the room.
        steps: (bytes of ``text``, CLOCK_MONOTONIC) whenever the file had grown.
        is_timed: whether lines were written when their code was made: not where the file was begun anew, as snapshots
            are, nor where a buffer held lines back.
    """

    room: Shares
    uid: int = 0
    started_ticks: int = 0
    file: tuple[int, int] = (0, 0)
    position: int = 0
    text: bytearray = field(default_factory=bytearray)
    taken_bytes: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)
    is_timed: bool = True
    _partial_since_ns: int | None = None
    _ranges: CodeRanges = field(default_factory=CodeRanges)

    def begin_anew(self, file: tuple[int, int], position: int = 0) -> None:
        """There is a file of that name, or another one, or the same from its beginning; or from behind older lines."""
        self.file = file
        self.position = -1 if self.position < 0 else position
        self.is_timed = self.is_timed and not self.text

    def read_on(self, fd: int) -> bool:
        """Read what the file has more; returns whether a line names code that stands in another's place."""
        status = os.fstat(fd)
        if status.st_size < self.position:
            self.begin_anew(self.file)
        if self.position < 0:
            return False
        if status.st_size - self.position > self.room.left_for(self.uid) or len(self.steps) >= MOST_STEPS:
            self._give_up()
            return False
        written_ns = file_time_to_monotonic_ns(status.st_mtime_ns)
        is_replaced = False
        while 0 <= self.position < status.st_size:
            more = os.pread(fd, min(_PIECE_BYTES, status.st_size - self.position), self.position)
            is_last = len(more) < _PIECE_BYTES or self.position + len(more) == status.st_size
            is_replaced |= self._take(more, written_ns, is_last=is_last)
            if is_last:
                break
            time.sleep(_PAUSE_S)
        return is_replaced

    def _take(self, more: bytes, written_ns: int, *, is_last: bool) -> bool:
        """What a piece of the file says; see `read_on`."""
        lines = more[: more.rfind(b"\n") + 1]
        time_ns = max(written_ns, self.steps[-1][1] if self.steps else 1)
        if lines:
            if self._partial_since_ns is not None:
                self.is_timed = self.is_timed and time_ns - self._partial_since_ns < _LONGEST_WRITE_NS
                self._partial_since_ns = None
            self.text += lines
            self.room.take(self.uid, len(lines))
            self.taken_bytes += len(lines)
            self.position += len(lines)
            self.steps.append((len(self.text), time_ns))
        if is_last and len(more) > len(lines) and self._partial_since_ns is None:
            self._partial_since_ns = time_ns
        if len(more) - len(lines) > _LONGEST_LINE:
            self._give_up()
        places = [(int(start, 16), int(size, 16), name) for start, size, name in MAP_LINE.findall(lines)]
        return sum(self._ranges.put(*place) for place in places) > 0

    def give_room_back(self) -> None:
        """For others: only once a segment, as a program could have it read again and again under other numbers."""
        self.room.give_back(self.uid, self.taken_bytes)

    def _give_up(self) -> None:
        """Read no more of it, and forget it; what it took of the room bounds the time as well."""
        self.position, self.is_timed = -1, False
        self.text, self.steps, self._ranges = bytearray(), [], CodeRanges()


def save_map_logs(folder: OwnFolder, logs: dict[int, MapLog], follows: Callable[[int], bool]) -> list[str]:
    """Write the maps of followed processes into a capture, as far as it has none of them, and their times.

    Returns:
        What the capture has no room for, a sentence each.

    Raises:
        OSError: it cannot be written.
    """
    kept = [(pid, log, list(log.steps)) for pid, log in logs.items() if log.steps and follows(pid)]
    if not kept:
        return []
    left_out, room = list[str](), limit_of_files(folder)
    until_ns = time.monotonic_ns()
    with folder.subfolder(PERF_MAP_FOLDER, make=True) as files:
        for pid, log, steps in kept:
            name, text = f"perf-{pid}.map", bytes(log.text[: steps[-1][0]] if steps else b"")
            if not MAP_LINE.match(text) or files.has(name):  # no map; a JVM's, that was asked for it
                continue
            if room is not None and len(text) > room:
                left_out.append(f"/tmp/{name} is not kept: too large for --max-size")
                continue
            room = room and room - len(text)
            with files.replacing(name) as file:
                file.write(text)
            if log.is_timed:
                with files.replacing(times_name(name)) as file:
                    file.write(MapTimes.of(text, steps, max(until_ns, steps[-1][1])).to_bytes())
    return left_out
