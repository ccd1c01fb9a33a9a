"""Processes that were there before the recording: their names and executable mappings, from /proc."""

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tdprof.capture.spool import INITIAL_FILE, SpoolWriter
from tdprof.linux.elf import read_build_id
from tdprof.recorder.host import read_text
from tdprof.recorder.java_attach import JVM_LIBRARY

_PROC = Path("/proc")
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    threads: dict[int, str]
    executable: list[list[str]]  # fields of /proc/PID/maps


class Snapshot:
    """Reads processes; and each distinct file's build-id once. ``found_java``: told of JVMs."""

    def __init__(self, found_java: Callable[[int], None] | None = None) -> None:
        self._found_java = found_java
        self._build_ids: dict[tuple[str, str], str] = {}

    def read(self, pid: int) -> _Process | None:
        """A process without its build-ids, which take far longer; None of one that has ended, or may not be read."""
        maps = read_text(_PROC / str(pid) / "maps")
        if self._found_java and JVM_LIBRARY in maps:
            self._found_java(pid)
        lines = (line.split(maxsplit=5) for line in maps.splitlines())
        executable = [fields for fields in lines if len(fields) >= 5 and "x" in fields[1]]
        threads = self._threads(pid)
        return _Process(pid, threads, executable) if threads else None

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
        for fields in process.executable:
            start, end = (int(number, 16) for number in fields[0].split("-"))
            path = fields[5] if len(fields) > 5 else "//anon"
            # maps pads addresses to eight digits, map_files does not.
            link = f"{start:x}-{end:x}"
            build_id = self._build_id(process.pid, link, path, fields[3], fields[4]) if path.startswith("/") else ""
            found.append((start, end - start, int(fields[2], 16), path, build_id))
        return found

    def _build_id(self, pid: int, link: str, path: str, device: str, inode: str) -> str:
        """Of the very file that is mapped, even if its path now names another or is outside our mount namespace."""
        if inode == "0":
            return ""
        known = self._build_ids.get((device, inode))
        if known is not None:
            return known
        process = _PROC / str(pid)
        build_id = read_build_id(process / "map_files" / link)
        # Only the privileged may follow that link; the path serves others while it still names the same file.
        by_path = Path(f"{process}/root{path}")
        if not build_id and _inode(by_path) == int(inode):
            build_id = read_build_id(by_path)
        if build_id or process.exists():  # else another process may tell
            self._build_ids[device, inode] = build_id
        return build_id


class SnapshotThread:
    """Takes the snapshot beside the recording: what is mapped may be made to keep us busy, or lie in a file system that
    does not answer. Who may end meanwhile comes first: the newest, and of all of them mappings before build-ids.

    Args:
        pids: the processes.
        spool: what is found is appended to it.
        found_java: as of `Snapshot`.
    """

    def __init__(
        self, pids: Sequence[int], spool: SpoolWriter, found_java: Callable[[int], None] | None = None
    ) -> None:
        self._waiting = sorted(pids)
        self._read: list[_Process] = []
        self._snapshot = Snapshot(found_java)
        self._failure: OSError | None = None
        self._fd = os.dup(spool.descriptor(INITIAL_FILE))
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether all is written, or no longer waited for."""
        return not self._thread.is_alive() or time.monotonic() - self._began_s > _PATIENCE_S

    def _run(self) -> None:
        try:
            while self._waiting:
                process = self._snapshot.read(self._waiting.pop())
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
        if not missing:
            return []
        return [f"{missing} processes have no names: what they map could not be read in {_PATIENCE_S:g} seconds"]


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def running_pids() -> list[int]:
    """Every process there is, in this pid namespace."""
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
