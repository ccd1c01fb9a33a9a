"""Files that are mapped now: what is reached is what was meant."""

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders.waiting import wait_until
from tdprof.recorder.executable_maps import memory_holder, reach, read_executable_lines

_MAP_FIXED = 0x10
_BYTES = 4096


def _map(file: Path, at: int = 0) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    flags = mmap.MAP_PRIVATE | (_MAP_FIXED if at else 0)
    with file.open("rb") as opened:
        address = libc.mmap(at, _BYTES, mmap.PROT_READ | mmap.PROT_EXEC, flags, opened.fileno(), 0)
    assert address not in (None, ctypes.c_void_p(-1).value)
    return int(address)


ENDS_FIRST_THREAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=[600]).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_has_its_memory() -> None:
    """C programs do so, and go on in others; /proc/PID/maps is empty then."""
    with subprocess.Popen([sys.executable, "-c", ENDS_FIRST_THREAD]) as process:
        try:
            wait_until(lambda: not Path(f"/proc/{process.pid}/maps").read_bytes(), process)
            assert memory_holder(process.pid) != process.pid
            lines = read_executable_lines(process.pid)
            program = next(line for line in lines if Path(line.path) == Path(sys.executable).resolve())
            fd = reach(process.pid, program)
            assert os.path.samestat(os.fstat(fd), Path(sys.executable).stat())
            os.close(fd)
        finally:
            process.kill()
    assert memory_holder(os.getpid()) == os.getpid()
    assert memory_holder(process.pid) == process.pid  # of which nothing is left


def test_a_file_that_another_was_mapped_over_is_not_reached(tmp_path: Path) -> None:
    """Else the other's table would be taken for its own, and all that it calls would have wrong callers."""
    first, second = tmp_path / "first", tmp_path / "second"
    for file in (first, second):
        file.write_bytes(bytes(_BYTES))
    address = _map(first)
    try:
        line = next(line for line in read_executable_lines(os.getpid()) if line.start == address)
        fd = reach(os.getpid(), line)
        try:
            assert os.path.samestat(os.fstat(fd), first.stat())
        finally:
            os.close(fd)
        _map(second, address)
        with pytest.raises(FileNotFoundError):
            reach(os.getpid(), line)
    finally:
        ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(_BYTES))
