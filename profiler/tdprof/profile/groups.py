"""A profile's samples by process, thread, command, module, control group, language, time, CPU, state or waker."""

from collections.abc import Sequence

import numpy as np

from tdprof.model.arrays import F64, I32, I64, U8, U64, distinct, group_of_row, group_rows
from tdprof.model.cgroups import Cgroup
from tdprof.model.choices import TIME_KINDS, GroupKind
from tdprof.model.events import OFF_CPU
from tdprof.model.off_cpu import TimeSpent
from tdprof.model.profile import NO_ID, Profile
from tdprof.model.thread_state import ThreadState
from tdprof.profile.cgroups import cgroup_names
from tdprof.profile.commands import command_names
from tdprof.profile.frames import frame_stacks, leaf_locations, module_names
from tdprof.profile.hotspots import share_half_width
from tdprof.profile.idle import is_idle
from tdprof.profile.intervals import Intervals, seconds_of_samples
from tdprof.profile.languages import sample_languages
from tdprof.profile.phases import Change, find_phases
from tdprof.profile.thread_times import times_of
from tdprof.profile.wakers import sample_wakers
from tdprof.text import printable
from tdprof.values import dataclass

IDLE_WORDS = "asleep, with nothing to do"


@dataclass(frozen=True, slots=True)
class Groups:
    """One row for each process, thread, command, module, control group or language, most of the leading event first; or
    for each second or phase, in order.

    Attributes:
        kind: what a row is.
        event: the leading event.
        name: printable: the process's, thread's or command's name, the module's path, "" for no known
            module, the control group's path, or the language.
        pid, tid: None where rows are of several, or not known.
        members: how many processes a command had; of others 1.
        share, half_width: float64[n], of the leading event's weight, as fractions, and of its 95 % interval.
        samples, weight: uint64[n, events].
        hottest: int32[n], the function with most of the row's leading weight at the leaf, -1 for no call stack.
        hottest_share: float64[n], its part of the row.
        cgroup: of rows of control groups: which; None where it is not told.
        seconds: of rows of seconds or phases: when each begins and ends, nanoseconds since the recording's start.
        changes: of rows of phases: what changed since the one before.
        waiting: of rows of phases, if the recording has time off a CPU: how many threads waited for a CPU, on average.
        spent: of rows of processes and threads, if the recording tells: where their time went; None where it does not.
    """

    kind: GroupKind
    event: int
    name: Sequence[str]
    pid: Sequence[int | None]
    tid: Sequence[int | None]
    members: Sequence[int]
    share: F64
    half_width: F64
    samples: U64
    weight: U64
    hottest: I32
    hottest_share: F64
    cgroup: Sequence[Cgroup | None]
    seconds: Sequence[tuple[int, int]] = ()
    changes: Sequence[Sequence[Change]] = ()
    waiting: Sequence[float] = ()
    spent: Sequence[TimeSpent | None] = ()

    def __len__(self) -> int:
        return len(self.name)


def group_samples(profile: Profile, kind: GroupKind, event: int = 0) -> Groups:
    """Add a profile's samples up, those of one process, thread, command or module together."""
    if kind in TIME_KINDS:
        return _by_time(profile, kind, event)
    samples = profile.samples
    names, number = _names(profile, kind)
    keys = {
        GroupKind.PROCESS: (samples.pid,),
        GroupKind.THREAD: (samples.pid, samples.tid),
        GroupKind.COMMAND: (number,),
        GroupKind.MODULE: (number,),
        GroupKind.CGROUP: (number,),
        GroupKind.LANGUAGE: (number,),
        GroupKind.CPU: (number,),
        GroupKind.STATE: (number,),
        GroupKind.WAKER: (number,),
    }[kind]
    order, start = group_rows(*keys)
    first, group = order[start], group_of_row(order, start)
    has_pid, has_tid = kind in (GroupKind.PROCESS, GroupKind.THREAD), kind is GroupKind.THREAD
    name = _last_names(profile, group, len(start), number) if has_pid else number[first]
    weight, count = (_sums(profile, group, len(start), column) for column in (samples.weight, samples.count))
    share = _shares(profile, weight, event)
    hottest, hottest_share = _hottest(profile, group, len(start), event)
    rows = np.lexsort((np.arange(len(start)), -weight[:, event].astype(np.float64)))
    cgroups = (*profile.cgroups, None)
    pids, tids = (
        [_known(number) if has else None for number in column[first[rows]].tolist()]
        for column, has in ((samples.pid, has_pid), (samples.tid, has_tid))
    )
    times = profile.thread_times if has_pid else None
    return Groups(
        kind,
        event,
        [names[each] for each in name[rows].tolist()],
        pids,
        tids,
        _members(profile, group, len(start))[rows].tolist() if kind is GroupKind.COMMAND else [1] * len(rows),
        share[rows],
        share_half_width(share, profile, event)[rows],
        count[rows],
        weight[rows],
        hottest[rows],
        hottest_share[rows],
        [cgroups[each] for each in number[first[rows]].tolist()] if kind is GroupKind.CGROUP else [],
        spent=[] if times is None else times_of(times, pids, tids if has_tid else None),
    )


def _by_time(profile: Profile, kind: GroupKind, event: int) -> Groups:
    phases = find_phases(profile, event) if kind is GroupKind.PHASE and len(profile.events) else None
    found = phases.stretches if phases else seconds_of_samples(profile)
    rows = len(found.end)
    weight, count = (
        _sums(profile, found.number, rows, column) for column in (profile.samples.weight, profile.samples.count)
    )
    share = _shares(profile, weight, event)
    return Groups(
        kind,
        event,
        [""] * rows,
        [None] * rows,
        [None] * rows,
        [1] * rows,
        share,
        share_half_width(share, profile, event),
        count,
        weight,
        *_hottest(profile, found.number, rows, event),
        [],
        [*zip(found.begin.tolist(), found.end.tolist(), strict=True)],
        phases.changes if phases else [],
        _waiting(profile, found) if phases else [],
    )


def _waiting(profile: Profile, found: Intervals) -> list[float]:
    """How many threads waited for a CPU in each stretch, on average; empty where the recording does not tell."""
    names, samples = [each.name for each in profile.events], profile.samples
    if OFF_CPU not in names:
        return []
    is_waiting = (samples.event == names.index(OFF_CPU)) & (samples.state == ThreadState.RUNNABLE)
    waited_ns = np.bincount(found.number[is_waiting], samples.weight[is_waiting], len(found.end))
    return [float(each) for each in waited_ns / np.maximum(found.end - found.begin, 1)]


def _shares(profile: Profile, weight: U64, event: int) -> F64:
    total = float(weight[:, event].sum()) if len(profile.events) else 0.0
    return weight[:, event] / total if total else np.full(len(weight), np.nan)


def _names(profile: Profile, kind: GroupKind) -> tuple[list[str], I32 | I64 | U8]:
    """Names, and int32[samples]: which of them each sample has."""
    samples = profile.samples
    if kind is GroupKind.THREAD:
        return [printable(name) for name in profile.thread_names], samples.thread_name
    if kind is GroupKind.CGROUP:
        return cgroup_names((*profile.cgroups, None)), samples.cgroup
    if kind is GroupKind.CPU:
        known = distinct(samples.cpu)
        return ["" if cpu < 0 else str(cpu) for cpu in known.tolist()], np.searchsorted(known, samples.cpu)
    if kind is GroupKind.STATE:
        return [*(state.words for state in ThreadState), IDLE_WORDS], np.where(
            is_idle(profile), np.uint8(len(ThreadState)), samples.state
        )
    if kind is GroupKind.LANGUAGE:
        return sample_languages(profile)
    if kind is GroupKind.WAKER:
        return sample_wakers(profile)
    if kind is not GroupKind.MODULE:
        return command_names(profile)
    paths: dict[str, int] = {}
    of_file = np.array([paths.setdefault(path, len(paths)) for path in module_names(profile)], np.int32)
    leaf = leaf_locations(profile)
    file = np.where(leaf >= 0, np.append(profile.locations.mapped_file, -1)[leaf], -1)
    return list(paths), of_file[file][samples.stack]


def _last_names(profile: Profile, group: I64, groups: int, name: I32 | I64 | U8) -> I64:
    """The number of each process's or thread's name: of several in its last interval the one with most samples.

    Samples of an interval are in no order. A thread has its starter's name when it begins, and mostly not for long.
    """
    samples = profile.samples
    last_ns = np.zeros(groups, np.uint64)
    np.maximum.at(last_ns, group, samples.time_ns)
    rows = np.flatnonzero(samples.time_ns == last_ns[group])
    order, start = group_rows(group[rows], name[rows])
    first = rows[order][start]
    count = np.add.reduceat(samples.count[rows][order], start) if len(start) else samples.count[:0]
    best = first[np.lexsort((count, group[first]))]
    # Behind all others of its group.
    chosen: I64 = name[best[np.diff(group[best], append=groups) != 0]].astype(np.int64)
    return chosen


def _sums(profile: Profile, group: I64, groups: int, column: U64) -> U64:
    sums = np.zeros((groups, len(profile.events)), np.uint64)
    np.add.at(sums, (group, profile.samples.event), column)
    return sums


def _hottest(profile: Profile, group: I64, groups: int, event: int) -> tuple[I32, F64]:
    stacks, samples = frame_stacks(profile), profile.samples
    leaf = stacks.function[stacks.start[:-1]][samples.stack]
    weight = np.where(samples.event == event, samples.weight, 0).astype(np.float64)
    order, start = group_rows(group, leaf)
    hottest, share = np.full(groups, -1, np.int32), np.full(groups, np.nan)
    if not len(start):
        return hottest, share
    sums = np.add.reduceat(weight[order], start)
    of_group, function = group[order][start], leaf[order][start]
    best = np.lexsort((function, -sums, of_group))
    is_first = np.diff(of_group[best], prepend=-1) != 0
    total = np.bincount(of_group, sums, groups)
    has_any = of_group[best][is_first]
    with np.errstate(invalid="ignore"):
        hottest[has_any], share[has_any] = function[best][is_first], sums[best][is_first] / total[has_any]
    return hottest, share


def _members(profile: Profile, group: I64, groups: int) -> I64:
    order, start = group_rows(group, profile.samples.pid)
    return np.bincount(group[order][start], minlength=groups)


def _known(number: int) -> int | None:
    return None if number == NO_ID else number
