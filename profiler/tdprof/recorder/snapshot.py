"""Processes that were there before the recording: their names and executable mappings, from /proc."""

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tdprof.capture.spool import INITIAL_FILE, SpoolWriter
from tdprof.linux.elf import read_build_id
from tdprof.recorder.executable_maps import memory_holder
from tdprof.recorder.host import read_text
from tdprof.recorder.java_mappings import JVM_LIBRARY
from tdprof.recorder.patience import Patience
from tdprof.text import plural
from tdprof.values import dataclass

_PROC = Path("/proc")
_PATIENCE_S = 10.0
# proc_pid_maps(5): address, permissions; then offset, device, inode and path.
_EXECUTABLE = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ..x. .+$", re.MULTILINE)

Hold = Callable[[int, int, int, str], None]


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    threads: dict[int, str]
    executable: list[str]  # lines of /proc/PID/maps


class Snapshot:
    """Reads processes; and each distinct file's build-id once.

    Args:
        found_java: told of JVMs.
        hold: told who mapped what where (pid, address, length, build-id) if its path leads elsewhere.
    """

    def __init__(self, found_java: Callable[[int], None] | None = None, hold: Hold | None = None) -> None:
        self._found_java = found_java
        self._hold = hold
        self._build_ids: dict[tuple[str, str], str] = {}
        self._patience = Patience()

    def read(self, pid: int) -> _Process | None:
        """A process without its build-ids, which take far longer; None of one that has ended, or may not be read."""
        maps = ""
        with contextlib.suppress(TimeoutError):
            maps = self._patience.ask(pid, lambda: read_text(_PROC / str(memory_holder(pid)) / "maps"))
        if self._found_java and JVM_LIBRARY in maps:
            self._found_java(pid)
        threads = self._threads(pid)
        # Lines as they are: of all processes together their fields would be megabytes of small objects.
        return _Process(pid, threads, _EXECUTABLE.findall(maps)) if threads else None

    def build_ids(self) -> frozenset[str]:
        """Of all files that were read."""
        return frozenset(self._build_ids.values())

    def silent(self) -> int:
        """How many processes do not answer."""
        return len(self._patience.late)

    def write(self, process: _Process, fd: int) -> None:
        """Append a process's line to a file."""
        line = {"pid": process.pid, "threads": process.threads, "maps": self._executable(process)}
        os.write(fd, json.dumps(line).encode() + b"\n")

    def _threads(self, pid: int) -> dict[int, str]:
        try:
            tids = [int(entry.name) for entry in (_PROC / str(pid) / "task").iterdir()]
        except OSError:
            return {}
        return {tid: read_text(_PROC / str(pid) / "task" / str(tid) / "comm") for tid in tids}

    def _executable(self, process: _Process) -> list[tuple[int, int, int, str, str]]:
        """(address, length, file offset, path, build-id) of each executable mapping."""
        found = []
        for fields in (line.split(maxsplit=5) for line in process.executable):
            start, end = (int(number, 16) for number in fields[0].split("-"))
            path = fields[5] if len(fields) > 5 else "//anon"
            build_id = self._build_id(process.pid, start, end, path, fields[3], fields[4]) if path[0] == "/" else ""
            found.append((start, end - start, int(fields[2], 16), path, build_id))
        return found

    def _build_id(self, pid: int, start: int, end: int, path: str, device: str, inode: str) -> str:
        """Of the very file that is mapped, even if its path now names another or is outside our mount namespace."""
        if inode == "0":
            return ""
        known = self._build_ids.get((device, inode))
        if known is not None:
            return known
        try:
            build_id, is_elsewhere = self._patience.ask(pid, lambda: _read_build_id(pid, start, end, path, inode))
        except TimeoutError:
            return ""
        if is_elsewhere and self._hold:
            self._hold(pid, start, end - start, build_id)
        if build_id or (_PROC / str(pid)).exists():  # else another process may tell
            self._build_ids[device, inode] = build_id
        return build_id


class SnapshotThread:
    """Takes the snapshot beside the recording: what is mapped may be made to keep us busy, or lie in a file system that
    does not answer. Who may end meanwhile comes first: the newest, and of all of them mappings before build-ids.

    Args:
        pids: the processes.
        spool: what is found is appended to it.
        found_java, hold: as of `Snapshot`.
    """

    def __init__(
        self,
        pids: Sequence[int],
        spool: SpoolWriter,
        found_java: Callable[[int], None] | None = None,
        hold: Hold | None = None,
    ) -> None:
        self._waiting = sorted(pids)
        self._read: list[_Process] = []
        self._snapshot = Snapshot(found_java, hold)
        self._failure: OSError | None = None
        self._fd = os.dup(spool.descriptor(INITIAL_FILE))
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether all is written, or no longer waited for."""
        return not self._thread.is_alive() or time.monotonic() - self._began_s > _PATIENCE_S

    def mapped(self) -> frozenset[str] | None:
        """The build-ids of what was mapped; None: not all is known."""
        is_whole = not self._thread.is_alive() and not self._waiting and not self._read and not self._failure
        return self._snapshot.build_ids() if is_whole and not self._snapshot.silent() else None

    def _run(self) -> None:
        try:
            while self._waiting:
                process = self._snapshot.read(self._waiting[-1])  # given up meanwhile, it is one that is left out
                self._waiting.pop()
                self._read += [process] if process else []
            self._read.reverse()
            while self._read:
                self._snapshot.write(self._read[-1], self._fd)
                self._read.pop()
        except OSError as error:
            self._failure = error
        except IndexError:  # given up meanwhile
            pass

    def finish(self, patience_s: float | None = None) -> list[str]:
        """Wait for the end, but not for long.

        Returns:
            What to say of processes that are left out.

        Raises:
            OSError: the spool could not be written.
        """
        self._thread.join(_PATIENCE_S if patience_s is None else patience_s)
        missing = len(self._waiting) + len(self._read)
        self._waiting.clear()
        self._read.clear()
        if self._failure:
            raise self._failure
        if not self._thread.is_alive():
            os.close(self._fd)
        notes = []
        if missing:
            notes.append(
                f"{missing} processes have no names: what they map could not be read in {_PATIENCE_S:g} seconds"
            )
        elif silent := self._snapshot.silent():
            notes.append(
                f"what {plural(silent, 'process', 'es')} mapped could not be read in time: names may be missing"
            )
        return notes


def _read_build_id(pid: int, start: int, end: int, path: str, inode: str) -> tuple[str, bool]:
    """The build-id, and whether the path leads elsewhere here than to what has it."""
    process = _PROC / str(memory_holder(pid))
    # maps pads addresses to eight digits, map_files does not.
    build_id = read_build_id(process / "map_files" / f"{start:x}-{end:x}")
    # Only the privileged may follow that link; the path serves others while it still names the same file.
    by_path = Path(f"{process}/root{path}")
    if not build_id and _inode(by_path) == int(inode):
        build_id = read_build_id(by_path)
    return build_id, bool(build_id) and _inode(Path(path)) != int(inode)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def running_pids() -> list[int]:
    """Every process there is, in this pid namespace."""
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
