"""Packs the events that metrics need into as few counter groups as possible, every metric's events in one group.

Metrics share events, so this is bin packing in which items overlap (the pagination problem; NP-hard). The search
takes a greedy packing, removes a few groups at random, packs their contents anew and keeps what is no worse, until
it meets the lower bound or runs out of steps. It is deterministic: the generator is seeded.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from math import ceil

from tdprof.catalog.entries import CPU_CYCLES, Catalog, Metric
from tdprof.text import few
from tdprof.values import dataclass

MIN_COUNTERS, MAX_COUNTERS = 2, 31  # PMCR_EL0.N is five bits; below two no ratio can be measured
TOPDOWN_L1 = "Topdown_L1"

# About 0.4 s for the largest catalog on a slow machine; the known minima are met within a tenth of it.
_STEPS = 25_000


@dataclass(frozen=True, slots=True)
class CounterGroup:
    """Events counted together, and the metrics computed from this group's counts.

    ``events`` starts with the cycle counter's event where that is used; the others need a programmable counter each.
    """

    events: tuple[str, ...]
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """All groups, and what could not be kept together.

    Attributes:
        split_metrics: metrics that need more counters than there are; their events are spread over groups, so that
            their values mix different moments.
        split_groups: metric groups asked to be whole that do not fit one counter group; each metric still does.
        minimum: no schedule can have fewer groups.
    """

    groups: tuple[CounterGroup, ...]
    split_metrics: tuple[str, ...]
    split_groups: tuple[str, ...]
    minimum: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that could not be kept together: what, and what is done."""
        lines = [
            f"{name} does not fit the counters: its metrics are measured in separate groups and need not add up"
            for name in self.split_groups
        ]
        if self.split_metrics:
            names = few(self.split_metrics)
            lines.append(f"too few counters for {names}: measured over several groups, so values mix different moments")
        return tuple(lines)


def schedule_metrics(
    catalog: Catalog,
    metrics: Sequence[Metric],
    counters: int,
    *,
    has_cycle_counter: bool = True,
    whole_groups: Sequence[str] = (TOPDOWN_L1,),
) -> Schedule:
    """Pack the metrics' events.

    Args:
        counters: programmable counters, 2 to 31.
        has_cycle_counter: whether CPU_CYCLES has the dedicated counter, which is then in every group.
        whole_groups: metric groups whose metrics belong into one counter group, if all of them are asked for.

    Raises:
        ValueError: for a number of counters out of range.
    """
    if not MIN_COUNTERS <= counters <= MAX_COUNTERS:
        raise ValueError(f"{counters} counters; a PMU has {MIN_COUNTERS} to {MAX_COUNTERS}")
    free = {CPU_CYCLES} if has_cycle_counter else set()
    events = sorted({event for metric in metrics for event in metric.events} - free)
    bit = {event: 1 << index for index, event in enumerate(events)}

    def mask_of(names: Iterable[str]) -> int:
        return sum(bit[name] for name in set(names) - free)

    items: list[int] = []
    split_metrics = []
    for metric in metrics:
        mask = mask_of(metric.events)
        if mask.bit_count() > counters:
            split_metrics.append(metric.name)
            items += _chunks(mask, counters)
        else:
            items.append(mask)
    split_groups = []
    asked = {metric.name: metric for metric in metrics}
    for name in whole_groups:
        members = catalog.groups[name].metrics if name in catalog.groups else ()
        if len(members) > 1 and all(member in asked for member in members):
            mask = mask_of(event for member in members for event in asked[member].events)
            if mask.bit_count() > counters:
                split_groups.append(name)
            else:
                items.append(mask)
    packed, minimum = _pack(_maximal(items), counters)
    # A metric of the free counter alone still needs a group to be counted in.
    packed = packed or ([0] if metrics else [])
    uses_cycles = has_cycle_counter and any(CPU_CYCLES in metric.events for metric in metrics)
    return Schedule(
        groups=_name_groups(packed, events, metrics, mask_of, leading=(CPU_CYCLES,) if uses_cycles else ()),
        split_metrics=tuple(split_metrics),
        split_groups=tuple(split_groups),
        minimum=max(minimum, len(packed) and 1),
    )


def _name_groups(
    packed: Sequence[int],
    events: Sequence[str],
    metrics: Sequence[Metric],
    mask_of: Callable[[Iterable[str]], int],
    *,
    leading: tuple[str, ...],
) -> tuple[CounterGroup, ...]:
    """Masks back to names, in the order of the first metric that each group serves; each metric in one group."""
    members: list[list[str]] = [[] for _ in packed]
    for metric in metrics:
        mask = mask_of(metric.events)
        home = next((index for index, group in enumerate(packed) if mask & group == mask), None)
        if home is not None:
            members[home].append(metric.name)
    order = {metric.name: index for index, metric in enumerate(metrics)}
    groups = [
        CounterGroup(
            leading + tuple(event for index, event in enumerate(events) if group >> index & 1), tuple(members[number])
        )
        for number, group in enumerate(packed)
    ]
    return tuple(sorted(groups, key=lambda group: order[group.metrics[0]] if group.metrics else len(order)))


def _chunks(mask: int, size: int) -> list[int]:
    bits = [1 << index for index in range(mask.bit_length()) if mask >> index & 1]
    return [sum(bits[start : start + size]) for start in range(0, len(bits), size)]


def _maximal(items: Iterable[int]) -> list[int]:
    """The items that no other contains: wherever a container goes, its contents fit."""
    distinct = sorted(set(items) - {0}, key=lambda item: (-item.bit_count(), item))
    kept: list[int] = []
    for item in distinct:
        if not any(item & other == item for other in kept):
            kept.append(item)
    return kept


def _lower_bound(items: Iterable[int], capacity: int) -> int:
    """A number of groups that no packing can go below.

    Items that share events form components. g groups that cover a connected component of n events between them hold
    at least n + g - 1 places of it, since each but the first repeats an event; and g >= (n-1)/(capacity-1).
    """
    components: list[int] = []
    for item in items:
        touching = [component for component in components if component & item]
        components = [component for component in components if not component & item]
        for component in touching:
            item |= component
        components.append(item)
    places = 0
    for component in components:
        events = component.bit_count()
        places += events + max(1, ceil((events - 1) / (capacity - 1))) - 1
    return ceil(places / capacity)


def _pack(items: list[int], capacity: int) -> tuple[list[int], int]:
    """Masks of the groups, and the lower bound."""
    bound = _lower_bound(items, capacity)
    generator = random.Random(1)
    current = _insert([], items, capacity, generator)
    best, best_score = current, _score(current)
    current_score = best_score
    for _ in range(_STEPS):
        if best_score[0] <= bound or len(current) < 2:
            break
        removed = set(generator.sample(range(len(current)), min(generator.choice((1, 2, 2, 3, 3, 4)), len(current))))
        loose = [item for index in removed for item in current[index][1]]
        if generator.random() < 0.5:
            generator.shuffle(loose)
        else:
            loose.sort(key=lambda item: -item.bit_count())
        candidate = _insert([g for i, g in enumerate(current) if i not in removed], loose, capacity, generator)
        score = _score(candidate)
        # A sideways or slightly worse step now and then leaves a local minimum, never at the price of a group.
        if score <= current_score or (score[0] <= current_score[0] and generator.random() < 0.02):
            current, current_score = candidate, score
            if score < best_score:
                best, best_score = candidate, score
    return [mask for mask, _ in best], bound


_Group = tuple[int, tuple[int, ...]]  # the events' mask, and the items inside


def _insert(groups: Sequence[_Group], items: Iterable[int], capacity: int, generator: random.Random) -> list[_Group]:
    """Put each item where it adds the fewest events; a new group only if it fits nowhere."""
    filled = list(groups)
    for item in items:
        target, least = -1, float("inf")
        for index, (mask, _) in enumerate(filled):
            union = (mask | item).bit_count()
            if union <= capacity:
                cost = union - mask.bit_count() + generator.random() * 0.3
                if cost < least:
                    target, least = index, cost
        if target < 0:
            filled.append((item, (item,)))
        else:
            mask, inside = filled[target]
            filled[target] = (mask | item, (*inside, item))
    return filled


def _score(groups: Sequence[_Group]) -> tuple[int, int, int]:
    """Fewer groups first, then fewer places, then unequal filling: an almost empty group is soon gone."""
    sizes = [mask.bit_count() for mask, _ in groups]
    return len(sizes), sum(sizes), -sum(size * size for size in sizes)
