"""Some of a profile's samples: those of chosen processes, threads, modules, functions, control groups or times."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from tdprof.errors import TdprofError
from tdprof.model.arrays import I32, distinct
from tdprof.model.choices import Selection
from tdprof.model.profile import KeptStacks, Profile, SampleTable, StackTable, TimeWindow
from tdprof.profile.cgroups import NOT_TOLD, cgroup_name, is_named, of_cgroups
from tdprof.profile.choice import choose_function
from tdprof.profile.commands import command_names
from tdprof.profile.frames import frame_stacks, leaf_locations, module_names
from tdprof.profile.intervals import choose_times
from tdprof.text import format_seconds, percent_of, plural, printable

_Chosen = NDArray[np.bool_]
_FINEST_NS = 150_000_000  # about what the shortest interval makes


def select(profile: Profile, selection: Selection) -> Profile:
    """The profile as if only the chosen samples had been taken, with a note that says which; as it is without a choice.

    What is known of the recording as a whole alone is left out: exact counts, how call stacks end, metrics unless it is
    time alone that chooses. Of a part of its time amounts are no whole run's.

    Raises:
        TdprofError: no sample is chosen; the nearest name, or what there is, is the hint.
    """
    if not selection.words:
        return profile
    kept, window = np.ones(len(profile.samples.pid), bool), profile.window
    if selection.times:
        kept, window = choose_times(profile, selection.times)
        _check_window(profile, selection, window, has_samples=bool(kept.any()))
    for chosen in _choices(profile, selection):
        kept &= chosen
    count = profile.samples.count
    if not kept.any():
        raise TdprofError(
            f"no sample is of {selection.words}", hint="tdprof report --by process, or --by module", status=2
        )
    whole, part = int(count.sum()), int(count[kept].sum())
    samples = SampleTable(**{each.name: getattr(profile.samples, each.name)[kept] for each in fields(SampleTable)})
    wakers = profile.wakers
    stacks, (used, wakers_used) = _used_stacks(
        profile.stacks, samples.stack, wakers.stack if wakers else samples.stack[:0]
    )
    share = f" ({percent_of(part, whole)})" if whole else ""
    note = f"only samples of {selection.words}: {part:,} of {plural(whole, 'sample', 's')}{share}; shares are of these"
    why_none = why_no_metrics(profile, selection)
    note += f"; {why_none}" if why_none else ""
    return replace(
        profile,
        events=[replace(event, total=None) for event in profile.events],
        samples=replace(samples, stack=used),
        stacks=stacks,
        notes=[note, *profile.notes],
        topdown=None if why_none else profile.topdown,
        walks=None,
        thread_times=None,
        kept_stacks=KeptStacks(),
        window=window,
        wakers=replace(wakers, stack=wakers_used) if wakers else None,
        is_whole_run=profile.is_whole_run and window is None,
    )


def why_no_metrics(profile: Profile, selection: Selection) -> str:
    """What keeps the metrics of a Topdown recording from being told of the chosen samples; empty if nothing does."""
    if profile.topdown is None or (selection.is_of_time and not profile.topdown.is_pass_per_group):
        return ""
    if selection.is_of_time:
        return "metrics are left out: each counter group had a run of its own, so that no time has them all"
    return "metrics are of the whole recording, and left out"


def _check_window(profile: Profile, selection: Selection, window: TimeWindow, *, has_samples: bool) -> None:
    """Raises TdprofError for a time in which nothing was sampled."""
    if has_samples:
        return
    times = Selection(times=selection.times).words
    if window.grain_ns and all(end - begin < 2 * window.grain_ns for begin, end in window.asked):
        finer = "; tdprof record --interval 0.1s knows time more finely" if window.grain_ns > _FINEST_NS else ""
        raise TdprofError(
            f"{times} has the middle of no interval with samples: this capture knows time to "
            f"{format_seconds(window.grain_ns)}",
            hint=f"a longer range{finer}",
            status=2,
        )
    raise TdprofError(f"no sample is of {times}", hint="tdprof report --by second", status=2)


def _choices(profile: Profile, selection: Selection) -> list[_Chosen]:
    """For each option that was given, bool[samples]."""
    samples = profile.samples
    found: list[_Chosen] = []
    if selection.comms:
        found.append(_of_comms(profile, selection.comms))
    for wanted, column, option in ((selection.pids, samples.pid, "--pid "), (selection.tids, samples.tid, "--tid ")):
        if wanted:
            _check(map(str, wanted), map(str, distinct(column).tolist()), option)
            found.append(np.isin(column, np.array(wanted, np.int64)))
    if selection.modules:
        found.append(_of_modules(profile, selection.modules))
    for function in selection.functions:
        stacks = frame_stacks(profile)
        holds = np.isin(stacks.function, choose_function(profile, function).ids)
        found.append(np.logical_or.reduceat(holds, stacks.start[:-1])[samples.stack])
    if selection.cgroups:
        found.append(_of_cgroups(profile, selection.cgroups))
    return found


def _of_cgroups(profile: Profile, wanted: Sequence[str]) -> _Chosen:
    if not profile.cgroups:
        raise TdprofError("this recording does not tell control groups", hint="tdprof record -a keeps them", status=2)
    names = [
        name for each in profile.cgroups for name in (cgroup_name(each), each.container, each.pod, each.unit) if name
    ]
    for value in wanted:
        if not any(is_named(each, value) for each in profile.cgroups) and value != NOT_TOLD:
            _check([value], names, "--where cgroup=")
    return of_cgroups(profile.cgroups, profile.samples.cgroup, wanted)


def _of_comms(profile: Profile, wanted: Sequence[str]) -> _Chosen:
    threads = np.array([printable(name) in wanted for name in profile.thread_names], bool)
    names, of_sample = command_names(profile)
    commands = np.array([name in wanted for name in names], bool)
    _check(wanted, [*map(printable, profile.thread_names), *names], "--comm ")
    chosen: _Chosen = threads[profile.samples.thread_name] | commands[of_sample]
    return chosen


def _of_modules(profile: Profile, wanted: Sequence[str]) -> _Chosen:
    paths = module_names(profile)
    _check(wanted, [*paths, *(PurePath(path).name for path in paths)], "--module ")
    is_meant = np.array([path in wanted or PurePath(path).name in wanted for path in paths], bool)
    leaf = leaf_locations(profile)
    file = np.where(leaf >= 0, np.append(profile.locations.mapped_file, -1)[leaf], -1)
    chosen: _Chosen = is_meant[file][profile.samples.stack]
    return chosen


def _check(wanted: Iterable[str], known: Iterable[str], option: str) -> None:
    """Raises TdprofError for a value that no sample has."""
    names = [name for name in dict.fromkeys(known) if name]
    for value in wanted:
        if value not in names:
            close = difflib.get_close_matches(value, names, n=1) or names[:6]
            raise TdprofError(
                f"no sample is of {option}{printable(value)}", hint=f"{option}{', '.join(close)}", status=2
            )


def _used_stacks(stacks: StackTable, *numbers: I32) -> tuple[StackTable, list[I32]]:
    """Only the stacks of these numbers, and their numbers among them."""
    used = distinct(np.concatenate(numbers))
    starts = stacks.start.astype(np.int64)
    lengths = np.diff(starts)[used]
    start = np.concatenate(([0], np.cumsum(lengths)))
    index = np.arange(start[-1]) + np.repeat(starts[used] - start[:-1], lengths)
    table = StackTable(start.astype(np.uint32), stacks.location[index])
    return table, [np.searchsorted(used, each).astype(np.int32) for each in numbers]
