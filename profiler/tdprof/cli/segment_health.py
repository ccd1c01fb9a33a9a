"""How a recording without end is doing, as Prometheus' text in a file: node-exporter's textfile collector takes it."""

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tdprof import __version__
from tdprof.capture.manifest import Manifest
from tdprof.cli.standard_error import say
from tdprof.linux.output_file import replaced_file

_EVERY_S = 15.0
_PREFIX = "tdprof_recorder_"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class SegmentHealth:
    """Counts what became of segments, and writes it down every quarter of a minute.

    Args:
        path: of the file, which others may read; its folder has to be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_s = -_EVERY_S
        self._is_told = False
        self._start_s = time.time()
        self._segments = self._samples = self._removed = self._failed = self._not_held = 0
        self._recorded_ns = 0
        self._last_s: float | None = None
        self._losses: dict[str, int] = {}

    def recorded(self, manifest: Manifest, not_held: int) -> None:
        """A segment is over, in which so many programs were not held while they ran."""
        self._segments += 1
        self._samples += manifest.samples_counted or 0
        self._recorded_ns += manifest.duration_ns
        self._last_s = time.time()
        self._not_held = not_held
        told = asdict(manifest.losses)
        for reason, count in {**told.pop("by_reason"), **told}.items():
            self._losses[reason] = self._losses.get(reason, 0) + count

    def removed(self) -> None:
        """A segment went, to make room."""
        self._removed += 1

    def failed(self) -> None:
        """A segment's tables could not be made."""
        self._failed += 1

    def write(self, taken_bytes: int, waiting: int, *, is_due: bool = False) -> None:
        """Write it down, when it is time or ``is_due``. What cannot be written is said once.

        Args:
            taken_bytes: by all segments.
            waiting: segments whose tables are not made yet.
        """
        now_s = time.monotonic()
        if not is_due and now_s - self._written_s < _EVERY_S:
            return
        self._written_s = now_s
        try:
            with replaced_file(self._path) as file:
                file.write("".join(self._lines(taken_bytes, waiting)).encode())
                os.fchmod(file.fileno(), 0o644)  # whoever collects it is another user
        except OSError as error:
            if not self._is_told:
                say(f"tdprof: cannot write {self._path}: {error.strerror}")
            self._is_told = True

    def _lines(self, taken_bytes: int, waiting: int) -> Iterator[str]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = time.process_time() + children.ru_utime + children.ru_stime
        yield from _metric("info", "gauge", "which recorder it is", 1, f'{{version="{__version__}"}}')
        yield from _metric("start_time_seconds", "gauge", "when it started, since the epoch", self._start_s)
        yield from _metric("segments_total", "counter", "segments that are recorded", self._segments)
        yield from _metric(
            "recorded_seconds_total", "counter", "time that these were recorded", self._recorded_ns / 1e9
        )
        if self._last_s is not None:
            last = "when the last one ended, since the epoch"
            yield from _metric("last_segment_time_seconds", "gauge", last, self._last_s)
        yield from _metric("samples_total", "counter", "samples that were taken", self._samples)
        yield _heading("losses_total", "counter", "samples and records that were lost, by how")
        for reason, count in sorted(self._losses.items()):
            yield f'{_PREFIX}losses_total{{reason="{reason.translate(_ESCAPES)}"}} {count}\n'
        not_held = "programs of the last segment that were not held while running, about: deleted, they have no names"
        yield from _metric("programs_not_held", "gauge", not_held, self._not_held)
        yield from _metric("segments_removed_total", "counter", "segments that went to make room", self._removed)
        yield from _metric("segments_failed_total", "counter", "segments whose tables could not be made", self._failed)
        yield from _metric("segments_waiting", "gauge", "segments whose tables are not made yet", waiting)
        yield from _metric("segments_bytes", "gauge", "what segments take on the disk", taken_bytes)
        yield from _metric("cpu_seconds_total", "counter", "processor time of recorder and finishing", cpu_s)
        yield from _metric("resident_bytes", "gauge", "memory of the recorder", _resident_bytes())


def _heading(name: str, kind: str, text: str) -> str:
    return f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} {kind}\n"


def _metric(name: str, kind: str, text: str, value: float, labels: str = "") -> Iterator[str]:
    yield _heading(name, kind, text)
    yield f"{_PREFIX}{name}{labels} {value}\n"


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
