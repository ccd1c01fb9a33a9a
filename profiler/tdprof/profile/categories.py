"""Stage 1 of a Topdown recording as events: the slots that each stack lost, or put to use, by category."""

from dataclasses import fields, replace

import numpy as np

from tdprof.catalog.entries import CPU_CYCLES, Catalog
from tdprof.catalog.units import PERCENT_OF_SLOTS
from tdprof.model.events import EventInfo, Unit
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile, SampleTable
from tdprof.profile.frames import frame_stacks

# A function's slots are split only where each of its fractions is known to these points, for the average of the
# program would be wrong for it; the others' are in a category of their own.
MOST_HALF_WIDTH_PERCENT = 10.0


def category_events(catalog: Catalog) -> list[str]:
    """Names of the events that ``with_categories`` adds: one for each level-1 metric, and what is unknown last."""
    suffix = "_slots" if _has_slots(catalog) else "_cycles"
    return [category.removesuffix(suffix) + suffix for category in (*catalog.roots, "unknown")]


def with_categories(profile: Profile, findings: Findings | None) -> Profile:
    """A calibrated Topdown profile with an event for each Stage 1 category; any other profile unchanged.

    A stack's weight is its cycles, times the core's slots per cycle, times the fraction that its leaf function has of
    the category. A fraction below zero, which noise makes of a small one, counts as zero. Cores without slot events
    have cycles in place of slots. The rows that are added hold no samples of their own.
    """
    names = [event.name for event in profile.events]
    if findings is None or CPU_CYCLES not in names:
        return profile
    table = findings.functions
    columns = [column for root in findings.catalog.roots if (column := table.column(root)) is not None]
    if not columns or len(columns) < len(findings.catalog.roots):
        return profile
    is_known = np.all(table.half_width[:, columns] <= MOST_HALF_WIDTH_PERCENT, axis=1)
    # Beside an unknown value a half width is an upper bound of what nothing was seen of.
    value = np.nan_to_num(table.value[:, columns], nan=0.0)
    share = np.where(is_known[:, None], np.clip(value / 100, 0, None), 0.0)
    by_function = np.zeros((len(profile.functions.name) + 1, len(columns) + 1))  # the last row is that of -1, no stack
    by_function[:, -1] = 1
    by_function[findings.function, :-1] = share
    by_function[findings.function, -1] = ~is_known

    samples, stacks = profile.samples, frame_stacks(profile)
    cycles = np.flatnonzero(samples.event == names.index(CPU_CYCLES))
    leaf = stacks.function[stacks.start[samples.stack[cycles]]]
    whole = samples.weight[cycles].astype(np.float64) * _slots(findings.catalog)
    weight = np.rint(whole * by_function[leaf].T).astype(np.uint64)  # [categories, rows]
    category, row = np.nonzero(weight)
    added = {each.name: getattr(samples, each.name)[cycles[row]] for each in fields(samples)}
    # Behind the cycles, before what else was counted: a recording has dozens of events.
    first = names.index(CPU_CYCLES) + 1
    categories = [EventInfo(name, Unit.COUNT) for name in category_events(findings.catalog)]
    added["event"] = (first + category).astype(np.uint32)
    added["count"] = np.zeros(len(row), np.uint64)
    added["weight"] = weight[category, row]
    old = {name: getattr(samples, name) for name in added}
    old["event"] = samples.event + np.where(samples.event >= first, len(categories), 0).astype(np.uint32)
    return replace(
        profile,
        events=[*profile.events[:first], *categories, *profile.events[first:]],
        samples=SampleTable(**{name: np.concatenate([old[name], added[name]]) for name in added}),
    )


def _has_slots(catalog: Catalog) -> bool:
    return all(catalog.metrics[root].units == PERCENT_OF_SLOTS for root in catalog.roots)


def _slots(catalog: Catalog) -> int:
    """What a cycle counts for."""
    return catalog.slots or 1 if _has_slots(catalog) else 1
