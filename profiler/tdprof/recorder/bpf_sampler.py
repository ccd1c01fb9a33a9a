"""The BPF rung's kernel side: its programs and maps, and the drain that empties them."""

import contextlib
import ctypes
import mmap
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from tdprof.capture.spool import STACKS_FILE, SpoolWriter
from tdprof.recorder import bpf_map
from tdprof.recorder.bpf_loader import MAPS
from tdprof.recorder.loader_process import LoaderProcess
from tdprof.recorder.ring import BpfRing

KEY_BYTES, VALUE_BYTES = 48, 16  # struct sample_key, struct sample_value
# enum counter of bpf/sample.h, in order
COUNTERS = (
    "samples",
    "samples_map_full",
    "samples_outside_namespace",
    "user_stacks_unreadable",
    "kernel_stacks_unreadable",
    "stacks_truncated",
    "stacks_not_sent",
    "stacks_sent",
)
INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of the kernel's proc_ns.h
_MEMBARRIER = {"x86_64": 324, "aarch64": 283, "riscv64": 283}
_MEMBARRIER_CMD_GLOBAL = 1


class BpfUnavailableError(Exception):
    """BPF cannot be used here; the text says why, for the capture and the user."""


@dataclass(frozen=True, slots=True)
class TableSizes:
    """Capacities, from what one drain interval may bring."""

    rows: int
    ring_bytes: int

    @classmethod
    def for_rate(cls, samples_per_second: int) -> "TableSizes":
        """Room for two seconds of samples, no two alike, between 16 Ki rows and 256 Ki (56 MB of kernel memory)."""
        rows = 1 << 14
        while rows < 2 * samples_per_second and rows < 1 << 18:
            rows *= 2
        return cls(rows, ring_bytes=max(rows * 256, mmap.PAGESIZE))


class BpfLoad:
    """A load under way in another process; ``finish`` waits for it, so that the caller can prepare meanwhile."""

    def __init__(self, process: LoaderProcess, with_kernel: Sequence[bool], sizes: TableSizes) -> None:
        """Ask for the programs.

        Args:
            process: the child that loads them.
            with_kernel: for each event, whether its kernel call chain is taken.
            sizes: capacities of the maps.
        """
        self._sizes = sizes
        folder = files("tdprof") / "bpf"
        settings = {
            "ROWS": sizes.rows,
            "STACK_SLOTS": 1 << 16,
            "RING_PAGES": sizes.ring_bytes // mmap.PAGESIZE,
            "PAGE_SIZE": mmap.PAGESIZE,
            "USE_PIDNS": 0,
        }
        namespace = os.stat("/proc/self/ns/pid")
        if namespace.st_ino != INITIAL_PID_NAMESPACE:
            settings |= {"USE_PIDNS": 1, "PIDNS_DEV": namespace.st_dev, "PIDNS_INO": namespace.st_ino}
        self._process = process
        self._maximum = len(MAPS) + len(with_kernel)
        process.ask(
            {
                "source": str(folder / "sample.bpf.c"),
                "headers": str(folder / "stand-in"),
                "with_kernel": list(with_kernel),
                "settings": settings,
            }
        )

    def finish(self) -> "BpfSampler":
        """Wait for the programs.

        Raises:
            BpfUnavailableError: no bcc, or the kernel refuses the program.
        """
        answer, fds, lines = self._process.answer(self._maximum)
        if "error" not in answer:
            return BpfSampler(dict(zip(answer["maps"], fds, strict=False)), fds[len(answer["maps"]) :], self._sizes)
        if answer["stage"] == "import":
            raise BpfUnavailableError("bcc is not installed (apt-get install python3-bpfcc)")
        lines = lines or [answer["error"]]
        # clang's first line names the error; Python's last one does.
        detail = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        raise BpfUnavailableError(f"the BPF program did not {answer['stage']}: {detail}")


def wait_for_running_programs() -> None:
    """Return when every BPF program that was running is done.

    They run with preemption off, so an RCU grace period is enough; membarrier's global command is one.
    """
    libc = ctypes.CDLL(None)
    number = _MEMBARRIER[platform.machine()]
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(_MEMBARRIER_CMD_GLOBAL), ctypes.c_int(0), ctypes.c_int(0)) < 0:
        time.sleep(0.01)  # CPUs that run without ticks have no global membarrier; a program runs for microseconds


class BpfSampler:
    """Loaded programs and maps. Use as a context manager: leaving it closes every descriptor."""

    def __init__(self, maps: dict[str, int], programs: list[int], sizes: TableSizes) -> None:
        self.programs = programs
        self._maps = maps
        self._sizes = sizes
        self._counters = bpf_map.PerCpuCounters(maps["counters"], len(COUNTERS))
        self._reader = bpf_map.BatchReader(KEY_BYTES, VALUE_BYTES)
        self._use_b = 0
        self._samples_drained = 0
        self._closing = contextlib.ExitStack()
        self._stacks = self._closing.enter_context(BpfRing(maps["stacks"], sizes.ring_bytes))

    def counters(self) -> dict[str, int]:
        """What the programs counted so far, by the names in ``COUNTERS``."""
        return dict(zip(COUNTERS, self._counters.read(), strict=True))

    def is_filling(self) -> bool:
        """Whether a drain is due before its time: half of the rows or of the ring may be taken."""
        new = self._counters.read()[0] - self._samples_drained
        return new > self._sizes.rows // 2 or self._stacks.pending > self._sizes.ring_bytes // 2

    def drain(self, spool: SpoolWriter) -> int:
        """Swap the tables and append what the one at rest holds; returns the interval's end, CLOCK_MONOTONIC ns.

        A row that a late program adds to the table at rest is found there at the next swap but one.
        """
        self._samples_drained = self._counters.read()[0]
        resting = self._maps["rows_b" if self._use_b else "rows_a"]
        self._use_b ^= 1
        bpf_map.update_u32(self._maps["active"], 0, self._use_b)
        time_ns = time.monotonic_ns()
        produced = self._stacks.produced
        wait_for_running_programs()
        self._stacks.drain(spool.descriptor(STACKS_FILE), produced)
        for keys, values in self._reader.take(resting):
            spool.append_rows(time_ns, keys, values, len(keys) // KEY_BYTES)
        return time_ns

    def __enter__(self) -> "BpfSampler":
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()
        for fd in (*self._maps.values(), *self.programs):
            os.close(fd)
