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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tdprof.capture.spool import STACKS_FILE, SpoolWriter
from tdprof.linux.user_cache import user_cache
from tdprof.recorder.bpf import maps as bpf_maps
from tdprof.recorder.bpf.cache import BpfCache
from tdprof.recorder.bpf.object_file import BpfObject, LoadError, load_object
from tdprof.recorder.ring import BpfRing

if TYPE_CHECKING:
    from tdprof.recorder.bpf.compiler_process import CompilerProcess

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
    """A load under way: compiled by an earlier run, or being compiled in another process while the caller prepares."""

    def __init__(self, with_kernel: Sequence[bool], sizes: TableSizes) -> None:
        """Begin.

        Args:
            with_kernel: for each event, whether its kernel call chain is taken.
            sizes: capacities of the maps.
        """
        self._sizes = sizes
        self._programs = [f"sample_{event}" for event in range(len(with_kernel))]
        self._request = _request(with_kernel)
        self._cache = BpfCache(user_cache("bpf"))
        self._to_store: BpfObject | None = None
        self._compiler: CompilerProcess | None = None
        self._cached = self._cache.load(self._key)
        if self._cached is None:
            self._start_compiler()

    @property
    def _key(self) -> dict[str, object]:
        """All that the compiler's answer depends on."""
        headers = sorted(Path(self._request["headers"]).rglob("*.h"))
        include = sorted(Path(self._request["include"]).glob("*.h"))
        return {
            "text": self._request["text"],
            "headers": [path.read_text() for path in (*include, *headers)],
            "settings": self._request["settings"],
            "machine": platform.machine(),
            "kernel": platform.release(),
        }

    def _start_compiler(self) -> None:
        from tdprof.recorder.bpf.compiler_process import CompilerProcess  # what it needs is slow to load

        self._compiler = CompilerProcess()
        self._compiler.ask(self._request)

    def finish(self) -> "BpfSampler":
        """Wait for the programs.

        Raises:
            BpfUnavailableError: no bcc, or the kernel refuses the program.
        """
        if self._cached is not None:
            try:
                return self._sampler(self._cached)
            except LoadError:
                self._start_compiler()
        compiled = self._compiled()
        try:
            sampler = self._sampler(compiled)
        except LoadError as error:
            raise BpfUnavailableError(f"the BPF program did not load: {error}") from error
        self._to_store = compiled
        return sampler

    def _sampler(self, found: BpfObject) -> "BpfSampler":
        sizes = {"rows_a": self._sizes.rows, "rows_b": self._sizes.rows, "stacks": self._sizes.ring_bytes}
        maps, programs = load_object(found, sizes)
        return BpfSampler(maps, [programs[name] for name in self._programs], programs["sample"], self._sizes)

    def _compiled(self) -> BpfObject:
        assert self._compiler
        answer, lines = self._compiler.answer()
        if "error" not in answer:
            try:
                return BpfObject.from_json(answer)
            except ValueError as error:
                raise BpfUnavailableError(f"what bcc compiled cannot be loaded: {error}") from error
        if answer["stage"] == "import":
            raise BpfUnavailableError("bcc is not installed (apt-get install python3-bpfcc)")
        lines = lines or [answer["error"]]
        # clang's first line names the error; Python's last one does.
        detail = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        raise BpfUnavailableError(f"the BPF program did not compile: {detail}")

    def close(self) -> None:
        """Reap the compiler and keep what it made. Once the events run: it takes a hundredth of a second to end."""
        if self._to_store is not None:
            self._cache.store(self._key, self._to_store)
            self._to_store = None
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None


def _request(with_kernel: Sequence[bool]) -> dict[str, Any]:
    """What the compiler is asked; see compiler.py for the keys."""
    folder = files("tdprof") / "bpf"
    lines = [f"SAMPLE_PROGRAM({event}, {int(kernel)})\n" for event, kernel in enumerate(with_kernel)]
    # The load decides how large tables are, so that one object serves them all.
    settings = {"ROWS": 1, "STACK_SLOTS": 1 << 16, "RING_PAGES": 1, "PAGE_SIZE": mmap.PAGESIZE, "USE_PIDNS": 0}
    namespace = os.stat("/proc/self/ns/pid")
    if namespace.st_ino != INITIAL_PID_NAMESPACE:
        settings |= {"USE_PIDNS": 1, "PIDNS_DEV": namespace.st_dev, "PIDNS_INO": namespace.st_ino}
    return {
        "text": (folder / "sample.bpf.c").read_text() + "".join(lines),
        "include": str(folder),
        "headers": str(folder / "stand-in"),
        "settings": settings,
    }


def wait_for_running_programs() -> None:
    """Return when every BPF program that was running is done.

    They run with preemption off, so an RCU grace period is enough; membarrier's global command is one.
    """
    libc = ctypes.CDLL(None)
    number = _MEMBARRIER[platform.machine()]
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(_MEMBARRIER_CMD_GLOBAL), ctypes.c_int(0), ctypes.c_int(0)) < 0:
        time.sleep(0.01)  # CPUs that run without ticks have no global membarrier; a program runs for microseconds


class BpfSampler:
    """Loaded programs and maps. Use as a context manager: leaving it closes every descriptor.

    Attributes:
        programs: one for each event.
    """

    def __init__(self, maps: dict[str, int], programs: list[int], common: int, sizes: TableSizes) -> None:
        self.programs = programs
        self._maps = maps
        self._common = common
        self._sizes = sizes
        self._counters = bpf_maps.PerCpuCounters(maps["counters"], len(COUNTERS))
        self._reader = bpf_maps.BatchReader(KEY_BYTES, VALUE_BYTES)
        self._use_b = 0
        # The map must stay open: the kernel empties an array of programs when nobody holds it any more.
        bpf_maps.update_u32(maps["common"], 0, common)
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
        bpf_maps.update_u32(self._maps["active"], 0, self._use_b)
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
        for fd in (*self._maps.values(), *self.programs, self._common):
            os.close(fd)
