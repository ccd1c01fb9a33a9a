"""What changes from phase to phase of a recording, in words and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names
from tdprof.profile.groups import Groups
from tdprof.profile.phases import FALSE_POSITIVE_RATE, LEAST_CHANGE, Change
from tdprof.report.columns import prose
from tdprof.text import format_seconds, plural

_MOST_CHANGES = 3


def phase_lines(profile: Profile, groups: Groups, width: int) -> list[Text]:
    """How many phases there are, what makes one, and what changes where each begins."""
    names = function_names(profile)
    sentences = [
        f"{plural(len(groups), 'phase', 's')}: where the profile changes by {LEAST_CHANGE:.0%} of its samples or more, "
        f"and by more than chance (intervals that are alike are cut in {FALSE_POSITIVE_RATE:.0%} of recordings)"
    ]
    are_others_unknown = False
    for row, ((begin_ns, end_ns), changes) in enumerate(zip(groups.seconds, groups.changes, strict=True)):
        if changes:
            told = _distinct(changes)[:_MOST_CHANGES]
            parts = [describe_change(each, names) + _waiting(groups, row, each) for each in told]
            are_others_unknown |= not groups.waiting and any(each.function is None for each in told)
            window = f"--time {_exact(begin_ns)}-{_exact(end_ns)}"
            sentences.append(f"at {format_seconds(begin_ns)}: {', '.join(parts)} ({window})")
    if are_others_unknown:
        sentences.append(
            "how much there is also changes where other programs take the CPUs: with record --off-cpu it would stand "
            "here how many threads waited for one"
        )
    return [line for sentence in sentences for line in prose(sentence, width)]


def _waiting(groups: Groups, row: int, change: Change) -> str:
    """What tells a program that does less from one that others take the CPUs from."""
    if change.function is not None or not groups.waiting:
        return ""
    before, after = groups.waiting[row - 1 : row + 1]
    return f" (threads waiting for a CPU {before:.2f} → {after:.2f})"


def _distinct(changes: Sequence[Change]) -> list[Change]:
    """One of those that changed alike, as functions do that call each other."""
    first: dict[tuple[int, int], Change] = {}
    for each in changes:
        first.setdefault((round(50 * each.before), round(50 * each.after)), each)
    return [*first.values()]


def describe_change(change: Change, names: Sequence[str]) -> str:
    """What changed, from which share to which."""
    what = "how much there is" if change.function is None else names[change.function]
    kind = "" if change.is_self or change.function is None else " with its calls"
    return f"{what}{kind} {change.before:.0%} → {change.after:.0%}"


def changes_json(changes: Sequence[Change], names: Sequence[str]) -> list[dict[str, Any]]:
    """All that changed, most first; without a function: how much there was."""
    return [
        {
            "function": None if change.function is None else names[change.function],
            "is_self": change.is_self,
            "before": change.before,
            "after": change.after,
        }
        for change in changes
    ]


def _exact(ns: int) -> str:
    return f"{ns / 1e9:.3f}s"
