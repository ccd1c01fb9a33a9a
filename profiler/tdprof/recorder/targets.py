"""What a recording is to follow: which tasks, from when on, and how often they are sampled."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tdprof.errors import TdprofError
from tdprof.recorder.capabilities import is_privileged_for_perf
from tdprof.recorder.host import read_text
from tdprof.recorder.refusals import Scope
from tdprof.text import plural
from tdprof.values import dataclass

MOST_LOOKS = 5  # for threads that started while others were attached to

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class SamplingTarget:
    """What to record: tasks, and whether they wait for an exec.

    Attributes:
        tasks: thread ids, or [-1] for every task.
        processes: those of the tasks; empty for every task.
        starts_at_exec: events count from the command's exec on, not from ``AttachedEvents.enable``.
        is_of_cgroups: of every task only while it is in some control groups.
        cgroups: their open folders, where perf's events can be of them.
        is_filtered: events are those of whole CPUs, and BPF programs know whose samples to take.
        is_timed: the same programs add up how long each thread runs.
    """

    tasks: Sequence[int]
    processes: Sequence[int] = ()
    starts_at_exec: bool = False
    is_filtered: bool = False
    is_timed: bool = False
    is_of_cgroups: bool = False
    cgroups: Sequence[int] = ()

    @property
    def is_system_wide(self) -> bool:
        return list(self.tasks) == [-1]

    @property
    def is_per_cpu(self) -> bool:
        """Whether the sampled events belong to CPUs rather than to tasks."""
        return self.is_system_wide or self.is_filtered

    @property
    def sampled_tasks(self) -> Sequence[int]:
        """Of which the sampled events are opened."""
        return [-1] if self.is_per_cpu else self.tasks

    def notes(self, named: Sequence[int]) -> Iterator[str]:
        """What the user should know of the processes, who has named some of them."""
        if named and len(self.processes) > len(named):
            more = plural(len(self.processes) - len(named), "process", "es")
            yield f"-p: also {more} started by those named, or by their children, before"

    @property
    def scope(self) -> Scope:
        """Whose events these are."""
        if self.is_system_wide:
            return Scope.SYSTEM
        return Scope.COMMAND if self.starts_at_exec else Scope.PROCESS


@dataclass(frozen=True, slots=True)
class Rate:
    """How often to sample: exactly one of the two is not zero."""

    frequency_hz: int = 0
    period: int = 0


def processes_of(pids: Iterable[int]) -> list[int]:
    """Some processes and all that they and their children have started, as far as this user may record them."""
    found = dict.fromkeys(pids)
    if not found:
        return []
    children: dict[int, list[int]] = defaultdict(list)
    for entry in _PROC.iterdir():
        # proc_pid_stat(5): the name, in parentheses, may hold anything; the parent is the second field after it.
        if entry.name.isdigit() and (stat := read_text(entry / "stat")):
            children[int(stat.rpartition(")")[2].split()[1])].append(int(entry.name))
    waiting = list(found)
    while waiting:
        for child in children[waiting.pop()]:
            if child not in found and _may_record(child):
                found[child] = None
                waiting.append(child)
    return list(found)


def _may_record(pid: int) -> bool:
    try:
        return is_privileged_for_perf() or (_PROC / str(pid)).stat().st_uid == os.geteuid()
    except OSError:
        return False


def threads_of(pids: Iterable[int]) -> dict[int, int]:
    """All threads of some processes, each with its process.

    Raises:
        TdprofError: one of them does not exist.
    """
    threads: dict[int, int] = {}
    for pid in pids:
        try:
            threads |= {int(entry.name): pid for entry in (_PROC / str(pid) / "task").iterdir()}
        except (FileNotFoundError, ProcessLookupError) as error:
            raise TdprofError(f"no process with PID {pid}", hint="ps -e lists them") from error
        except OSError as error:
            raise TdprofError(f"cannot look at process {pid}: {error.strerror}", hint="run tdprof with sudo") from error
    return threads


def tasks_of(pids: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """Processes with all that they have started, and their threads, each with its process.

    Of what they started some may have ended meanwhile.

    Raises:
        TdprofError: one of those named does not exist.
    """
    processes = processes_of(pids)
    named = len(set(pids))
    threads = threads_of(processes[:named])
    for pid in processes[named:]:
        with contextlib.suppress(TdprofError):
            threads |= threads_of([pid])
    return processes, threads
