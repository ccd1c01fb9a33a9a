"""Counting: opens groups of events for a command, for processes or for every CPU, and reads their totals."""

import contextlib
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tdprof.errors import TdprofError
from tdprof.recorder import perf_event as pe
from tdprof.recorder.events import SOFTWARE_EVENTS, Event
from tdprof.recorder.limits import raised_descriptor_limit
from tdprof.recorder.perf_event import Count

# What the kernel answers for an event that this machine, or this kind of target, does not have.
_UNSUPPORTED = {errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL}

# Software events that happen in kernel code: restricted to user space they would always count zero.
_KERNEL_EVENTS = {SOFTWARE_EVENTS[name] for name in ("context-switches", "cpu-migrations", "cgroup-switches")}


@dataclass(frozen=True, slots=True)
class CountingTarget:
    """What to count.

    Attributes:
        tids: threads to follow, with all they start; empty for whole CPUs.
        cpus: CPUs to watch where no threads are named.
        starts_on_exec: count from the moment the (single) thread executes its command.
    """

    tids: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    starts_on_exec: bool = False

    @property
    def places(self) -> list[tuple[int, int]]:
        """(pid, cpu) pairs for perf_event_open."""
        return [(tid, -1) for tid in self.tids] if self.tids else [(-1, cpu) for cpu in self.cpus]


def not_permitted(what: str, error: OSError) -> TdprofError:
    """The kernel's refusal, with the setting that lifts it."""
    return TdprofError(
        f"not permitted to {what} ({error.strerror})", hint="sudo sysctl kernel.perf_event_paranoid=-1, or run as root"
    )


class CounterSet:
    """Open counters for groups of events. A context manager: leaving it closes them.

    Attributes:
        refused: event name to why the kernel would not open it; such an event has no count.
        user_only: whether the kernel's share is left out because this user may not count it.
    """

    def __init__(self, groups: Sequence[Sequence[Event]], target: CountingTarget) -> None:
        """Open everything, counting nothing yet.

        Raises:
            TdprofError: no permission at all, too many files, or the target is gone.
        """
        self.refused: dict[str, str] = {}
        self.user_only = False
        self._groups = [[event.name for event in group] for group in groups]
        self._leaders: list[int] = []
        self._leader_of_cpu: dict[int, int] = {}
        self._fds: list[dict[str, list[int]]] = []
        self._raised_limit = contextlib.ExitStack()
        self._raised_limit.enter_context(raised_descriptor_limit())
        try:
            self._open(groups, target)
        except PermissionError:
            self._close_events()
            self.user_only = True
            self.refused = {
                event.name: "not permitted"
                for group in groups
                for event in group
                if event.type == pe.PERF_TYPE_SOFTWARE and event.config in _KERNEL_EVENTS
            }
            try:
                self._open([[event.user_only() for event in group] for group in groups], target)
            except PermissionError as error:
                self.close()
                raise not_permitted("count every CPU" if target.cpus else "count this process", error) from error
        except BaseException:
            self.close()
            raise

    def _open(self, groups: Sequence[Sequence[Event]], target: CountingTarget) -> None:
        self._fds = [{name: [] for name in names} for names in self._groups]
        for pid, cpu in target.places:
            for group, names, fds in zip(groups, self._groups, self._fds, strict=True):
                leader = -1
                for event, name in zip(group, names, strict=True):
                    if name in self.refused:
                        continue
                    fd = self._open_event(event, name, pid, cpu, leader, target)
                    if fd is None:
                        continue
                    if leader < 0:
                        leader = fd
                        self._leaders.append(fd)
                        self._leader_of_cpu[cpu] = fd
                    fds[name].append(fd)

    def _open_event(
        self, event: Event, name: str, pid: int, cpu: int, leader: int, target: CountingTarget
    ) -> int | None:
        attr = event.attr()
        attr.inherit = pid >= 0
        # A group's members follow their leader; only the leader waits for exec or for enable().
        attr.disabled = leader < 0
        attr.enable_on_exec = leader < 0 and target.starts_on_exec
        try:
            return pe.perf_event_open(attr, pid, cpu, leader)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise PermissionError(error.errno, error.strerror) from error
            if error.errno == errno.ESRCH and len(target.tids) > 1:
                return None  # a thread that ended meanwhile; the others are still there
            if error.errno == errno.ESRCH:
                raise TdprofError(f"process {pid} has ended") from error
            if error.errno == errno.EMFILE:
                raise TdprofError("too many counters for the limit on open files", hint="ulimit -n 65536") from error
            if error.errno not in _UNSUPPORTED:
                raise TdprofError(f"cannot count {name}: {error.strerror}") from error
            too_much = error.errno == errno.EINVAL and leader >= 0
            self.refused[name] = "does not fit the counters" if too_much else "not supported"
            return None

    def enable(self) -> None:
        """Start every group."""
        for fd in self._leaders:
            pe.enable(fd)

    def disable(self) -> None:
        """Stop every group; counts stay readable."""
        for fd in self._leaders:
            pe.disable(fd)

    def read(self) -> list[dict[str, Count]]:
        """The totals so far of each group's events, over all threads or CPUs; refused events are absent."""
        return [
            {
                name: sum((pe.read_count(fd) for fd in fds), Count(0, 0, 0))
                for name, fds in group.items()
                if fds and name not in self.refused
            }
            for group in self._fds
        ]

    def stopped_cpus(self) -> dict[int, int]:
        """CPUs that went offline while they were counted, and for how many ns they were.

        The kernel counts nothing more of such a CPU, also when it is back (perf_event_exit_cpu); to be asked while all
        others still count.
        """
        # Reading brings the time of events that count up to date, so that two reads never agree.
        times = {cpu: [pe.read_count(fd).enabled_ns for _ in range(2)] for cpu, fd in self._leader_of_cpu.items()}
        return {cpu: first for cpu, (first, second) in times.items() if first == second}

    def close(self) -> None:
        """Give the descriptors back, and the limit that they needed."""
        self._close_events()
        self._raised_limit.close()

    def _close_events(self) -> None:
        for group in self._fds:
            for fds in group.values():
                while fds:
                    os.close(fds.pop())
        self._leaders = []
        self._leader_of_cpu = {}

    def __enter__(self) -> "CounterSet":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
