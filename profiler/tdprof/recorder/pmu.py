"""The core PMU as this machine really offers it: its perf type, its events, and how many counters are to be had."""

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tdprof.recorder import perf_event as pe
from tdprof.recorder.counter_set import not_permitted
from tdprof.recorder.events import SYSFS_PMUS, Event, core_pmus

INST_RETIRED_CODE = 0x0008
CPU_CYCLES_CODE = 0x0011
MAX_COUNTERS = 31  # PMCR_EL0.N

# Long enough for the kernel to put a group on the PMU, short enough not to be noticed.
_PROBE_NS = 2_000_000


@dataclass(frozen=True, slots=True)
class CorePmu:
    """One PMU of Arm cores.

    Attributes:
        name: its sysfs name, such as armv8_pmuv3_0.
        type: perf_event_attr.type of its events.
        cpus: the CPUs it serves; empty where sysfs does not say, which means all.
        codes: the event codes that Linux lists for it, by PMCEID0/1_EL0.
    """

    name: str
    type: int
    cpus: frozenset[int]
    codes: frozenset[int]

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
        folder = pmus / name
        served = frozenset(parse_cpus(_text(folder / "cpus")))
        if not cpus or not served or served & set(cpus):
            return CorePmu(name, int(_text(folder / "type")), served, frozenset(_listed_codes(folder / "events")))
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _listed_codes(folder: Path) -> list[int]:
    """The codes of files that hold "event=0x0011"."""
    codes = []
    for path in folder.iterdir() if folder.is_dir() else ():
        key, _, value = _text(path).partition("=")
        if key == "event" and "," not in value:
            codes.append(int(value, 0))
    return codes


def parse_cpus(text: str) -> list[int]:
    """CPU numbers as Linux lists them ("0-3,8")."""
    cpus: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if low:
            cpus += range(int(low), int(high or low) + 1)
    return cpus


def probe_counters(pmu: CorePmu) -> Counters | None:
    """Count the counters that are free now by counting with them on this thread; None if not even one is.

    A group that opens is not yet a group that counts: the kernel checks a new group against an empty PMU, so one that
    needs a counter which somebody else holds (the hard-lockup watchdog has the cycle counter, a hypervisor gives
    fewer) opens and then never runs. Hence each size is tried until one runs. INST_RETIRED needs a programmable
    counter on these cores, CPU_CYCLES takes the cycle counter where that is free.
    """
    instructions = pmu.event("INST_RETIRED", INST_RETIRED_CODE)
    programmable = 0
    while programmable < MAX_COUNTERS and _group_runs([instructions] * (programmable + 1)):
        programmable += 1
    if not programmable:
        return None
    cycles = pmu.event("CPU_CYCLES", CPU_CYCLES_CODE)
    return Counters(programmable, _group_runs([instructions] * programmable + [cycles]))


def _group_runs(events: list[Event]) -> bool:
    """Whether these events can be opened as one group and are then counted."""
    fds: list[int] = []
    try:
        for event in events:
            attr = event.user_only().attr()
            attr.disabled = not fds
            fds.append(pe.perf_event_open(attr, 0, -1, fds[0] if fds else -1))
        pe.enable(fds[0])
        # Of this thread's own time: while it does not run, nor does the group.
        end = time.thread_time_ns() + _PROBE_NS
        while not pe.read_count(fds[0]).running_ns:
            if time.thread_time_ns() >= end:
                return False
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise not_permitted("use hardware counters", error) from error
        return False
    else:
        return True
    finally:
        for fd in reversed(fds):
            os.close(fd)
