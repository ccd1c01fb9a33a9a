"""What becomes of the segments of `tdprof record --switch-output`: finished beside it, and kept in bounds."""

import contextlib
from collections import deque
from pathlib import Path
from typing import Self

from tdprof.capture.manifest import Manifest, read_manifest
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.segments import SegmentFolder
from tdprof.cli.disk_growth import DiskGrowth
from tdprof.cli.finishing_process import FinishingProcess
from tdprof.cli.segment_health import SegmentHealth
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.text import plural
from tdprof.values import dataclass

# A segment may take this part of what all may; and while one is finished, its raw records and its tables are there.
OF_ALL = 8
# Of sixteen parts so many are kept, and so many taken by what is written: the rest is for tables, seen but at looks.
_PARTS, _PARTS_KEPT, _PARTS_WRITTEN = 16, 12, 13
_TABLES_OF_RAW = 4  # a segment's tables take no larger part of its raw records, though all stacks be different
_LOOKS_TO_CUT = 2  # from when a segment is due until it is cut
_LEAST_FREE_BYTES = 64 << 20


@dataclass(slots=True)
class _Ended:
    name: str
    folder: OwnFolder
    closing: contextlib.ExitStack
    held: HeldPrograms | None


class SegmentWriter:
    """The segments of one recording. Use as a context manager.

    Args:
        path: the folder that has them.
        most_bytes: that all of them may take; None: as many as the disk has.
        most_segments: how many there may be; None: any number.
        health: is told what becomes of them.
        quiet: say nothing of them.

    Raises:
        TdprofError: nothing can be recorded there.
    """

    def __init__(
        self,
        path: Path,
        most_bytes: int | None,
        most_segments: int | None,
        *,
        health: SegmentHealth | None = None,
        quiet: bool,
    ) -> None:
        self._folder = SegmentFolder(path)
        self._most_bytes = most_bytes
        self._most_segments = most_segments
        self._health = health
        self._quiet = quiet
        self._recorded: tuple[OutputFolder, contextlib.ExitStack] | None = None
        self._next: tuple[OutputFolder, contextlib.ExitStack] | None = None
        self._waiting: deque[_Ended] = deque()
        self._finishing: tuple[_Ended, FinishingProcess] | None = None
        self._is_hurrying = self._is_unfinished_said = self._is_over = False
        self._bytes: dict[str, int] = {}
        self._growth = DiskGrowth()
        self._room_bytes = 0  # that were left at the last look, less what was to be written since
        self._folder.remove_prepared()
        for name in self._folder.unfinished():  # of a recorder that was killed
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                folder = stack.enter_context(self._folder.open(name))
                self._waiting.append(_Ended(name, folder, stack.pop_all(), None))

    @property
    def recorded(self) -> OutputFolder:
        """The segment that is being recorded."""
        assert self._recorded
        return self._recorded[0]

    def open_next(self) -> OutputFolder:
        """See `SegmentSink`."""
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(self._folder.new())
            if self._recorded is None:
                self._recorded = output, stack.pop_all()
            else:
                output.make()  # the first is made by the recording itself
                self._next = output, stack.pop_all()
        return output

    def ended(self, manifest: Manifest, held: HeldPrograms) -> None:
        """See `SegmentSink`."""
        assert self._recorded
        self._growth.saw(self._growing_bytes())
        (output, closing), self._recorded, self._next = self._recorded, self._next, None
        self._growth.begin(self._growing_bytes())
        self._waiting.append(_Ended(output.path.name, output.folder, closing, held))
        self._bytes.pop(output.path.name, None)  # counted while it grew
        if self._health:
            self._health.recorded(manifest, held.not_held_before)
        if not self._quiet:
            samples = plural(manifest.samples_counted or 0, "sample", "s")
            say(f"tdprof: {output.path}: {manifest.duration_ns / 1e9:.1f} s, {samples}")
        self._look()

    def bytes_at_cut(self) -> int:
        """See `SegmentSink`."""
        return self._folder.bytes_of(self.recorded.path.name) + _LOOKS_TO_CUT * self._growth.most_bytes

    def tick(self) -> None:
        """See `SegmentSink`."""
        self._growth.saw(self._growing_bytes())
        self._look()

    def make_room(self, coming_bytes: int) -> None:
        """See `SegmentSink`."""
        self._room_bytes -= coming_bytes
        if self._most_bytes is None or self._room_bytes >= 0:
            return
        self._prune(coming_bytes)
        self._room_bytes -= coming_bytes
        if self._room_bytes < 0:
            raise self._too_little(self._most_bytes, coming_bytes)

    def _too_little(self, most_bytes: int, coming_bytes: int) -> TdprofError:
        """Nothing is left that could go but what is being recorded."""
        taken = self._taken_bytes()
        least = -(-(taken + coming_bytes) * _PARTS // _PARTS_KEPT >> 20)
        return TdprofError(
            f"--max-size of {most_bytes / 1e6:.0f} MB is too little for what is recorded here: beside "
            f"{taken / 1e6:.1f} MB of a segment that could not be cut yet there is no room for "
            f"{coming_bytes / 1e6:.1f} MB more, which are lost",
            hint=f"--max-size {2 * least}M or more; a lower -F takes less",
        )

    def _growing(self) -> set[str]:
        """Names of the segment that is being recorded and of the next one."""
        return {each[0].path.name for each in (self._recorded, self._next) if each}

    def _growing_bytes(self) -> int:
        return sum(map(self._folder.bytes_of, self._growing()))

    def _look(self) -> None:
        """See what was finished and what can be, and keep within the bounds."""
        if self._finishing and self._finishing[1].is_done:
            self._close_finished()
        if self._finishing is None and self._waiting:
            ended = self._waiting.popleft()
            self._is_hurrying = self._is_over or bool(self._waiting)
            process = FinishingProcess(is_ahead=False, hurries=self._is_hurrying)
            process.finish(ended.folder, ended.held)
            self._finishing = ended, process
        if self._waiting:  # else it might fall ever further behind
            self._hurry()
        self._prune()
        self._tell()

    def _hurry(self) -> None:
        if self._finishing and not self._is_hurrying:
            self._is_hurrying = True
            self._finishing[1].hurry()

    def _tell(self, *, is_due: bool = False) -> None:
        if self._health:
            waiting = len(self._waiting) + (self._finishing is not None)
            self._health.write(sum(self._bytes.values()), waiting, is_due=is_due)

    def _close_finished(self) -> None:
        assert self._finishing
        ended, process = self._finishing
        failure = process.result()
        self._finishing = None
        self._bytes.pop(ended.name, None)  # its raw records went
        if failure:
            say(f"tdprof: {ended.folder.shown} has no tables yet: {failure}")
            if self._health:
                self._health.failed()
        elif ended.held is None and not read_manifest(ended.folder.path).duration_ns:
            # Its recorder was killed before it drained anything: all that was recorded is in the one before.
            self._folder.remove(ended.name)
        ended.closing.close()

    def _prune(self, coming_bytes: int = 0) -> None:
        """Remove the oldest segments until the others keep within the bounds, also such as wait for their tables."""
        growing = self._growing()
        busy = growing | ({self._finishing[0].name} if self._finishing else set())
        while self._is_beyond(coming_bytes) and self._remove_oldest(busy):
            pass
        if self._finishing and not self._has_room(coming_bytes, _PARTS_WRITTEN):
            (ended, process), self._finishing = self._finishing, None
            process.abandon()
            self._waiting.appendleft(ended)
            self._remove_oldest(growing)
        if self._most_bytes is not None:
            self._room_bytes = self._most_bytes * _PARTS_WRITTEN // _PARTS - self._taken_bytes()

    def _remove_oldest(self, kept: set[str]) -> bool:
        """Whether there was one."""
        is_disk_full = self._is_disk_full()
        removed = self._folder.remove_oldest(kept)
        if removed is None:
            return False
        self._bytes.pop(removed, None)
        for ended in [each for each in self._waiting if each.name == removed]:
            self._waiting.remove(ended)
            ended.closing.close()
            self._say_unfinished(ended, is_disk_full=is_disk_full)
        if self._health:
            self._health.removed()
        return True

    def _say_unfinished(self, removed: _Ended, *, is_disk_full: bool) -> None:
        if not self._is_unfinished_said:
            self._is_unfinished_said = True
            why = "this machine has too little time for them (longer segments, a larger --max-size or a lower -F help)"
            if is_disk_full:
                why = f"the disk has less than {_LEAST_FREE_BYTES >> 20} MiB left (free some space)"
            say(f"tdprof: {removed.folder.shown} went before its tables were made, and so may others: {why}")

    def _is_beyond(self, coming_bytes: int) -> bool:
        if self._most_segments is not None and len(self._folder.names) > self._most_segments:
            return True
        return not self._has_room(coming_bytes, _PARTS_KEPT) or self._is_disk_full()

    def _is_disk_full(self) -> bool:
        return self._folder.free_bytes() < _LEAST_FREE_BYTES

    def _has_room(self, coming_bytes: int, parts: int) -> bool:
        """Whether all, and so much more, takes no more than some parts of what it may."""
        taken = self._taken_bytes() + coming_bytes
        return self._most_bytes is None or taken * _PARTS <= self._most_bytes * parts

    def _taken_bytes(self) -> int:
        """What all take now."""
        busy = self._growing() | ({self._finishing[0].name} if self._finishing else set())
        for name in self._folder.names:
            if name in busy or name not in self._bytes:
                self._bytes[name] = self._folder.bytes_of(name)
        return sum(self._bytes[name] for name in self._folder.names)

    def __enter__(self) -> Self:
        return self

    def give_up(self) -> None:
        """Leave segments without tables as they are: who reads one makes them, or the next recorder."""
        if self._finishing:
            (ended, process), self._finishing = self._finishing, None
            self._waiting.append(ended)
            process.close()
        while self._waiting:
            self._waiting.pop().closing.close()

    def finish(self) -> None:
        """Wait until all that ended before the last one is finished; then all keep within the bounds."""
        if self._next:  # it never began
            (prepared, closing), self._next = self._next, None
            closing.close()
            self._folder.forget(prepared.path.name)
        self._is_over = True  # nothing is recorded that it could disturb, and somebody waits
        self._hurry()
        while self._finishing or self._waiting:
            if self._finishing:
                self._close_finished()
            self._look()
        if self._recorded and self._recorded[0].is_published:  # it may have taken less time than there is between ticks
            self._prune(self._folder.bytes_of(self.recorded.path.name) // _TABLES_OF_RAW)
        self._tell(is_due=True)

    def __exit__(self, *exception: object) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._folder)
            if self._recorded:
                stack.push(self._recorded[1])
            stack.callback(self.finish)
