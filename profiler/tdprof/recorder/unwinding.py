"""Keeps the BPF programs able to unwind: tables of what runs, and each process's mappings as they come to be needed.

The programs ask for a process's mappings when they meet one they do not know, and again when a stack leads to where
nothing is known to be mapped. So what is never sampled costs nothing, however many processes come and go.
"""

import os
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tdprof.model.stack_ends import StackEnd
from tdprof.recorder.bpf.sampler import BpfSampler
from tdprof.recorder.bpf.unwind_arrays import TABLE_BEGINNING_BYTES, Extent, UnwindArrays, covered
from tdprof.recorder.host import read_text
from tdprof.recorder.ring import BpfRing
from tdprof.unwind.tables import TableCache, TableWorker, read_identity

_PROC = Path("/proc")
_QUESTION = struct.Struct("<IIII")  # the ring's header, struct missing_mapping
# A process that goes on asking has nothing new to be found so often.
_ASK_AGAIN_S = 0.1
_NOT_FILES = ("/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]", "//")


class _FileKey(NamedTuple):
    """A file as /proc/PID/maps names it."""

    device: str
    inode: str


_VDSO = _FileKey("", "[vdso]")


class _Line(NamedTuple):
    """An executable line of /proc/PID/maps."""

    start: int
    end: int
    file_offset: int
    key: _FileKey
    path: str

    @property
    def is_file(self) -> bool:
        """Not memory that only looks like a file's."""
        return self.path.startswith("/") and not self.path.startswith(_NOT_FILES) and self.key.inode != "0"


class _Placed(NamedTuple):
    """A file's table in the arrays."""

    table: bytes  # its beginning, which says what it covers
    first_bucket: int


class Unwinding:
    """The recorder's part of unwinding.

    Args:
        arrays: what the programs read.
        questions: the ring in which they ask.
        questions_fd: its map, readable when they have asked.
        cache: where tables of files are kept.

    Attributes:
        fd: readable when the programs have asked.
        without_room: tables and processes for which the arrays had no room.
    """

    def __init__(self, arrays: UnwindArrays, questions: BpfRing, questions_fd: int, cache: TableCache) -> None:
        self.fd = questions_fd
        self.without_room = 0
        self._arrays = arrays
        self._questions = questions
        self._cache = cache
        self._files: dict[_FileKey, _Placed | StackEnd] = {}
        self._placed: dict[bytes, _Placed | StackEnd] = {}  # by the file's identity
        self._known: dict[int, list[Extent]] = {}
        self._unanswered: dict[int, float] = {}

    def prepare_files(self, paths: Iterable[Path]) -> None:
        """Place the tables of files that will be mapped soon."""
        self._place({_key_of(path): path for path in paths})

    def add_processes(self, pids: Iterable[int]) -> None:
        """Publish what processes have mapped now; those that end meanwhile are left out."""
        for pid in pids:
            self._refresh(pid)

    def answer(self) -> None:
        """Look at what the programs have asked for."""
        data = self._questions.take()
        pids = {pid for _, _, pid, _ in _QUESTION.iter_unpack(data)}
        for pid in pids:
            if not self._refresh(pid):
                self._unanswered[pid] = time.monotonic() + _ASK_AGAIN_S

    def tick(self) -> None:
        """From time to time: let those ask again for whom there was nothing new."""
        now = time.monotonic()
        for pid in [pid for pid, when in self._unanswered.items() if when <= now]:
            del self._unanswered[pid]
            if (_PROC / str(pid)).exists():
                self._arrays.answer(pid)
            else:
                self._forget(pid)

    def notes(self) -> Iterator[str]:
        """What the user should know in the end."""
        if self.without_room:
            yield (
                f"{self.without_room} unwind tables or lists of mappings had no room in the kernel: "
                "stacks that need them end as no-table"
            )

    def _forget(self, pid: int) -> None:
        self._known.pop(pid, None)
        self._arrays.release(pid)

    def _refresh(self, pid: int) -> bool:
        """Whether there was something new to publish."""
        extents = self._extents(pid)
        # The programs forget a process at exec; then even what is known is new to them.
        if not extents or (extents == self._known.get(pid) and self._arrays.has(pid)):
            return False
        if not self._arrays.publish(pid, extents):
            self.without_room += 1
            return False
        self._known[pid] = extents
        return True

    def _extents(self, pid: int) -> list[Extent]:
        lines = [line for line in _executable_lines(read_text(_PROC / str(pid) / "maps")) if line.path != "[vsyscall]"]
        self._place({line.key: self._file(pid, line) for line in lines if line.is_file and line.key not in self._files})
        return [self._extent(pid, line) for line in lines]

    def _extent(self, pid: int, line: _Line) -> Extent:
        placed: _Placed | StackEnd = StackEnd.JIT
        if line.path == "[vdso]":
            placed = self._vdso(pid, line)
        elif line.is_file:
            placed = self._files[line.key]
        if isinstance(placed, _Placed):
            if part := covered(placed.table, line.start, line.end, line.file_offset):
                start, end, bucket = part
                return Extent(start, end - start, placed.first_bucket + bucket, 0)
            placed = StackEnd.NO_UNWIND_INFO
        return Extent(line.start, line.end - line.start, 0, placed)

    def _file(self, pid: int, line: _Line) -> Path:
        """The very file that is mapped, also of another mount namespace, or deleted."""
        link = _PROC / str(pid) / "map_files" / f"{line.start:x}-{line.end:x}"
        # Only the privileged may follow that link.
        return link if os.access(link, os.R_OK) else Path(f"{_PROC}/{pid}/root{line.path}")

    def _vdso(self, pid: int, line: _Line) -> _Placed | StackEnd:
        """All processes have the same one."""
        if _VDSO not in self._files:
            with tempfile.TemporaryFile() as file:
                try:
                    with (_PROC / str(pid) / "mem").open("rb") as memory:
                        memory.seek(line.start)
                        file.write(memory.read(line.end - line.start))
                except (OSError, ValueError):
                    return StackEnd.NO_TABLE
                file.flush()
                self._place({_VDSO: Path(f"/proc/self/fd/{file.fileno()}")})
        return self._files[_VDSO]

    def _place(self, paths: Mapping["_FileKey", Path]) -> None:
        """Find out what there is for each file: its table from the cache, or built now."""
        to_build = []
        for key, path in paths.items():
            identity = read_identity(path)
            if identity is None:
                self._files[key] = StackEnd.NO_UNWIND_INFO
            elif identity in self._placed:
                self._files[key] = self._placed[identity]
            elif table := self._cache.load(identity):
                self._files[key] = self._placed[identity] = self._put(table)
            else:
                to_build.append((key, path, identity))
        if not to_build:
            return
        with TableWorker([path for _, path, _ in to_build], self._cache) as worker:
            for number, table in worker.results():
                key, _, identity = to_build[number]
                self._placed[identity] = self._put(table) if table else StackEnd.NO_UNWIND_INFO
        for key, _, identity in to_build:
            # A file on which the worker died has no table, and will have none.
            self._files[key] = self._placed.setdefault(identity, StackEnd.NO_UNWIND_INFO)

    def _put(self, table: bytes) -> _Placed | StackEnd:
        first = self._arrays.place(table)
        if first is None:
            self.without_room += 1
            return StackEnd.NO_TABLE
        return _Placed(table[:TABLE_BEGINNING_BYTES], first)


def start_unwinding(sampler: BpfSampler) -> Unwinding | None:
    """None where the programs do not unwind by tables."""
    if sampler.arrays is None or sampler.questions is None:
        return None
    return Unwinding(sampler.arrays, sampler.questions, sampler.questions_fd, TableCache())


def _executable_lines(maps: str) -> Iterator[_Line]:
    for text in maps.splitlines():
        fields = text.split(maxsplit=5)
        if len(fields) < 5 or "x" not in fields[1]:
            continue
        start, end = (int(number, 16) for number in fields[0].split("-"))
        path = fields[5] if len(fields) > 5 else ""
        yield _Line(start, end, int(fields[2], 16), _FileKey(fields[3], fields[4]), path)


def _key_of(path: Path) -> _FileKey:
    """As the kernel will name the file, unless its file system has other numbers there."""
    try:
        status = path.stat()
    except OSError:
        return _FileKey("", str(path))
    return _FileKey(f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino))
