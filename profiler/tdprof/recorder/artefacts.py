"""What must be saved when a recording ends, because it is gone or different later.

The vDSO, perf maps, jitdumps, and programs that no path leads to: those of containers, and deleted ones.
"""

import contextlib
import ctypes
import functools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tdprof.elf import read_build_id
from tdprof.recorder.foreign_files import LARGEST_COPY, contents, copy_file, open_below, open_mapped

VDSO_FILE = "vdso.so"
PERF_MAP_FOLDER = "perf-maps"
FILES_FOLDER = "files"
"""Programs and libraries, named by their build-id."""
_MOST_BYTES_OF_FILES = 2 << 30
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
        places = [(f"/proc/{pid}/root", f"tmp/perf-{_inner_pid(pid)}.map"), ("/tmp", f"perf-{pid}.map")]
        _save_first(places, pid, folder / PERF_MAP_FOLDER / f"perf-{pid}.map")


def save_jitdumps(folder: Path, mapped: Iterable[tuple[int, str]]) -> None:
    """Copy the ``jit-PID.dump`` files among (pid, mapped path): a process maps its dump to tell profilers of it."""
    for pid, path in set(mapped):
        if _JITDUMP.search(path):
            places = [(f"/proc/{pid}/root", path), os.path.split(path)]
            _save_first(places, pid, folder / PERF_MAP_FOLDER / f"jit-{pid}.dump")


def _save_first(places: Iterable[tuple[str, str]], pid: int, target: Path) -> None:
    """Copy the first file (folder, path below it) that is there and belongs to the process's user, to us or to root:
    anyone may write into /tmp."""
    for root, path in places:
        with contextlib.suppress(OSError), open_below(root, path) as fd:
            owner = os.fstat(fd).st_uid
            if owner in {os.getuid(), 0, _owner(pid, owner)}:
                copy_file(fd, target)
                return


def sees_other_files(pid: int) -> bool:
    """Whether a path means another file to this process: a container, a chroot. False once it has ended."""
    try:
        return not all(os.path.samefile(f"/proc/{pid}/{name}", f"/proc/self/{name}") for name in ("ns/mnt", "root"))
    except OSError:
        return False


class MappedProgram(NamedTuple):
    """An executable mapping of a process; ``path`` as the process sees it."""

    pid: int
    path: str
    build_id: str | None
    address: int
    length: int


def save_files(folder: Path, mapped: Iterable[MappedProgram]) -> list[str]:
    """Copy programs and libraries that running processes map, as far as their paths do not lead to them here.

    What cannot be read or written is left out: the recording counts for more.

    Returns:
        The paths of those that are too large, alone or after the others.
    """
    build_id_here = functools.cache(read_build_id)  # many processes map the same
    left, too_large = _MOST_BYTES_OF_FILES, set[str]()
    for program in mapped:
        if not program.build_id or build_id_here(program.path) == program.build_id:
            continue
        target = folder / FILES_FOLDER / program.build_id
        if target.exists():
            continue
        with contextlib.suppress(OSError), _open_program(program) as fd:
            size = os.fstat(fd).st_size
            if size > min(left, LARGEST_COPY):
                too_large.add(program.path)
            elif read_build_id(contents(fd)) == program.build_id:
                copy_file(fd, target)
                left -= size
    return sorted(too_large)


@contextlib.contextmanager
def _open_program(program: MappedProgram) -> Iterator[int]:
    with contextlib.ExitStack() as stack:
        try:
            fd = stack.enter_context(open_mapped(program.pid, program.address, program.length))
        except OSError:  # for the owner of a container the path must do
            fd = stack.enter_context(open_below(f"/proc/{program.pid}/root", program.path))
        yield fd


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
