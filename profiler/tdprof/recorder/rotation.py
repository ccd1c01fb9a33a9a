"""Cuts a recording without end into segments, each a whole capture.

A boundary is one of the swaps of the BPF programs' tables, so that no sample is in two segments and none between. What
later samples refer to is in the next segment before the boundary: from `prepare` on the programs send every stack
anew, a snapshot is taken of what runs, and what the old spool is told meanwhile, the new one is told, too.
"""

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from tdprof.capture.manifest import Manifest, write_manifest
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.spool import CODES_FILE, COPIES_FILE, PYTHON_STACKS_FILE, RING_FILE, STACKS_FILE, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder.bpf.sampler import BpfSampler
from tdprof.recorder.cgroups import CgroupNames
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.java_processes import JavaProcesses
from tdprof.recorder.snapshot import SnapshotThread
from tdprof.values import dataclass

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = re.compile(r"([0-9]{1,9})([smhdBKMG])")
_SHARED = (STACKS_FILE, COPIES_FILE, PYTHON_STACKS_FILE, CODES_FILE)


@dataclass(frozen=True, slots=True)
class SegmentLength:
    """When a segment ends; 0: not by that.

    Attributes:
        seconds: it was recorded for.
        bytes: it takes on the disk.
    """

    seconds: int = 0
    bytes: int = 0


def parse_segment_length(text: str) -> SegmentLength:
    """``30s``, ``5m``, ``1h``, ``1d``, or a size: ``100M``, as ``perf record --switch-output`` takes them.

    Raises:
        TdprofError: neither.
    """
    found = _NUMBER.fullmatch(text)
    if found is None or not int(found[1]):
        raise TdprofError(
            f"--switch-output takes a time or a size, not '{text}'",
            hint="--switch-output=5m (s, m, h, d) or --switch-output=100M (B, K, M, G)",
            status=2,
        )
    number, unit = int(found[1]), found[2]
    return (
        SegmentLength(seconds=number * _SECONDS[unit])
        if unit in _SECONDS
        else SegmentLength(bytes=number * _BYTES[unit])
    )


def parse_size(text: str, option: str) -> int:
    """Bytes of ``2G`` and the like.

    Raises:
        TdprofError: it is no size.
    """
    found = _NUMBER.fullmatch(text)
    if found is None or found[2] not in _BYTES or not int(found[1]):
        raise TdprofError(f"{option} takes a size, not '{text}'", hint=f"{option}=2G (B, K, M, G)", status=2)
    return int(found[1]) * _BYTES[found[2]]


class SegmentSink(Protocol):
    """Where segments go."""

    def open_next(self) -> OutputFolder:
        """A folder for the next one, made and not published."""

    def ended(self, manifest: Manifest, held: HeldPrograms) -> None:
        """The one before is recorded; the one that was opened last is published and goes on."""

    def bytes_at_cut(self) -> int:
        """What the segment that is being recorded will take on the disk if it is to be cut now."""

    def tick(self) -> None:
        """Called about once a second."""

    def make_room(self, coming_bytes: int) -> None:
        """Called before so much is written.

        Raises:
            TdprofError: what is being recorded alone would take more than all may.
        """


@dataclass(frozen=True, slots=True)
class Segments:
    """How a recording is cut.

    Attributes:
        length: of a segment.
        sink: where they go.
        most_bytes_of_files: that files of the recorded processes may take in each; None: as many as usual.
    """

    length: SegmentLength
    sink: SegmentSink
    most_bytes_of_files: int | None = None


@dataclass(slots=True)
class _Next:
    output: OutputFolder
    spool: SpoolWriter
    snapshot: SnapshotThread
    shared_from: dict[str, int]  # of the old spool's files: from where on the new one has them, too


class Rotation:
    """Of one recording.

    Args:
        segments: how to cut it.
        margin_s: between two looks whether a segment is due.
    """

    def __init__(self, segments: Segments, margin_s: float) -> None:
        self._length = segments.length
        self._sink = segments.sink
        self._most_bytes_of_files = segments.most_bytes_of_files
        self._margin_s = margin_s
        self._next: _Next | None = None
        self._leaving: _LeavingSegment | None = None

    def is_due(self, seconds: float) -> bool:
        """Whether to prepare the next segment, ``seconds`` after this one began."""
        self._sink.tick()
        if self._next or self._leaving:
            return False
        # It is cut at the next look but one.
        if self._length.seconds and seconds + 2 * self._margin_s >= self._length.seconds:
            return True
        return bool(self._length.bytes) and self._sink.bytes_at_cut() >= self._length.bytes

    def prepare(
        self, spool: SpoolWriter, sampler: BpfSampler, cgroups: CgroupNames, pids: Sequence[int], rings: Sequence[int]
    ) -> None:
        """Open the next segment, right after all was drained into the spool of this one.

        Args:
            spool: of this segment.
            sampler: takes the samples.
            cgroups: writes the names of all control groups.
            pids: processes that run.
            rings: CPUs that have one.

        Raises:
            TdprofError, OSError: it cannot be made.
        """
        shared = [*_SHARED, *(RING_FILE.format(cpu=cpu) for cpu in rings)]
        output = self._sink.open_next()
        new = SpoolWriter(output.folder, self._most_bytes_of_files)
        shared_from = {name: spool.size(name) for name in shared}
        sampler.begin_segment(new)
        cgroups.look(new)
        self._next = _Next(output, new, SnapshotThread(pids, new), shared_from)

    @property
    def is_ready(self) -> bool:
        """Whether the next segment may begin."""
        return self._next is not None and self._next.snapshot.is_done

    def make_room(self, coming_bytes: int) -> None:
        """See `SegmentSink`."""
        self._sink.make_room(coming_bytes)

    def make_room_to_switch(self, spool: SpoolWriter, maps_bytes: int) -> None:
        """The same for what of ``spool`` the next segment has, too, and for perf maps.

        Raises:
            TdprofError: as `make_room`.
        """
        assert self._next
        if self._most_bytes_of_files is not None:
            maps_bytes = min(maps_bytes, self._most_bytes_of_files)
        tails = sum(spool.size(name) - start for name, start in self._next.shared_from.items())
        self._sink.make_room(tails + maps_bytes)

    def switch(self, spool: SpoolWriter) -> tuple[OutputFolder, SpoolWriter, SnapshotThread]:
        """Begin the next segment, right after all was drained into ``spool``, which is closed.

        Raises:
            OSError: the new one could not be written: this one is the last.
        """
        assert self._next
        ready = self._next
        for name, start in ready.shared_from.items():
            spool.copy_tail(name, start, ready.spool)
        spool.close()
        ready.output.publish()
        self._next = None
        return ready.output, ready.spool, ready.snapshot

    def leave(self, folder: OwnFolder, manifest: Manifest, java: JavaProcesses | None) -> Sequence[int]:
        """Let go of the segment that `switch` ended, as it says of itself; its JVMs are those of the next one, too."""
        self._leaving = _LeavingSegment(folder, manifest, java)
        return self._leaving.java_processes()

    def hand_over(self, held: HeldPrograms, *, waits: bool = False) -> None:
        """Hand over the segment that was left once all is known of it."""
        if self._leaving and (waits or not self._leaving.is_alive()):
            leaving, self._leaving = self._leaving, None
            self._sink.ended(leaving.finish(), held)

    def close(self) -> None:
        """The recording ends: what was prepared comes to nothing."""
        if self._next:
            self._next.spool.close()
            self._next = None


class _LeavingSegment:
    """A segment that was cut off: its JVMs are asked once more, which may take them seconds.

    Args:
        folder: of the segment.
        manifest: of it.
        java: its JVMs.
    """

    def __init__(self, folder: OwnFolder, manifest: Manifest, java: JavaProcesses | None) -> None:
        self._folder = folder
        self._manifest = manifest
        self._java = java
        self._notes: list[str] = []
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        if self._java:
            self._notes = self._java.finish()

    def java_processes(self) -> Sequence[int]:
        """The JVMs of the segment."""
        return self._java.known() if self._java else ()

    def is_alive(self) -> bool:
        """Whether there is still something to be waited for."""
        return self._thread.is_alive()

    def finish(self) -> Manifest:
        """Wait; then the segment's manifest is as it will be."""
        self._thread.join()
        manifest = replace(self._manifest, notes=[*self._manifest.notes, *self._notes])
        write_manifest(self._folder, manifest)
        return manifest
