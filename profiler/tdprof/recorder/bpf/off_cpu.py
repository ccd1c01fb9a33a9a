"""Times each thread, on a CPU and off it, and samples its time off a CPU. Programs: bpf/sample.bpf.c, bpf/off_cpu.h.

The stack of a wait is taken when it is over, in the thread itself: only then is it known how long it was. The kernel
has a tracepoint there since Linux 6.16; until then a probe of the function that every switch returns to must do.
"""

import contextlib
import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tdprof.capture.spool import ALIVE_FILE, ENDED_FILE, WAKINGS_FILE, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.linux.btf import read_kernel_types
from tdprof.recorder import perf_event as pe
from tdprof.recorder.bpf import maps as bpf_maps
from tdprof.recorder.bpf.kernel import wait_for_running_programs
from tdprof.recorder.bpf.object_file import (
    BPF_PROG_TYPE_KPROBE,
    BPF_PROG_TYPE_RAW_TRACEPOINT,
    BpfObject,
    LoadError,
    attach_tracepoint,
    close_all,
    create_maps,
    load_one,
)
from tdprof.recorder.bpf.settings import SampledAt, Setting
from tdprof.recorder.bpf.step_programs import STEPS, StepPrograms
from tdprof.recorder.host import KALLSYMS, read_text
from tdprof.recorder.ring import BpfRing, write_all

THREAD_TIMES = struct.Struct("<7Q10I16s")  # struct thread_times
_TID = 8  # among its numbers
# The programs, and where the kernel runs them; `end_wait` where it can.
ACCOUNTANTS = {"switch_threads": "sched_switch", "wake_thread": "sched_wakeup", "start_thread": "sched_wakeup_new"}
PROGRAMS = (*ACCOUNTANTS, "end_wait", "take_waker")
MOST_TIMED = 1 << 16  # threads at a time, in 13 MB
RING_BYTES = 1 << 20  # of threads that have ended, and of sleeps with who ended them
# Per-CPU places that the same steps of other samples use: some of those interrupt these.
_OWN_MAPS = {"steps": len(STEPS), "walks": 1, "python_walks": 1, "python_codes": 1}
_AFTER_SWITCH, _SWITCH_FUNCTION = "sched_exit_tp", "finish_task_switch"
_WAKING, _WAKE_FUNCTION = "sched_waking", "try_to_wake_up"
_KPROBE_TYPE = Path("/sys/bus/event_source/devices/kprobe/type")
# enum thread_state, of what /proc says; a thread that was never seen to leave its CPU has not waited for one.
_STATES, _INTERRUPTIBLE = {"R": 0, "D": 3}, 2
# Schedulers are of this size at most; what lies in between is theirs.
_MOST_SCHEDULER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What of the kernel's scheduler a recording has to do with.

    Attributes:
        address, size: of the functions that each wait's call chain ends in; zeros where the kernel hides them.
        has_tracepoint: whether there is one after every switch.
        switch_functions: the names that the compiler left to what every switch returns to.
        wake_address, wake_size: of the function that wakes a thread, as the other two.
    """

    address: int
    size: int
    has_tracepoint: bool
    switch_functions: tuple[str, ...]
    wake_address: int = 0
    wake_size: int = 0


def read_scheduler(kallsyms: Path = KALLSYMS) -> Scheduler:
    """By the kernel's list of its symbols."""
    borders = []
    found: dict[str, int] = {}
    functions = []
    with contextlib.suppress(OSError), kallsyms.open(errors="replace") as file:
        for line in file:
            # "address type name [module]"
            if line[17] not in "tT" or line.endswith("]\n"):
                continue
            borders.append(int(line[:16], 16))
            name = line[19:].rstrip()
            if name.endswith(".cold"):  # what the compiler put elsewhere, of no call chain
                continue
            plain = name.partition(".")[0]  # finish_task_switch.isra.0
            if plain in ("__schedule", "schedule", _WAKE_FUNCTION, f"__traceiter_{_AFTER_SWITCH}"):
                found.setdefault(plain, borders[-1])
            elif plain == _SWITCH_FUNCTION:
                functions.append(name)
    begin = found.get("__schedule", 0)
    last = found.get("schedule", begin)
    if not begin <= last < begin + _MOST_SCHEDULER_BYTES:
        last = begin
    wake = found.get(_WAKE_FUNCTION, 0)
    return Scheduler(
        begin,
        _next_border(borders, last) - begin if begin else 0,
        f"__traceiter_{_AFTER_SWITCH}" in found,
        tuple(functions),
        wake,
        _next_border(borders, wake) - wake if wake else 0,
    )


def _next_border(borders: Sequence[int], address: int) -> int:
    return min((border for border in borders if border > address), default=address)


@dataclass(frozen=True, slots=True)
class OffCpuPlan:
    """How time off a CPU is to be sampled on this kernel.

    Attributes:
        settings: what the programs are told.
        scheduler: this kernel's.
        has_wakers: whether samples of sleep say who ended it.
    """

    settings: dict[Setting, int]
    scheduler: Scheduler
    has_wakers: bool = False

    @classmethod
    def make(cls, event: int, period_ns: int, *, has_wakers: bool = False) -> "OffCpuPlan":
        """As the event of this number, with a sample for each period of a thread.

        Raises:
            TdprofError: the kernel does not tell where its structures have the state of a thread.
        """
        scheduler = read_scheduler()
        offsets = read_kernel_types(["task_struct"], []).offsets
        state = offsets.get(("task_struct", "__state"), offsets.get(("task_struct", "state")))  # before Linux 5.14
        if state is None or ("task_struct", "pid") not in offsets:
            raise TdprofError("the kernel does not tell where it keeps the states of threads")
        settings = {
            Setting.SAMPLED_AT: SampledAt.OVERFLOW,
            Setting.OFF_CPU_PERIOD: period_ns,
            Setting.OFF_CPU_EVENT: event,
            Setting.TASK_STATE: state,
            Setting.TASK_PID: offsets["task_struct", "pid"],
            Setting.SCHEDULE: scheduler.address,
            Setting.SCHEDULE_BYTES: scheduler.size,
            Setting.WAKERS: int(has_wakers),
        }
        return cls(settings, scheduler, has_wakers)

    @property
    def at_switch(self) -> dict[Setting, int]:
        """What programs are told that run when a thread has come back to a CPU."""
        return self.settings | {Setting.SAMPLED_AT: SampledAt.SWITCH}

    @property
    def at_waking(self) -> dict[Setting, int]:
        """The same of those that run when a thread is woken: their call chains begin in another function."""
        return self.settings | {
            Setting.SAMPLED_AT: SampledAt.WAKING,
            Setting.SCHEDULE: self.scheduler.wake_address,
            Setting.SCHEDULE_BYTES: self.scheduler.wake_size,
        }

    def maps(self) -> dict[str, int]:
        """Sizes of the maps that are used by nothing else."""
        of_wakers = {"last_wakers": MOST_TIMED, "wakings": RING_BYTES} if self.has_wakers else {}
        return {"times": MOST_TIMED, "ended": RING_BYTES} | of_wakers


class OffCpu:
    """The programs, loaded and attached; they do nothing until `begin`. Close it to detach them.

    Args:
        plain: instructions for tracepoints.
        at_switch: the same for what runs when a thread has come back to a CPU.
        at_waking: the same for what runs when a thread is woken; None: nobody asks who wakes threads.
        maps: descriptors by name, shared with other samples.
        scheduler: this kernel's.

    Attributes:
        steps: what its samples go through, and those that take who wakes threads; without a walk.

    Raises:
        LoadError, OSError: the kernel refuses a part; nothing stays open.
    """

    def __init__(
        self,
        plain: BpfObject,
        at_switch: BpfObject,
        at_waking: BpfObject | None,
        maps: Mapping[str, int],
        scheduler: Scheduler,
    ) -> None:
        self._maps = maps
        self._begin_ns = 0
        kind = BPF_PROG_TYPE_RAW_TRACEPOINT if scheduler.has_tracepoint else BPF_PROG_TYPE_KPROBE
        with contextlib.ExitStack() as on_failure:
            # By file of the spool.
            self._rings = {ENDED_FILE: on_failure.enter_context(BpfRing(maps["ended"], RING_BYTES))}
            after_switch = _load_steps(at_switch, maps, kind, on_failure)
            self.steps = [after_switch]
            if at_waking:
                self._rings[WAKINGS_FILE] = on_failure.enter_context(BpfRing(maps["wakings"], RING_BYTES))
                self.steps.append(_load_steps(at_waking, maps, BPF_PROG_TYPE_RAW_TRACEPOINT, on_failure))
            self._attached = on_failure.enter_context(contextlib.ExitStack())
            first = self._attached_program(after_switch.load(maps, "end_wait"))
            attach = attach_tracepoint if scheduler.has_tracepoint else _attach_probe
            names = [_AFTER_SWITCH] if scheduler.has_tracepoint else scheduler.switch_functions
            self._attached.callback(os.close, _attach_to_any(attach, names, first))
            for steps in self.steps[1:]:
                taker = self._attached_program(steps.load(maps, "take_waker"))
                self._attached.callback(os.close, attach_tracepoint(_WAKING, taker))
            for name, tracepoint in ACCOUNTANTS.items():
                program = self._attached_program(load_one(plain, maps, name, BPF_PROG_TYPE_RAW_TRACEPOINT))
                self._attached.callback(os.close, attach_tracepoint(tracepoint, program))
            self._closing = on_failure.pop_all()

    def _attached_program(self, program: int) -> int:
        self._attached.callback(os.close, program)
        return program

    def begin(self) -> None:
        """Time threads from now on."""
        self._begin_ns = time.monotonic_ns()
        self._since(self._begin_ns)

    def _since(self, time_ns: int) -> None:
        bpf_maps.map_element(
            bpf_maps.BPF_MAP_UPDATE_ELEM, self._maps["times_since"], ctypes.c_uint32(0), ctypes.c_uint64(time_ns)
        )

    def is_filling(self) -> bool:
        """Whether half of a ring is taken: of threads that have ended, or of who wakes threads."""
        return any(ring.pending > ring.data_bytes // 2 for ring in self._rings.values())

    @property
    def produced(self) -> dict[str, int]:
        """How far the programs have written, by file of the spool; once they are done, `drain` may go so far."""
        return {name: ring.produced for name, ring in self._rings.items()}

    def drain(self, spool: SpoolWriter, up_to: Mapping[str, int]) -> None:
        """Append the threads that have ended, and who woke threads."""
        for name, position in up_to.items():
            if position:
                self._rings[name].drain(spool.descriptor(name), position)

    def end(self, spool: SpoolWriter, processes: Iterable[int]) -> None:
        """Stop, and append the threads that still are; of some processes those as well that never were on a CPU."""
        end_ns = time.monotonic_ns()
        self._since(0)
        self._attached.close()
        wait_for_running_programs()
        self.drain(spool, self.produced)
        fd = spool.descriptor(ALIVE_FILE)
        write_all(fd, memoryview(end_ns.to_bytes(8, "little")))
        known: set[int] = set()
        for _, values in bpf_maps.BatchReader(8, THREAD_TIMES.size).take(self._maps["times"]):
            known.update(numbers[_TID] for numbers in THREAD_TIMES.iter_unpack(values))
            write_all(fd, memoryview(values))
        for pid in processes:
            write_all(fd, memoryview(b"".join(_standing_threads(pid, known, self._begin_ns))))

    def close(self) -> None:
        """Detach the programs and give their memory back."""
        self._closing.close()


def _load_steps(found: BpfObject, maps: Mapping[str, int], kind: int, on_failure: contextlib.ExitStack) -> StepPrograms:
    """Programs of this kind that samples go through, but for the walk; what is opened is closed with the stack."""
    own = create_maps(found, _OWN_MAPS | {"copy_scratch": bpf_maps.possible_cpus()})
    on_failure.callback(close_all, own.values())
    steps = StepPrograms(found, own, kind)
    on_failure.callback(lambda: close_all(steps.programs.values()))
    for name in ("copy", "store"):
        steps.use(name, steps.load(maps, name))
    return steps


def _standing_threads(pid: int, known: Collection[int], since_ns: int) -> Iterator[bytes]:
    """A `THREAD_TIMES` of each thread of a process that has been as it is since then."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/task").iterdir():
            # proc_pid_stat(5): the name, in parentheses, may hold anything; the state is the field after it.
            name, _, rest = read_text(entry / "stat").partition(" (")[2].rpartition(") ")
            if rest and int(entry.name) not in known:
                state = _STATES.get(rest[0], _INTERRUPTIBLE)
                left_ns = since_ns if state else 0
                numbers = (since_ns, since_ns, left_ns, 0, 0, 0, 0, pid, int(entry.name), state, 0, 0, 0, 0, 0, 0, 0)
                yield THREAD_TIMES.pack(*numbers, name.encode()[:15])


def _attach_to_any(attach: Callable[[str, int], int], names: Sequence[str], program: int) -> int:
    """What keeps a program attached to the first of some places that the kernel takes. Raises LoadError: none."""
    refusal = f"it has neither the tracepoint {_AFTER_SWITCH} (Linux 6.16) nor a function {_SWITCH_FUNCTION}"
    for name in names:
        try:
            return attach(name, program)
        except OSError as error:
            refusal = f"{name}: {error.strerror}"
    raise LoadError(f"the kernel tells no program when a thread is back on a CPU: {refusal}")


def _attach_probe(function: str, program: int) -> int:
    """Run a program, on any CPU, whenever the kernel calls one of its functions, until the descriptor is closed.

    Raises:
        OSError: it cannot be probed.
    """
    try:
        kind = int(_KPROBE_TYPE.read_text())
    except (OSError, ValueError):
        raise OSError(errno.ENODEV, "the kernel has no kprobes (CONFIG_KPROBE_EVENTS)") from None
    text = ctypes.create_string_buffer(function.encode())
    attr = pe.PerfEventAttr(type=kind, config1=ctypes.addressof(text), sample_period=1)
    fd = pe.perf_event_open(attr, -1, 0)
    try:
        pe.set_bpf(fd, program)
        pe.enable(fd)
    except OSError:
        os.close(fd)
        raise
    return fd
