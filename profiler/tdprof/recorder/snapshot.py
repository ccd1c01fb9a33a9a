"""Processes that were there before the recording: their names and executable mappings, from /proc."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from tdprof.capture.spool import INITIAL_FILE, SpoolWriter
from tdprof.elf import read_build_id
from tdprof.recorder.host import read_text

_PROC = Path("/proc")


class Snapshot:
    """Writes processes to the spool; reads each distinct file's build-id once."""

    def __init__(self) -> None:
        self._build_ids: dict[tuple[str, str], str] = {}

    def write(self, pids: Iterable[int], spool: SpoolWriter) -> None:
        """Append one line a process; those that end meanwhile, or may not be read, are left out."""
        fd = spool.descriptor(INITIAL_FILE)
        for pid in pids:
            maps = read_text(_PROC / str(pid) / "maps")
            threads = self._threads(pid)
            if threads:
                line = {"pid": pid, "threads": threads, "maps": self._executable(pid, maps)}
                os.write(fd, json.dumps(line).encode() + b"\n")

    def _threads(self, pid: int) -> dict[int, str]:
        try:
            tids = [int(entry.name) for entry in (_PROC / str(pid) / "task").iterdir()]
        except OSError:
            return {}
        return {tid: read_text(_PROC / str(pid) / "task" / str(tid) / "comm") for tid in tids}

    def _executable(self, pid: int, maps: str) -> list[tuple[int, int, int, str, str]]:
        """(address, length, file offset, path, build-id) of each executable mapping."""
        found = []
        for line in maps.splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) < 5 or "x" not in fields[1]:
                continue
            start, end = (int(number, 16) for number in fields[0].split("-"))
            path = fields[5] if len(fields) > 5 else "//anon"
            # maps pads addresses to eight digits, map_files does not.
            link = f"{start:x}-{end:x}"
            build_id = self._build_id(pid, link, path, fields[3], fields[4]) if path.startswith("/") else ""
            found.append((start, end - start, int(fields[2], 16), path, build_id))
        return found

    def _build_id(self, pid: int, link: str, path: str, device: str, inode: str) -> str:
        """Of the very file that is mapped, even if its path now names another or is outside our mount namespace."""
        if inode == "0":
            return ""
        if (device, inode) not in self._build_ids:
            process = _PROC / str(pid)
            build_id = read_build_id(process / "map_files" / link)
            # Only the privileged may follow that link; the path serves others while it still names the same file.
            by_path = Path(f"{process}/root{path}")
            if not build_id and _inode(by_path) == int(inode):
                build_id = read_build_id(by_path)
            self._build_ids[device, inode] = build_id
        return self._build_ids[device, inode]


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def running_pids() -> list[int]:
    """Every process there is, in this pid namespace."""
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
