"""Counting: opens groups of events for a command, for processes or for every CPU, and reads their totals."""

import contextlib
import errno
import os
from collections.abc import Sequence

from tdprof.linux.limits import unlimited_descriptors
from tdprof.model.events import SOFTWARE_EVENTS
from tdprof.recorder import perf_event as pe
from tdprof.recorder.event_group import open_group
from tdprof.recorder.events import Event
from tdprof.recorder.perf_event import Count
from tdprof.recorder.refusals import Scope, has_gone_offline, not_permitted, open_error
from tdprof.values import dataclass

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

    @property
    def scope(self) -> Scope:
        """Whose events these are."""
        if not self.tids:
            return Scope.SYSTEM
        return Scope.COMMAND if self.starts_on_exec else Scope.PROCESS


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
        self._gone_cpus: set[int] = set()
        self._fds: list[dict[str, list[int]]] = []
        self._raised_limit = contextlib.ExitStack()
        self._raised_limit.enter_context(unlimited_descriptors())
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
                self._open(groups, target)
            except PermissionError as error:
                self.close()
                raise not_permitted(error, target.scope, verb="count") from error
        except BaseException:
            self.close()
            raise

    def _open(self, groups: Sequence[Sequence[Event]], target: CountingTarget) -> None:
        self._fds = [{name: [] for name in names} for names in self._groups]
        for pid, cpu in target.places:
            for group, fds in zip(groups, self._fds, strict=True):
                self._open_group([event for event in group if event.name not in self.refused], fds, pid, cpu, target)

    def _open_group(
        self, events: Sequence[Event], fds: dict[str, list[int]], pid: int, cpu: int, target: CountingTarget
    ) -> None:
        """Open a group in one place, and add its descriptors to those that each event has."""

        def refused(index: int, error: OSError) -> bool:
            if has_gone_offline(cpu, error):
                self._gone_cpus.add(cpu)
                return False
            has_leader = any(event.name not in self.refused for event in events[:index])
            self._note_refusal(events[index].name, error, target, has_leader=has_leader)
            return True

        attrs = [(event.user_only() if self.user_only else event).attr() for event in events]
        for attr in attrs:
            attr.inherit = pid >= 0
        opened = open_group(attrs, pid, cpu, refused, starts_at_exec=target.starts_on_exec)
        known = [(event.name, fd) for event, fd in zip(events, opened, strict=True) if fd is not None]
        if known:
            self._leaders.append(known[0][1])
            self._leader_of_cpu[cpu] = known[0][1]
        for name, fd in known:
            fds[name].append(fd)

    def _note_refusal(self, name: str, error: OSError, target: CountingTarget, *, has_leader: bool) -> None:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise PermissionError(error.errno, error.strerror) from error
        if error.errno == errno.ESRCH and len(target.tids) > 1:
            return  # a thread that ended meanwhile; the others are still there
        if error.errno not in _UNSUPPORTED:
            raise open_error(name, error, target.scope, verb="count") from error
        too_much = error.errno == errno.EINVAL and has_leader
        self.refused[name] = "does not fit the counters" if too_much else "not supported"

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
        stopped = {cpu: first for cpu, (first, second) in times.items() if first == second}
        return dict.fromkeys(self._gone_cpus, 0) | stopped

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
