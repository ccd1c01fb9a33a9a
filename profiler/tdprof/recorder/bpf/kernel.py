"""What the running kernel can do with BPF programs, and when it is done with them."""

import contextlib
import ctypes
import os
import time

from tdprof.recorder.bpf.compiler import INSTRUCTION
from tdprof.recorder.bpf.object_file import BPF_F_NO_PREALLOC, LoadError, MapSpec, create_map, load_program

_BPF_MAP_TYPE_HASH, _BPF_MAP_TYPE_ARRAY = 1, 2
_LARGE_MAP_BYTES = 32 << 20  # about what the programs' maps take together
_BPF_FUNC_GET_CURRENT_TASK_BTF, _BPF_FUNC_TASK_PT_REGS = 158, 175
_MEMBARRIER = {"x86_64": 324, "aarch64": 283, "riscv64": 283}
_MEMBARRIER_CMD_GLOBAL = 1


def has_task_registers() -> bool:
    """Whether the kernel tells a program the user registers of a thread that runs kernel code."""
    return _takes(
        (0x85, 0, 0, _BPF_FUNC_GET_CURRENT_TASK_BTF),  # call
        (0xBF, 0x01, 0, 0),  # r1 = r0
        (0x85, 0, 0, _BPF_FUNC_TASK_PT_REGS),
    )


def has_growing_hashes() -> bool:
    """Whether programs that run in interrupts may use hash maps that take memory as they fill (Linux 6.1)."""
    try:
        fd = create_map(MapSpec("probe", _BPF_MAP_TYPE_HASH, 8, 8, 1, BPF_F_NO_PREALLOC), 1)
    except OSError:
        return False
    try:
        return _takes((0x18, 0x11, 0, fd), (0, 0, 0, 0))  # r1 = the map
    finally:
        os.close(fd)


def is_map_memory_short() -> bool:
    """Whether maps count as locked memory (until Linux 5.11), and more than this process may lock is refused."""
    sizes = []
    for entries in (1, _LARGE_MAP_BYTES // 8):
        with contextlib.suppress(OSError):
            os.close(create_map(MapSpec("probe", _BPF_MAP_TYPE_ARRAY, 4, 8, entries, 0), entries))
            sizes.append(entries)
    return sizes == [1]


def _takes(*instructions: tuple[int, int, int, int]) -> bool:
    """Whether the kernel loads a sampling program of these."""
    end = (0xB7, 0, 0, 0), (0x95, 0, 0, 0)  # r0 = 0; exit
    try:
        os.close(load_program("probe", b"".join(INSTRUCTION.pack(*each) for each in (*instructions, *end))))
    except LoadError:
        return False
    return True


def wait_for_running_programs() -> None:
    """Return when every BPF program that was running is done.

    They run with preemption off, so an RCU grace period is enough; membarrier's global command is one.
    """
    libc = ctypes.CDLL(None)
    number = _MEMBARRIER[os.uname().machine]
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(_MEMBARRIER_CMD_GLOBAL), ctypes.c_int(0), ctypes.c_int(0)) < 0:
        time.sleep(0.01)  # CPUs that run without ticks have no global membarrier; a program runs for microseconds
