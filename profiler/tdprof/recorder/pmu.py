"""The core PMU as this machine really offers it: its perf type, its events, and how many counters are to be had."""

import contextlib
import ctypes
import errno
import mmap
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from tdprof.native.library import load_native
from tdprof.native.varied_work import varied_events
from tdprof.recorder import perf_event as pe
from tdprof.recorder.event_group import open_whole_group
from tdprof.recorder.events import HARDWARE_EVENTS, SYSFS_PMUS, Event, core_pmus
from tdprof.recorder.host import parse_cpu_list, read_text
from tdprof.recorder.refusals import Scope, not_permitted
from tdprof.values import dataclass

SW_INCR_CODE = 0x0000  # every PMUv3 has it
CPU_CYCLES_CODE = 0x0011
MAX_COUNTERS = 31  # PMCR_EL0.N

# Long enough for the kernel to put a group on the PMU, short enough not to be noticed.
_PROBE_NS = 2_000_000
# For what happens now and then, such as a TLB walk.
_TRIAL_NS = 5_000_000
# For a counter to become free, where others' groups take turns on all of them.
_LONGEST_TRIAL_NS = 100_000_000
_TRIAL_MEMORY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class CorePmu:
    """One PMU of Arm cores.

    Attributes:
        name: its sysfs name, such as armv8_pmuv3_0.
        type: perf_event_attr.type of its events.
        cpus: the CPUs it serves; empty where sysfs does not say, which means all.
        codes: the event codes that Linux lists for it, by PMCEID0/1_EL0.
        slots: operations that its cores take in a cycle at most (PMMIR_EL1.SLOTS); None where nothing says.
    """

    name: str
    type: int
    cpus: frozenset[int]
    codes: frozenset[int]
    slots: int | None = None

    def event(self, name: str, code: int) -> Event:
        """The event of this PMU with this number."""
        return Event(name, self.type, code)


@dataclass(frozen=True, slots=True)
class Counters:
    """What can be counted at the same time: programmable counters, and whether the cycle counter comes on top."""

    programmable: int
    has_cycle_counter: bool


def find_arm_pmu(cpus: tuple[int, ...] = (), pmus: Path = SYSFS_PMUS) -> CorePmu | None:
    """The Arm core PMU that serves these CPUs (any, if none are given); None where Linux offers none."""
    for name in core_pmus(pmus):
        if not name.startswith("arm"):
            continue
        pmu = read_core_pmu(name, pmus)
        if not cpus or not pmu.cpus or pmu.cpus & set(cpus):
            return pmu
    return None


def read_core_pmu(name: str, pmus: Path = SYSFS_PMUS) -> CorePmu:
    """What sysfs says of a core PMU.

    Raises:
        ValueError: the files do not hold what Linux writes there.
    """
    folder = pmus / name
    return CorePmu(
        name,
        int(read_text(folder / "type")),
        frozenset(parse_cpu_list(read_text(folder / "cpus"))),
        frozenset(_listed_codes(folder / "events")),
        int(read_text(folder / "caps/slots") or "0", 0) or None,
    )


def _listed_codes(folder: Path) -> list[int]:
    """The codes of files that hold "event=0x0011"."""
    codes = []
    for path in folder.iterdir() if folder.is_dir() else ():
        key, _, value = read_text(path).partition("=")
        if key == "event" and "," not in value:
            codes.append(int(value, 0))
    return codes


def probe_counters(pmu: CorePmu) -> Counters | None:
    """Count the counters of an Arm core PMU that are free now; None if not even one is.

    SW_INCR needs a programmable counter on any core, where INST_RETIRED may have one of its own (FEAT_PMUv3_ICNTR),
    which takes nothing else; CPU_CYCLES takes the cycle counter where that is free.
    """
    filler = pmu.event("SW_INCR", SW_INCR_CODE)
    return free_counters(filler, pmu.event("CPU_CYCLES", CPU_CYCLES_CODE), pmu.cpus)


def free_counters(filler: Event, cycles: Event, cpus: Collection[int]) -> Counters | None:
    """Count the counters that are free now by counting with them on this thread; None if not even one is.

    A group that opens is not yet a group that counts: the kernel checks a new group against an empty PMU, so one that
    needs a counter which somebody else holds (the hard-lockup watchdog has the cycle counter, a hypervisor gives
    fewer) opens and then never runs. Hence each size is tried until one runs.

    Args:
        filler: an event that any programmable counter takes.
        cycles: the event that may have a counter of its own.
        cpus: those of the PMU; empty for all.

    Raises:
        TdprofError: this user may not use hardware counters.
    """
    with _running_on(cpus) as is_served:
        programmable = 0
        while is_served and programmable < MAX_COUNTERS and group_runs([filler] * (programmable + 1)):
            programmable += 1
        if not programmable:
            return None
        return Counters(programmable, group_runs([filler] * programmable + [cycles]))


def counters_beside(free: Counters, events: Sequence[Event]) -> Counters:
    """What is left of the counters while these events count, too."""
    of_pmu = [event for event in events if not event.is_software]
    takes_own = free.has_cycle_counter and any(
        event.config == (HARDWARE_EVENTS["cycles"] if event.type == pe.PERF_TYPE_HARDWARE else CPU_CYCLES_CODE)
        for event in of_pmu
    )
    left = max(free.programmable - len(of_pmu) + takes_own, 0)
    return Counters(left, free.has_cycle_counter and not takes_own)


@dataclass(frozen=True, slots=True)
class EventTrial:
    """What tells which events count where nothing reports them: a little work, and a look at the counter.

    Attributes:
        counts: whether an event counts something meanwhile.
        executes: codes of events that this work makes happen on this machine for certain.
    """

    counts: Callable[[Event], bool]
    executes: frozenset[int] = frozenset()


def trial_on(cpus: Collection[int]) -> EventTrial:
    """A trial on CPUs of a core PMU; empty for all."""
    native = load_native()
    return EventTrial(lambda event: counts_anything(event, cpus), varied_events(native) if native else frozenset())


def counts_anything(event: Event, cpus: Collection[int] = ()) -> bool:
    """Whether an event counts while this thread does a little of everything: in Python, and what that never does in C.

    It computes, branches, and walks through more memory than caches hold. An event that is not implemented counts
    zero; so does one of things that do not happen here.

    Args:
        event: of a core PMU.
        cpus: those of the PMU; empty for all.
    """
    with _running_on(cpus) as is_served, contextlib.ExitStack() as stack:
        if not is_served:
            return False
        try:
            [fd] = open_whole_group([event.user_only().attr()], 0, -1)
        except OSError:
            return False
        stack.callback(os.close, fd)
        memory = stack.enter_context(mmap.mmap(-1, _TRIAL_MEMORY_BYTES))
        native, start = load_native(), ctypes.addressof(ctypes.c_char.from_buffer(memory))
        pe.enable(fd)
        end = time.thread_time_ns() + _LONGEST_TRIAL_NS
        number, at, state = 1.5, 1, 1
        while time.thread_time_ns() < end:
            for _ in range(200):
                # A generator of Lehmer's kind: neither prefetchers nor branch predictors follow it.
                at = at * 48271 % 0x7FFFFFFF
                memory[at % _TRIAL_MEMORY_BYTES] = at & 0xFF
                number = number * 1.0000001 if at & 64 else number / 1.0000002
            if native:
                state = native.tdprof_vary_work(start, _TRIAL_MEMORY_BYTES, state)
            count = pe.read_count(fd)
            if count.value:
                return True
            if count.running_ns >= _TRIAL_NS:
                break
    return False


@contextlib.contextmanager
def _running_on(cpus: Collection[int]) -> Iterator[bool]:
    """Keep this thread on these CPUs for a while, all if empty; says whether any of them is ours to use."""
    before = os.sched_getaffinity(0)
    wanted = before & set(cpus) if cpus else before
    if not wanted or wanted == before:
        yield bool(wanted)
        return
    try:
        os.sched_setaffinity(0, wanted)
        yield True
    finally:
        os.sched_setaffinity(0, before)


def group_runs(events: Sequence[Event]) -> bool:
    """Whether these events can be opened as one group and are then counted.

    Raises:
        TdprofError: this user may not use hardware counters.
    """
    with contextlib.ExitStack() as stack:
        try:
            fds = open_whole_group([event.user_only().attr() for event in events], 0, -1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise not_permitted(error, Scope.COMMAND, verb="count") from error
            return False
        for fd in fds:
            stack.callback(os.close, fd)
        pe.enable(fds[0])
        # Of this thread's own time: while it does not run, nor does the group.
        end = time.thread_time_ns() + _PROBE_NS
        while not pe.read_count(fds[0]).running_ns:
            if time.thread_time_ns() >= end:
                return False
        return True
