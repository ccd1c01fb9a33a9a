"""What must be saved when a recording ends, because it is gone or different later.

The vDSO, perf maps, jitdumps, and programs that only processes in a container can see.
"""

import contextlib
import ctypes
import functools
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from tdprof.elf import read_build_id

VDSO_FILE = "vdso.so"
PERF_MAP_FOLDER = "perf-maps"
FILES_FOLDER = "files"
"""Files of containers, named by their build-id."""
_LARGEST_PROGRAM = 1 << 30  # bytes
_JITDUMP = re.compile(r"/jit-\d+\.dump$")


def save_vdso(folder: Path) -> None:
    """Write this process's vDSO, which is every process's, as an ELF file; nothing where there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            (folder / VDSO_FILE).write_bytes(ctypes.string_at(start, end - start))


def save_perf_maps(folder: Path, pids: Iterable[int]) -> None:
    """Copy ``/tmp/perf-PID.map`` of some processes, also as seen from inside their container."""
    for pid in pids:
        inner = Path(f"/proc/{pid}/root/tmp/perf-{_inner_pid(pid)}.map")
        _save_first([inner, Path(f"/tmp/perf-{pid}.map")], pid, folder / PERF_MAP_FOLDER / f"perf-{pid}.map")


def save_jitdumps(folder: Path, mapped: Iterable[tuple[int, str]]) -> None:
    """Copy the ``jit-PID.dump`` files among (pid, mapped path): a process maps its dump to tell profilers of it."""
    for pid, path in set(mapped):
        if _JITDUMP.search(path):
            seen_here = [Path(f"/proc/{pid}/root{path}"), Path(path)]
            _save_first(seen_here, pid, folder / PERF_MAP_FOLDER / f"jit-{pid}.dump")


def sees_other_files(pid: int) -> bool:
    """Whether a path means another file to this process: a container, a chroot. False once it has ended."""
    try:
        return not all(os.path.samefile(f"/proc/{pid}/{name}", f"/proc/self/{name}") for name in ("ns/mnt", "root"))
    except OSError:
        return False


def save_files(folder: Path, mapped: Iterable[tuple[int, str, str]]) -> None:
    """Copy the files of containers among (pid, path inside, build-id), as far as they are not seen here, too.

    What cannot be read or written is left out: the recording counts for more.
    """
    build_id_here = functools.cache(read_build_id)  # many processes map the same
    for pid, path, build_id in mapped:
        target = folder / FILES_FOLDER / build_id
        if not build_id or target.exists() or build_id_here(Path(path)) == build_id:
            continue
        with contextlib.suppress(OSError):
            _copy_program(Path(f"/proc/{pid}/root{path}"), build_id, target)


def _copy_program(source: Path, build_id: str, target: Path) -> None:
    """Copy a file that others control: by now it may be a device, a pipe, a link to what only we may read, or huge."""
    with _closing(os.open(source, os.O_PATH | os.O_CLOEXEC)) as fd:
        status, opened = os.fstat(fd), Path(f"/proc/self/fd/{fd}")
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_PROGRAM or read_build_id(opened) != build_id:
            return
        target.parent.mkdir(exist_ok=True)
        try:
            shutil.copyfile(opened, target)
        except OSError:
            target.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _save_first(places: Iterable[Path], pid: int, target: Path) -> None:
    """Copy the first file that is there and belongs to the process's user or to ours: anyone may write into /tmp."""
    for path in places:
        with contextlib.suppress(OSError):
            owner = path.lstat().st_uid
            if path.is_file() and not path.is_symlink() and owner in {os.getuid(), 0, _owner(pid, owner)}:
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target)
                return


def _inner_pid(pid: int) -> int:
    """The process's number inside its own pid namespace, by which it names its files."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return pid


def _owner(pid: int, default: int) -> int:
    """The process's user; once it is gone nobody can tell, and the file's own is as good."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return default
