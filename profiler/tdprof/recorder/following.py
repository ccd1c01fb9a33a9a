"""Whose samples a recording takes, and by which events: of CPUs where BPF programs can filter, else of each task."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tdprof.errors import TdprofError
from tdprof.recorder.bpf.sampler import BpfSampler
from tdprof.recorder.bpf.task_filter import Follow, TaskFilter
from tdprof.recorder.cgroups import ChosenCgroups
from tdprof.recorder.event_attrs import counting_attr
from tdprof.recorder.event_group import open_whole_group
from tdprof.recorder.events import Event
from tdprof.recorder.options import RecordOptions
from tdprof.recorder.targets import SamplingTarget, tasks_of
from tdprof.recorder.workload import Workload

# Each look finds fewer threads that were started before their starter was followed.
_MOST_LOOKS = 10


def choose_target(
    options: RecordOptions,
    workload: Workload | None,
    sampler: BpfSampler | None,
    events: Sequence[Event],
    cgroups: ChosenCgroups | None = None,
) -> SamplingTarget:
    """What to open: the whole system, a command that waits for its exec, or processes and all they have started.

    Topdown groups follow tasks: their counters have none to spare, and what each thread counted is to be known.

    Raises:
        TdprofError: a process is gone, or there are too many threads.
    """
    if cgroups:
        return _in_cgroups(cgroups, sampler, events)
    if options.is_system_wide:
        return SamplingTarget([-1])
    task_filter = None
    if sampler and options.topdown is None and _can_count_besides(events):
        task_filter = sampler.filter_tasks()
    if workload:
        if task_filter:
            _follow(task_filter, {workload.pid: workload.pid}, Follow.FROM_EXEC)
        target = SamplingTarget([workload.pid], [workload.pid], starts_at_exec=True)
        return _filtered(target, options, task_filter)
    processes, tasks = tasks_of(options.pids)
    followed: set[int] = set()
    for _ in range(_MOST_LOOKS if task_filter else 0):
        fresh = {tid: pid for tid, pid in tasks.items() if tid not in followed}
        if not fresh:
            break
        assert task_filter
        _follow(task_filter, fresh, Follow.NOW)
        followed |= fresh.keys()
        processes, tasks = tasks_of(options.pids)
    if task_filter:
        task_filter.forget(followed - tasks.keys())
    return _filtered(SamplingTarget(list(tasks), processes), options, task_filter)


def with_newer_threads(target: SamplingTarget, pids: Sequence[int]) -> SamplingTarget | None:
    """The target with the threads that some processes have by now; None if it knows them all."""
    if not pids:
        return None
    try:
        processes, tasks = tasks_of(pids)
    except TdprofError:  # one has ended: it starts nothing more
        return None
    return None if tasks.keys() <= set(target.tasks) else replace(target, tasks=list(tasks), processes=processes)


def _in_cgroups(cgroups: ChosenCgroups, sampler: BpfSampler | None, events: Sequence[Event]) -> SamplingTarget:
    """What runs in control groups: BPF programs know who does; without them perf's events are of its own hierarchy."""
    if sampler is None:
        if not cgroups.is_perfs:
            raise TdprofError(
                f"without BPF only control groups that perf counts by can be recorded, not those of "
                f"{cgroups.hierarchy.controllers[0]}",
                hint="run tdprof with sudo, where BPF works; or name a group of version 2, or of perf_event",
            )
        if not cgroups.are_known_to_perf() and not cgroups.are_gone():
            raise TdprofError(
                "without BPF these control groups cannot be recorded: no controller is passed on to groups below the "
                "root, and so the kernel counts nothing for them",
                hint=f"echo +pids > {cgroups.hierarchy.mount}/cgroup.subtree_control; or run tdprof with sudo",
            )
        return SamplingTarget([-1], is_of_cgroups=True, cgroups=cgroups.folders)
    sampler.filter_cgroups(cgroups.folders, is_v2=cgroups.hierarchy.is_v2)
    is_counted = cgroups.is_perfs and _can_count_besides(events) and cgroups.are_known_to_perf()
    return SamplingTarget([-1], is_of_cgroups=True, cgroups=cgroups.folders if is_counted else ())


def _filtered(target: SamplingTarget, options: RecordOptions, task_filter: TaskFilter | None) -> SamplingTarget:
    is_filtered = task_filter is not None
    return replace(target, is_filtered=is_filtered, is_timed=is_filtered and options.off_cpu_period_ns > 0)


def _follow(task_filter: TaskFilter, threads: Mapping[int, int], since: Follow) -> None:
    try:
        task_filter.follow(threads, since)
    except OSError as error:
        raise TdprofError(
            f"{len(threads):,} threads are more than can be followed", hint="record with --no-bpf"
        ) from error


def _can_count_besides(events: Sequence[Event]) -> bool:
    """Whether the PMU has the counters to sample each event and to count it for the tasks at the same time."""
    attrs = [counting_attr(event) for event in events if not event.is_software for _ in range(2)]
    try:
        for fd in open_whole_group(attrs, 0, -1):
            os.close(fd)
    except OSError:
        return False
    return True
