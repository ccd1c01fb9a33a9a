"""The code that processes have mapped, as /proc/PID/maps tells it, and the very files that it is of."""

import contextlib
import errno
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tdprof.recorder.host import read_text

_PROC = Path("/proc")
_EXECUTABLE_LINE = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f:]+) ([0-9]+)[ \t]*(.*)$", re.MULTILINE
)
_NAMED_MEMORY = "/memfd:"
_NOT_FILES = ("/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]", "//")


class FileKey(NamedTuple):
    """A file as /proc/PID/maps names it."""

    device: str
    inode: str


# Most processes have mapped the same few files: one object of each.
_file_key = functools.lru_cache(1 << 10)(FileKey)
VDSO = FileKey("", "[vdso]")


class ExecutableLine(NamedTuple):
    """An executable line of /proc/PID/maps."""

    start: int
    end: int
    file_offset: int
    key: FileKey
    path: str
    is_file: bool  # not memory that only looks like a file's

    @property
    def may_be_memory(self) -> bool:
        """Whether code made at run time may lie there as well as a file."""
        return self.path.startswith(_NAMED_MEMORY)


def memory_holder(pid: int) -> int:
    """The number below which /proc tells of a process's memory: a first thread that has ended has none, others may."""
    if not _has_memory(pid):
        with contextlib.suppress(OSError):
            threads = (int(entry.name) for entry in (_PROC / str(pid) / "task").iterdir())
            return next(filter(_has_memory, threads), pid)
    return pid


def _has_memory(tid: int) -> bool:
    return read_text(_PROC / str(tid) / "statm").partition(" ")[0] not in ("", "0")


def read_executable_lines(pid: int) -> list[ExecutableLine]:
    """The code that a process has mapped, but for what the kernel emulates."""
    maps = read_text(_PROC / str(pid) / "maps") or read_text(_PROC / str(memory_holder(pid)) / "maps")
    return [line for line in executable_lines(maps) if line.path != "[vsyscall]"]


def executable_lines(maps: str) -> Iterator[ExecutableLine]:
    """The executable lines of such a file."""
    for start, end, offset, device, inode, path in _EXECUTABLE_LINE.findall(maps):
        key = VDSO if path == "[vdso]" else _file_key(device, inode)
        is_file = path.startswith("/") and not path.startswith(_NOT_FILES) and inode != "0"
        yield ExecutableLine(int(start, 16), int(end, 16), int(offset, 16), key, path, is_file)


def reach(pid: int, line: ExecutableLine) -> int:
    """An ``O_PATH`` descriptor of the very file that is mapped, also of another mount namespace, or deleted.

    Raises:
        OSError: it cannot be reached, or another is mapped there by now.
    """
    fd = _open_mapped(memory_holder(pid), line)
    # Some file systems tell other numbers here than in that list.
    if str(os.fstat(fd).st_ino) == line.key.inode or line in read_executable_lines(pid):
        return fd
    os.close(fd)
    raise FileNotFoundError(errno.ENOENT, "another file is mapped there now", line.path)


def _open_mapped(pid: int, line: ExecutableLine) -> int:
    flags = os.O_PATH | os.O_CLOEXEC
    try:  # only the privileged may follow that link
        return os.open(f"{_PROC}/{pid}/map_files/{line.start:x}-{line.end:x}", flags)
    except OSError:
        if line.may_be_memory and str(Path(f"{_PROC}/{pid}/exe").readlink()).startswith(_NAMED_MEMORY):
            return reach_program(pid, line.key.inode)
        return os.open(f"{_PROC}/{pid}/root{line.path}", flags)


def reach_program(pid: int, inode: str) -> int:
    """An ``O_PATH`` descriptor of the program that a process executes: its user may follow that link, too.

    Raises:
        OSError: it has ended; or the file with that number is not its program, and only root may reach it.
    """
    fd = os.open(f"{_PROC}/{pid}/exe", os.O_PATH | os.O_CLOEXEC)
    if str(os.fstat(fd).st_ino) == inode:
        return fd
    os.close(fd)
    raise PermissionError(errno.EPERM, "only root may know what is mapped there")


def key_of(path: Path) -> FileKey:
    """As the kernel will name the file, unless its file system has other numbers there."""
    try:
        status = path.stat()
    except OSError:
        return FileKey("", str(path))
    return FileKey(f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino))
