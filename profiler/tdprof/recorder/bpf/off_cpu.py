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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tdprof.capture.spool import ALIVE_FILE, ENDED_FILE, WAKINGS_FILE, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.model.thread_state import ThreadState
from tdprof.recorder import perf_event as pe
from tdprof.recorder.bpf import maps as bpf_maps
from tdprof.recorder.bpf.kernel import wait_for_running_programs
from tdprof.recorder.bpf.maps import update_u32
from tdprof.recorder.bpf.object_file import (
    BPF_PROG_TYPE_KPROBE,
    BPF_PROG_TYPE_RAW_TRACEPOINT,
    BPF_PROG_TYPE_TRACING,
    BpfObject,
    LoadError,
    attach_tracepoint,
    close_all,
    create_maps,
    load_one,
)
from tdprof.recorder.bpf.settings import SampledAt, Setting
from tdprof.recorder.bpf.standing_threads import StandingThread, standing_threads
from tdprof.recorder.bpf.step_programs import STEPS, StepPrograms
from tdprof.recorder.bpf.visits import TOLD_VISITS, VISITS, Stay, Visit, Visits
from tdprof.recorder.host import KALLSYMS
from tdprof.recorder.kernel_types import read_kernel_types
from tdprof.recorder.ring import BpfRing, write_all
from tdprof.values import dataclass

THREAD_TIMES = struct.Struct("<8Q10I16s")  # struct thread_times
_FIRST, _SINCE, _SPENT, _PID, _TID, _STATE = 0, 1, 3, 8, 9, 10  # among its numbers; of `spent_ns` that on a CPU
_RECORDED, _ALL_STAND = range(2)  # enum since
_RING_HEADER = struct.Struct("<II")  # of a record of a BPF ring: its length, then what readers pass over
# The programs, and where the kernel runs them; `end_wait` where it can.
_AT_SWITCH = "switch_threads"
ACCOUNTANTS = {
    _AT_SWITCH: "sched_switch",
    "wake_thread": "sched_wakeup",
    "start_thread": "sched_wakeup_new",
    "rename_thread": "task_rename",
}
# Of recordings of control groups: whom it moves between them.
MOVES = {"move_thread": "cgroup_attach_task"}
PROGRAMS = (*ACCOUNTANTS, *MOVES, "end_wait", "take_waker")
MOST_TIMED = 1 << 16  # threads at a time, in 13 MB
MOST_WOKEN = 1 << 12  # before it is known what all threads do, which takes milliseconds
MOST_MOVED = 1 << 12  # of processes that moved between control groups, the last
RING_BYTES = 1 << 20  # of threads that have ended, and of sleeps with who ended them
# Per-CPU places that the same steps of other samples use: some of those interrupt these.
_OWN_MAPS = {"steps": len(STEPS), "walks": 1, "python_walks": 1, "python_codes": 1, "java_walks": 1}
_AFTER_SWITCH, _SWITCH_FUNCTION, _FIRST_TURN = "sched_exit_tp", "finish_task_switch", "schedule_tail"
_WAKING, _WAKE_FUNCTION = "sched_waking", "try_to_wake_up"
_KPROBE_TYPE = Path("/sys/bus/event_source/devices/kprobe/type")
_SWITCH_TYPE = "btf_trace_sched_switch"
# Schedulers are of this size at most; what lies in between is theirs.
_MOST_SCHEDULER_BYTES = 64 << 10
_STILL_THERE = Stay(0, 0)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What of the kernel's scheduler a recording has to do with.

    Attributes:
        address, size: of the functions that each wait's call chain ends in; zeros where the kernel hides them.
        has_tracepoint: whether there is one after every switch.
        switch_functions: the names that the compiler left to what every switch returns to.
        wake_address, wake_size: of the function that wakes a thread, as the other two.
        first_address, first_size: of the function that a new thread's first turn begins in.
    """

    address: int
    size: int
    has_tracepoint: bool
    switch_functions: tuple[str, ...]
    wake_address: int = 0
    wake_size: int = 0
    first_address: int = 0
    first_size: int = 0


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
            if plain in ("__schedule", "schedule", _WAKE_FUNCTION, _FIRST_TURN, f"__traceiter_{_AFTER_SWITCH}"):
                found.setdefault(plain, borders[-1])
            elif plain == _SWITCH_FUNCTION:
                functions.append(name)
    begin = found.get("__schedule", 0)
    last = found.get("schedule", begin)
    if not begin <= last < begin + _MOST_SCHEDULER_BYTES:
        last = begin
    wake, first = found.get(_WAKE_FUNCTION, 0), found.get(_FIRST_TURN, 0)
    return Scheduler(
        begin,
        _next_border(borders, last) - begin if begin else 0,
        f"__traceiter_{_AFTER_SWITCH}" in found,
        tuple(functions),
        wake,
        _next_border(borders, wake) - wake if wake else 0,
        first,
        _next_border(borders, first) - first if first else 0,
    )


def _next_border(borders: Sequence[int], address: int) -> int:
    return min((border for border in borders if border > address), default=address)


@dataclass(frozen=True, slots=True)
class OffCpuPlan:
    """How time off a CPU is to be sampled on this kernel.

    Attributes:
        settings: what the programs are told.
        scheduler: this kernel's.
        switch_type: the number of the kernel's type of the tracepoint sched_switch; 0: it has none.
        has_wakers: whether samples of sleep say who ended it.
        has_groups: whether it is of control groups, which threads move into and out of.
    """

    settings: dict[Setting, int]
    scheduler: Scheduler
    switch_type: int = 0
    has_wakers: bool = False
    has_groups: bool = False

    @classmethod
    def make(
        cls, event: int, period_ns: int, *, has_wakers: bool = False, of_groups: Mapping[Setting, int] | None = None
    ) -> "OffCpuPlan":
        """As the event of this number, with a sample for each period of a thread.

        Args:
            of_groups: where the kernel has the control groups of threads, if it is of some.

        Raises:
            TdprofError: the kernel does not tell where its structures have the state of a thread.
        """
        scheduler = read_scheduler()
        types = read_kernel_types(["task_struct", "signal_struct", "sched_info"], [], typedefs=[_SWITCH_TYPE])
        offsets, switch_type = types.offsets, types.typedefs.get(_SWITCH_TYPE, 0)
        state = offsets.get(("task_struct", "__state"), offsets.get(("task_struct", "state")))  # before Linux 5.14
        pid, start = (offsets.get(("task_struct", name)) for name in ("pid", "start_time"))
        if state is None or pid is None or start is None:
            raise TdprofError("the kernel does not tell where it keeps the states of threads")
        info, queued = offsets.get(("task_struct", "sched_info")), offsets.get(("sched_info", "run_delay"))
        settings = {
            Setting.SAMPLED_AT: SampledAt.OVERFLOW,
            Setting.OFF_CPU_PERIOD: period_ns,
            Setting.OFF_CPU_EVENT: event,
            Setting.TASK_STATE: state,
            Setting.TASK_PID: pid,
            Setting.TASK_START: start,
            Setting.TASK_QUEUED: 0 if info is None or queued is None else info + queued,
            Setting.TASK_SIGNAL: offsets.get(("task_struct", "signal"), 0),
            Setting.SIGNAL_LIVE: offsets.get(("signal_struct", "live"), 0),
            Setting.SCHEDULE: scheduler.address,
            Setting.SCHEDULE_BYTES: scheduler.size,
            Setting.FIRST_TURN: scheduler.first_address,
            Setting.FIRST_TURN_BYTES: scheduler.first_size,
            Setting.WAKERS: int(has_wakers),
            Setting.TYPED_SWITCH: 0,
            Setting.TELLS_SWITCH: int(scheduler.has_tracepoint),
        }
        return cls(settings | dict(of_groups or {}), scheduler, switch_type, has_wakers, of_groups is not None)

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

    @property
    def typed(self) -> dict[Setting, int]:
        """What the program at sched_switch is told where the kernel loads it for that tracepoint's own type."""
        return self.settings | {Setting.TYPED_SWITCH: 1}

    def maps(self) -> dict[str, int]:
        """Sizes of the maps that are used by nothing else."""
        of_wakers = {"last_wakers": MOST_TIMED, "wakings": RING_BYTES} if self.has_wakers else {}
        of_groups = dict.fromkeys((VISITS, TOLD_VISITS), MOST_MOVED) if self.has_groups else {}
        of_all = {"times": MOST_TIMED, "ended": RING_BYTES, "standing": MOST_TIMED, "early_wakes": MOST_WOKEN}
        return of_all | of_wakers | of_groups


class OffCpu:
    """The programs, loaded and attached; they do nothing until `begin`. Close it to detach them.

    Args:
        plain: instructions for tracepoints.
        typed: the same where the kernel knows a tracepoint's type.
        at_switch: the same for what runs when a thread has come back to a CPU.
        at_waking: the same for what runs when a thread is woken; None: nobody asks who wakes threads.
        maps: descriptors by name, shared with other samples.
        plan: what they do.

    Attributes:
        steps: what its samples go through, and those that take who wakes threads; without a walk.
        not_timed: threads of which there were more stays in the control groups than there is room for, in the end.

    Raises:
        LoadError, OSError: the kernel refuses a part; nothing stays open.
    """

    def __init__(
        self,
        plain: BpfObject,
        typed: BpfObject,
        at_switch: BpfObject,
        at_waking: BpfObject | None,
        maps: Mapping[str, int],
        plan: OffCpuPlan,
    ) -> None:
        self._maps = maps
        self._has_groups = plan.has_groups
        self._begin_ns = self._end_ns = 0
        self.not_timed = 0
        self._ran_ns = 0  # of threads that are still there in the end
        self._standing: dict[int, StandingThread] = {}
        scheduler = plan.scheduler
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
            for name, tracepoint in (ACCOUNTANTS | MOVES if plan.has_groups else ACCOUNTANTS).items():
                if name != _AT_SWITCH or not self._attach_typed(typed, plan.switch_type):
                    self._attach(plain, name, tracepoint)
            self._closing = on_failure.pop_all()

    def _attached_program(self, program: int) -> int:
        self._attached.callback(os.close, program)
        return program

    def _attach(self, plain: BpfObject, name: str, tracepoint: str) -> None:
        program = self._attached_program(load_one(plain, self._maps, name, BPF_PROG_TYPE_RAW_TRACEPOINT))
        self._attached.callback(os.close, attach_tracepoint(tracepoint, program))

    def _attach_typed(self, typed: BpfObject, switch_type: int) -> bool:
        """The program at sched_switch, if the kernel knows that tracepoint's type: a switch costs less then."""
        if not switch_type:
            return False
        try:
            program = load_one(typed, self._maps, _AT_SWITCH, BPF_PROG_TYPE_TRACING, switch_type)
        except LoadError:
            return False
        self._attached_program(program)
        self._attached.callback(os.close, attach_tracepoint(None, program))
        return True

    def begin(self) -> None:
        """Time threads from now on."""
        self._begin_ns = time.monotonic_ns()
        self._since(_RECORDED, self._begin_ns)

    def note_standing(self, processes: Iterable[int], threads: Collection[int] | None) -> None:
        """Look what the threads of these do, which are recorded: so counts the wait of those not seen since `begin`.

        Args:
            threads: those of them that are; None: all.
        """
        standing = standing_threads(processes)
        self._standing = {thread.tid: thread for thread in standing if threads is None or thread.tid in threads}
        with contextlib.suppress(OSError):  # those that there is no room for count as asleep
            for tid, thread in self._standing.items():
                if self._has_groups or thread.state is not ThreadState.INTERRUPTIBLE:
                    update_u32(self._maps["standing"], tid, thread.state)
        self._since(_ALL_STAND, time.monotonic_ns())

    def _since(self, which: int, time_ns: int) -> None:
        bpf_maps.map_element(
            bpf_maps.BPF_MAP_UPDATE_ELEM, self._maps["times_since"], ctypes.c_uint32(which), ctypes.c_uint64(time_ns)
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

    def stop(self) -> int:
        """Time threads until now, which is returned; CLOCK_MONOTONIC ns."""
        self._since(_RECORDED, 0)
        self._end_ns = time.monotonic_ns()  # all that was timed was before
        return self._end_ns

    def end(self, spool: SpoolWriter, processes: Iterable[int], threads: Collection[int] | None) -> None:
        """Once stopped, append the threads that were there, of these processes also those that never switched.

        Args:
            threads: those of them that are there now; None: all.
        """
        end_ns = self._end_ns
        self._attached.close()
        wait_for_running_programs()
        self.drain(spool, self.produced)
        write_all(spool.descriptor(ALIVE_FILE), memoryview(end_ns.to_bytes(8, "little")))
        known: set[int] = set()
        members = set(processes)
        visits = Visits.take(self._maps) if self._has_groups else Visits({}, {})
        for _, values in bpf_maps.BatchReader(8, THREAD_TIMES.size).take(self._maps["times"]):
            for numbers in THREAD_TIMES.iter_unpack(values):
                known.add(numbers[_TID])
                self._ran_ns += _ran_ns(numbers, end_ns)
                self._end_seen(spool, numbers, visits.of_thread(numbers[_PID], numbers[_TID]))
        stood = {thread.pid for thread in self._standing.values()} if self._has_groups else set()
        for thread in standing_threads(members | visits.over | stood, known):
            is_there = thread.pid in members and (threads is None or thread.tid in threads)
            self._end_unseen(spool, thread, visits, is_there=is_there)

    def _end_seen(self, spool: SpoolWriter, numbers: Sequence[Any], visit: Visit) -> None:
        """Of a thread that the programs have seen: what passed since it came to a CPU last, or left one."""
        first_ns, since_ns = numbers[_FIRST], numbers[_SINCE]
        *earlier, last = [stay for stay in visit.stays if stay.left_ns > first_ns] or [_STILL_THERE]
        if visit.forgotten_ns > first_ns:
            self.not_timed += 1
            write_all(spool.descriptor(ENDED_FILE), memoryview(_ended(numbers, since_ns)))
        for stay in earlier if last.came_ns >= last.left_ns else [*earlier, last]:
            own = numbers if stay.came_ns <= since_ns else THREAD_TIMES.unpack(_begun_again(numbers, stay.came_ns))
            write_all(spool.descriptor(ENDED_FILE), memoryview(_ended(own, stay.left_ns)))
        if not last.is_over:
            row = _begun_again(numbers, last.came_ns) if last.left_ns else THREAD_TIMES.pack(*numbers)
            write_all(spool.descriptor(ALIVE_FILE), memoryview(row))

    def _end_unseen(self, spool: SpoolWriter, thread: StandingThread, visits: Visits, *, is_there: bool) -> None:
        """Of one that they have not seen since it came into the groups, or at all."""
        visit, told_ns = visits.of_thread(thread.pid, thread.tid), visits.told_ns.get(thread.tid, 0)
        found = None if told_ns else self._standing.get(thread.tid)
        first_ns = told_ns or (self._begin_ns if found else 0)
        if visit.forgotten_ns > first_ns:
            self.not_timed += 1
            first_ns = visit.forgotten_ns
        for stay in visit.stays:
            # How it was found is how its first stay began.
            earlier = None if stay.came_ns else found
            begin_ns = self._begin_ns if earlier else stay.came_ns
            if begin_ns < first_ns or not begin_ns:
                continue
            until_ns = stay.left_ns if stay.is_over else self._end_ns
            row = _begun(thread, thread.state_for(until_ns - begin_ns, earlier), begin_ns)
            if stay.is_over:
                write_all(spool.descriptor(ENDED_FILE), memoryview(_ended(THREAD_TIMES.unpack(row), stay.left_ns)))
            elif is_there:
                self._ran_ns += _ran_ns(THREAD_TIMES.unpack(row), self._end_ns)
                write_all(spool.descriptor(ALIVE_FILE), memoryview(row))

    def run_time_ns(self) -> int:
        """How long all threads ran, once it has ended; not of recordings of control groups, which threads leave."""
        return self._ran_ns + bpf_maps.PerCpuCounters(self._maps["ended_run_time"], 1).read()[0]

    def close(self) -> None:
        """Detach the programs and give their memory back."""
        self._closing.close()


def _load_steps(found: BpfObject, maps: Mapping[str, int], kind: int, on_failure: contextlib.ExitStack) -> StepPrograms:
    """Programs of this kind that samples go through, but for the walk; what is opened is closed with the stack."""
    own = create_maps(found, _OWN_MAPS | {"copy_scratch": bpf_maps.possible_cpus()})
    on_failure.callback(close_all, own.values())
    steps = StepPrograms(found, own, kind)
    on_failure.callback(lambda: close_all(steps.programs.values()))
    for name in ("copy", "store", "by_kernel"):
        steps.use(name, steps.load(maps, name))
    return steps


def _ran_ns(numbers: Sequence[Any], end_ns: int) -> int:
    """How long a thread ran that was still there in the end."""
    is_running = numbers[_STATE] == ThreadState.RUNNING
    return int(numbers[_SPENT] + (max(end_ns - numbers[_SINCE], 0) if is_running else 0))


def _begun(thread: StandingThread, state: ThreadState, since_ns: int) -> bytes:
    """The `THREAD_TIMES` of a thread that has been in a state since then."""
    return _times_since(since_ns, thread.pid, thread.tid, state, thread.name.encode()[:15])


def _begun_again(numbers: Sequence[Any], since_ns: int) -> bytes:
    """The same of one that has been in its state before, too."""
    return _times_since(since_ns, numbers[_PID], numbers[_TID], numbers[_STATE], numbers[-1])


def _times_since(since_ns: int, pid: int, tid: int, state: int, name: bytes) -> bytes:
    left_ns = 0 if state == ThreadState.RUNNING else since_ns
    return THREAD_TIMES.pack(since_ns, since_ns, left_ns, 0, 0, 0, 0, 0, pid, tid, state, 0, 0, 0, 0, 0, 0, 0, name)


def _ended(numbers: Sequence[Any], end_ns: int) -> bytes:
    """The record of a ring of a thread that is as these numbers say, and was recorded until then."""
    first_ns, since_ns, left_ns, *rest = numbers
    passed_ns = max(end_ns - since_ns, 0)
    rest[numbers[_STATE]] += passed_ns  # `spent_ns` stands first
    row = THREAD_TIMES.pack(first_ns, since_ns + passed_ns, left_ns, *rest)
    return _RING_HEADER.pack(len(row), 0) + row


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
