"""Which events to count or sample together, from the metrics that the user wants and what this machine's PMU offers."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

from tdprof.catalog.choose import CatalogChoice, catalog_names, is_reported, load_packaged
from tdprof.catalog.entries import Catalog, Metric
from tdprof.catalog.units import PERCENT_OF_SLOTS
from tdprof.errors import TdprofError
from tdprof.metrics.schedule import CounterGroup, Schedule, schedule_metrics
from tdprof.model.events import SampledGroup, TopdownInfo
from tdprof.recorder.events import Event
from tdprof.recorder.pmu import CorePmu, Counters, EventTrial
from tdprof.text import few
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class PlannedGroups:
    """Counter groups with the events to open for each.

    Attributes:
        split_metrics: metrics whose events are spread over groups, for want of counters.
        notes: one line each, about the catalog and what is missing or split.
    """

    groups: tuple[tuple[CounterGroup, tuple[Event, ...]], ...]
    split_metrics: tuple[str, ...]
    notes: tuple[str, ...]


def why_not_countable(pmu: CorePmu | None) -> str:
    """The cause, where there is no PMU or none of its counters is free."""
    return "this machine has no Arm core PMU" if pmu is None else f"no counter of {pmu.name} is free"


def plan_groups(
    choice: CatalogChoice,
    metrics: Sequence[Metric],
    pmu: CorePmu,
    counters: Counters,
    is_refused: Callable[[Event], bool] = lambda _: False,
    trial: EventTrial | None = None,
) -> PlannedGroups:
    """Pack the events of all metrics that can be had into counter groups.

    Args:
        is_refused: whether the kernel will not open an event although the PMU claims it.
        trial: tells which of the events that nothing vouches for count; without one, none does.
    """
    catalog = choice.catalog
    needed = dict.fromkeys(name for metric in metrics for name in metric.events if name in catalog.events)
    missing = missing_events(catalog, needed, pmu, is_refused, trial or EventTrial(lambda _: False))
    countable = [metric for metric in metrics if not any(name in missing for name in metric.events)]
    notes = list(choice.notes)
    if missing:
        without = f"{len(metrics) - len(countable)} of {len(metrics)} metrics have no value"
        said = (f"{why} {few([name for name in missing if missing[name] == why])}" for why in _WHY_MISSING)
        told = [text for text, why in zip(said, _WHY_MISSING, strict=True) if why in missing.values()]
        notes.append(f"{pmu.name} {', '.join(told)}: {without}")
    notes += catalog.caveats_of(metrics, missing)
    notes += _other_slots(catalog, countable, pmu)
    schedule = _schedule(catalog, countable, counters)
    notes += schedule.warnings
    groups = tuple(
        (group, tuple(pmu.event(name, catalog.events[name].code) for name in group.events)) for group in schedule.groups
    )
    return PlannedGroups(groups, schedule.split_metrics, tuple(notes))


def _other_slots(catalog: Catalog, metrics: Sequence[Metric], pmu: CorePmu) -> list[str]:
    """What is wrong where the core has other slots than those that stand in the formulas, such as another core's."""
    of_slots = [metric.name for metric in metrics if metric.units == PERCENT_OF_SLOTS]
    if not of_slots or pmu.slots in (None, catalog.slots):
        return []
    return [
        f"{pmu.name} says that its cores have {pmu.slots} slots a cycle, and the formulas of {catalog.title} are for "
        f"{catalog.slots or 'an unknown number'}: {few(of_slots)} cannot be right (--cpu NAME names a like core)"
    ]


ABSENT, SILENT, REFUSED = "does not offer", "counts nothing for", "refuses"
_WHY_MISSING = (ABSENT, SILENT, REFUSED)
# Common events that PMCEID has no bit for: loads, stores, integer and floating-point operations, changes of the PC,
# immediate and indirect branches, returns; stalls of a frontend that mispredicted, and of a backend that waits for
# operands.
_IN_ANY_PROGRAM = frozenset(
    {0x70, 0x71, 0x73, 0x75, 0x76, 0x78, 0x79, 0x7A, 0x801C, 0x811D, 0x8160, 0x8162, 0x8164, 0x816A}
)
# What they are a part of, which PMCEID0_EL0 reports.
_OPERATIONS = ("INST_SPEC", 0x1B)


def missing_events(
    catalog: Catalog,
    needed: Iterable[str],
    pmu: CorePmu,
    is_refused: Callable[[Event], bool],
    trial: EventTrial,
) -> dict[str, str]:
    """The needed events that cannot be counted, in order, and why: ``ABSENT``, ``SILENT`` or ``REFUSED``.

    An event that a PMU does not implement counts zero instead of failing, so it must not be counted at all. Linux lists
    what PMCEID0/1_EL0 report, as far as its driver has a name for it. If one of these is missing that does not count
    in a trial either, somebody (a hypervisor, an emulator) leaves events out, and codes that nothing reports are
    believed only if they count in a trial: rare ones are lost then, but none is wrong. While none is missing, that is
    asked of what every program does and of what the trial certainly executes, if the trial counts operations at all,
    and of the others once one that every program does counts nothing: a hypervisor's filter may begin anywhere.
    """
    events = {name: pmu.event(name, catalog.events[name].code) for name in needed}
    missing = {
        name: ABSENT
        for name, event in events.items()
        if is_reported(event.config) and event.config not in pmu.codes and not trial.counts(event)
    }
    doubtful = {name: event for name, event in events.items() if not is_reported(event.config)}
    if not missing:
        signs = [event for event in doubtful.values() if event.config in _IN_ANY_PROGRAM]
        executed = {name: event for name, event in doubtful.items() if event.config in trial.executes}
        if not (signs or executed) or not trial.counts(pmu.event(*_OPERATIONS)):
            doubtful = {}
        elif all(map(trial.counts, signs)):
            doubtful = executed
    missing |= {name: SILENT for name, event in doubtful.items() if not trial.counts(event)}
    missing |= {name: REFUSED for name, event in events.items() if name not in missing and is_refused(event)}
    return {name: missing[name] for name in events if name in missing}


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """Events to sample in groups.

    Attributes:
        events: a row for each event of each group.
        topdown: what they are, by row; None where nothing can be had, and a note says why.
        notes: one line each.
    """

    events: tuple[Event, ...]
    topdown: TopdownInfo | None
    notes: tuple[str, ...]


def plan_sampling(
    planned: PlannedGroups, core: str, *, is_pass_per_group: bool = False, catalog: str = ""
) -> SamplingPlan:
    """Number the events of all groups; ``catalog``: the text of the user's own, for the capture to carry."""
    if not planned.groups:
        return SamplingPlan((), None, planned.notes)
    events: list[Event] = []
    groups = []
    for group, members in planned.groups:
        rows = list(range(len(events), len(events) + len(members)))
        groups.append(SampledGroup(rows, list(group.events), list(group.metrics)))
        events += members
    is_pass_per_group &= len(groups) > 1
    topdown = TopdownInfo(core, groups, is_pass_per_group, list(planned.split_metrics), catalog)
    return SamplingPlan(tuple(events), topdown, planned.notes)


def sampled_metrics(catalog: Catalog, stage: str, names: str | None) -> tuple[Metric, ...]:
    """What to sample: Stage 1 in any case, with ``stage`` "2" or "all" everything, and the metrics and groups named."""
    wanted = list(select_metrics(catalog, None, "1" if stage == "1" else None))
    if names is not None:
        wanted += select_metrics(catalog, names, None)
    return tuple(dict.fromkeys(wanted))


def _schedule(catalog: Catalog, metrics: Sequence[Metric], counters: Counters) -> Schedule:
    try:
        return schedule_metrics(catalog, metrics, counters.programmable, has_cycle_counter=counters.has_cycle_counter)
    except ValueError as error:
        raise TdprofError(f"cannot measure metrics with {error}") from error


def select_metrics(catalog: Catalog, names: str | None, stage: str | None) -> tuple[Metric, ...]:
    """The metrics that ``--metrics`` and ``--stage`` ask for, in the order of the catalog's groups.

    Raises:
        TdprofError: a name that is neither a metric nor a group, with the nearest; or nothing is left.
    """
    ordered = dict.fromkeys(name for group in catalog.groups.values() for name in group.metrics)
    wanted = list(ordered | dict.fromkeys(catalog.metrics)) if names is None else _named(catalog, names)
    if stage in ("1", "2"):
        number = int(stage)
        stages = {name: {catalog.groups[group].stage for group in catalog.metrics[name].groups} for name in wanted}
        wanted = [name for name in wanted if number in stages[name]]
    if not wanted:
        raise TdprofError(f"none of these metrics is in stage {stage}" if names else "no metrics", status=2)
    return tuple(catalog.metrics[name] for name in wanted)


def check_names(names: str) -> None:
    """Refuse what no core has, where no core is known.

    Raises:
        TdprofError: a name that is neither a metric nor a group of any packaged catalog, with the nearest.
    """
    catalogs = [load_packaged(name) for name in catalog_names()]
    known = [name for catalog in catalogs for name in (*catalog.metrics, *catalog.groups)]
    _find_names(names, known, "no core has a", "tdprof list groups --cpu neoverse-n3")


def _named(catalog: Catalog, names: str) -> list[str]:
    found = _find_names(
        names,
        (*catalog.metrics, *catalog.groups),
        f"{catalog.title} has no",
        f"tdprof list groups --cpu {catalog.name}",
    )
    members = [catalog.groups[name].metrics if name in catalog.groups else (name,) for name in found]
    return list(dict.fromkeys(itertools.chain(*members)))


def _find_names(names: str, known: Iterable[str], whose: str, hint: str) -> list[str]:
    """The known names that a list with commas means, whatever their case.

    Raises:
        TdprofError: one is not known, with the nearest that is, or else the hint; or the list is empty.
    """
    by_lower = {name.lower(): name for name in known}
    found = []
    for given in filter(None, (part.strip() for part in names.split(","))):
        if given.lower() not in by_lower:
            close = get_close_matches(given.lower(), by_lower, n=1)
            raise TdprofError(
                f"{whose} metric or group named '{given}'",
                hint=f"--metrics {by_lower[close[0]]}" if close else hint,
                status=2,
            )
        found.append(by_lower[given.lower()])
    if not found:
        raise TdprofError("--metrics names nothing", hint=hint, status=2)
    return found
