"""What must be saved when a recording ends, because it is gone or different later: the vDSO and perf maps."""

import contextlib
import ctypes
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

VDSO_FILE = "vdso.so"
PERF_MAP_FOLDER = "perf-maps"


def save_vdso(folder: Path) -> None:
    """Write this process's vDSO, which is every process's, as an ELF file; nothing where there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            (folder / VDSO_FILE).write_bytes(ctypes.string_at(start, end - start))


def save_perf_maps(folder: Path, pids: Iterable[int]) -> None:
    """Copy ``/tmp/perf-PID.map`` of some processes, also as seen from inside their container.

    Only maps that belong to the process's user or to ours are taken: anyone may write into /tmp.
    """
    target = folder / PERF_MAP_FOLDER
    for pid in pids:
        for path in (Path(f"/proc/{pid}/root/tmp/perf-{pid}.map"), Path(f"/tmp/perf-{pid}.map")):
            with contextlib.suppress(OSError):
                owner = path.lstat().st_uid
                if path.is_file() and not path.is_symlink() and owner in {os.getuid(), 0, _owner(pid, owner)}:
                    target.mkdir(exist_ok=True)
                    shutil.copyfile(path, target / f"perf-{pid}.map")
                    break


def _owner(pid: int, default: int) -> int:
    """The process's user; once it is gone nobody can tell, and the file's own is as good."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return default
