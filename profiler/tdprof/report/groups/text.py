"""Samples by process, thread, command, module, control group, language, second, phase or state for people."""

from pathlib import PurePath

import numpy as np
from rich.console import Console
from rich.text import Text

from tdprof.model.cgroups import Cgroup
from tdprof.model.choices import TIME_KINDS, GroupKind
from tdprof.model.events import Unit
from tdprof.model.off_cpu import TimeSpent
from tdprof.model.profile import Profile
from tdprof.model.thread_state import ThreadState
from tdprof.model.time_range import NS_PER_S
from tdprof.profile.frames import function_names
from tdprof.profile.groups import Groups
from tdprof.profile.hotspots import UnknownSamples
from tdprof.report.columns import Column, as_text, format_table, left_out, names, numbers, prose
from tdprof.report.groups.phases import phase_lines
from tdprof.report.groups.seconds import functions_lines, within_seconds
from tdprof.report.profile.text import header_lines, is_folded, percent
from tdprof.report.summary import doubts, format_value, no_samples
from tdprof.text import format_seconds, printable

# Narrower tables leave the event's own unit out, and keep names; and where threads' time went.
_WIDE_COLUMNS = 100
_COLUMNS_WITH_TIME = 130
_NO_NAME = {GroupKind.MODULE: "[no module known]", GroupKind.THREAD: "[unnamed thread]", GroupKind.CPU: "none"}


def render_text(
    profile: Profile, groups: Groups, unknown: list[UnknownSamples], console: Console, *, limit: int | None, usual: int
) -> str:
    """What was measured, then a row for each group, without those whose share rounds to nothing.

    Args:
        limit: the most rows, 0 for all; None for as many as usual, without those that round to nothing.
        usual: how many that is.
    """
    width = console.width
    is_wide = width >= _WIDE_COLUMNS
    is_time = groups.kind in TIME_KINDS
    shown = len(groups) if limit == 0 or (is_time and limit is None) else min(limit or usual, len(groups))
    if limit is None and not is_time:
        shown = min(shown, int(np.count_nonzero(~is_folded(groups.share))))
    function = function_names(profile)
    has_time = bool(groups.spent) and width >= _COLUMNS_WITH_TIME
    rows = [
        [
            *_cells(profile, groups, row, is_wide=is_wide),
            *(_time_spent(groups.spent[row]) if has_time else []),
            *_hottest(groups, row, function),
        ]
        for row in range(shown)
    ]
    heat = within_seconds(profile, groups) if groups.kind is GroupKind.SECOND else []
    for row, line in zip(rows, heat, strict=False):
        row.insert(-2, line)
    lines = header_lines(profile, unknown, width)
    if not len(groups):
        return as_text(console, [*lines, *prose(no_samples(doubts(profile, unknown)), width)])
    if is_time:
        lines += [*functions_lines(profile, groups, width), Text()]
    if groups.kind is GroupKind.PHASE:
        lines += [*phase_lines(profile, groups, width), Text()]
    columns = _columns(profile, groups, is_wide=is_wide)
    if has_time:
        columns[-2:-2] = numbers("on a CPU", "+ waiting", "+ asleep", "+ beyond signals", "= wall time")
    if heat:
        columns[-2:-2] = names("each 40 ms of it")
    lines += format_table(columns, rows, width)
    lines += left_out(len(groups) - shown, "row", width)
    return as_text(console, lines)


def _columns(profile: Profile, groups: Groups, *, is_wide: bool) -> list[Column]:
    event = printable(profile.events[groups.event].name) if profile.events else "weight"
    columns = numbers("share", "± 95 %", "samples", *([event] if is_wide else []))
    match groups.kind:
        case GroupKind.PROCESS:
            columns += [*numbers("pid"), *names("process")]
        case GroupKind.THREAD:
            columns += [*numbers("pid", "tid"), *names("thread")]
        case GroupKind.COMMAND:
            columns += [*numbers("processes"), *names("command")]
        case GroupKind.MODULE:
            columns += names("module")
        case GroupKind.LANGUAGE:
            columns += names("language")
        case GroupKind.CPU:
            columns += numbers("cpu")
        case GroupKind.STATE:
            columns += names("state")
        case GroupKind.WAKER:
            columns += names("woken by")
        case GroupKind.SECOND | GroupKind.PHASE:
            columns += numbers(f"{event}/s", "from", "to")
        case GroupKind.CGROUP:
            columns += names("cgroup", *(["container, pod or unit"] if any(map(_owner, groups.cgroup)) else []))
    # A number of its own, so that a long name does not take it along where the width is short.
    return [*columns, *numbers("of row"), *names("hottest function")]


def _cells(profile: Profile, groups: Groups, row: int, *, is_wide: bool) -> list[str | Text]:
    half_width = groups.half_width[row]
    cells: list[str | Text] = [
        percent(groups.share[row]),
        "" if np.isnan(half_width) else f"{100 * half_width:.1f}",
        f"{groups.samples[row, groups.event]:,}",
    ]
    if is_wide:
        cells.append(format_value(int(groups.weight[row, groups.event]), profile.events[groups.event].unit))
    numbered = {
        GroupKind.PROCESS: (groups.pid[row],),
        GroupKind.THREAD: (groups.pid[row], groups.tid[row]),
        GroupKind.COMMAND: (groups.members[row],),
        GroupKind.MODULE: (),
        GroupKind.CGROUP: (),
        GroupKind.LANGUAGE: (),
        GroupKind.CPU: (),
        GroupKind.STATE: (),
        GroupKind.WAKER: (),
    }.get(groups.kind, ())
    if groups.kind in TIME_KINDS:
        return [*cells, *_second(profile, groups, row)]
    name = groups.name[row] or _NO_NAME.get(groups.kind, "[unknown]")
    cells += ["?" if number is None else str(number) for number in numbered]
    cells.append(PurePath(name).name if groups.kind is GroupKind.MODULE else name)
    if groups.kind is GroupKind.CGROUP and any(map(_owner, groups.cgroup)):
        cells.append(_owner(groups.cgroup[row]))
    return cells


def _second(profile: Profile, groups: Groups, row: int) -> list[str]:
    """How much of the event in a second of it, and when."""
    begin_ns, end_ns = groups.seconds[row]
    rate = int(groups.weight[row, groups.event]) * NS_PER_S // max(end_ns - begin_ns, 1)
    unit = profile.events[groups.event].unit
    return [format_value(rate, unit), format_seconds(begin_ns), format_seconds(end_ns)]


def _time_spent(time: TimeSpent | None) -> list[str]:
    """Where it went, and how long that was in all."""
    if time is None:
        return [""] * (len(ThreadState) + 1)
    return [format_value(each, Unit.NANOSECONDS) for each in (*time.spent_ns, time.wall_ns)]


def _owner(cgroup: Cgroup | None) -> str:
    """Whose a control group is, as short as users know it."""
    if cgroup is None:
        return ""
    container = cgroup.container and cgroup.container[:12]
    pod = cgroup.pod and f"pod {cgroup.pod}"
    return printable(" of ".join(filter(None, [container, pod])) or cgroup.unit or "")


def _hottest(groups: Groups, row: int, function: list[str]) -> tuple[str, str]:
    """Its share of the row, and its name."""
    share = groups.hottest_share[row]
    return ("", "") if np.isnan(share) else (f"{share:.0%}", function[groups.hottest[row]])
