"""The values a catalog holds: events, metrics, groups and the methodology tree of one core."""

from collections.abc import Container, Iterable, Mapping
from enum import Enum

from tdprof.catalog.expression import Expression
from tdprof.values import dataclass

CPU_CYCLES = "CPU_CYCLES"
INST_RETIRED = "INST_RETIRED"

# CHAIN makes a pair of counters one wide counter; by itself it counts nothing (Arm ARM, PMUv3 event 0x001E).
CHAIN_CODE = 0x001E


class Access(Enum):
    """Who can observe an event."""

    PMU = "PMU"
    ETE = "ETE"


@dataclass(frozen=True, slots=True)
class CatalogEvent:
    """One PMU event.

    Attributes:
        code: the event number, as programmed into PMEVTYPER<n>_EL0.evtCount.
        group: its functional group, or empty where the sources give none.
        aliases: other names for the same code (renamed by Arm, or used by Linux).
        is_architectural: defined by the architecture rather than by this product.
        is_debug: a product event meant for hardware debugging.
        amu_counter: n where the Activity Monitors count it too, in AMEVCNTR0<n>.
    """

    name: str
    code: int
    title: str
    description: str
    group: str
    accesses: frozenset[Access]
    aliases: tuple[str, ...] = ()
    is_architectural: bool = True
    is_debug: bool = False
    amu_counter: int | None = None

    @property
    def is_countable(self) -> bool:
        """Whether a PMU counter can count it by itself."""
        return Access.PMU in self.accesses and self.code != CHAIN_CODE


@dataclass(frozen=True, slots=True)
class Metric:
    """One ratio over events.

    Attributes:
        units: what the number is of, such as "percent of slots".
        groups: the metric groups it is in, in the catalog's order.
        stage: 1 or 2, the earliest stage of the methodology with a group that holds it; None outside both.
        events: the events in the formula.
        sample_events: what to sample to find the code behind a high value.
        advice: what a high value means.
    """

    name: str
    title: str
    formula: str
    expression: Expression
    description: str
    units: str
    groups: tuple[str, ...]
    stage: int | None
    events: tuple[str, ...]
    sample_events: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class Caveat:
    """What a user should know of metrics over some events, such as that an event means something else on some machines.

    Attributes:
        events: which.
        text: a sentence without a full stop.
        origin: who says so.
        is_of_absence: it says why a PMU may lack the events, and nothing where it has them.
    """

    events: tuple[str, ...]
    text: str
    origin: str
    is_of_absence: bool = False


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics that answer one question together, in drill-down order."""

    name: str
    title: str
    description: str
    stage: int | None
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Catalog:
    """What is known of one core at one revision.

    Attributes:
        name: such as "neoverse-n3", as `--cpu` takes it.
        parts: the (implementer, part) pairs of MIDR_EL1 that it describes.
        slots: operations per cycle at the rename stage, None where unknown.
        counters: programmable event counters; the cycle counter comes on top.
        roots: the tree's first metrics.
        tree: metric to what to look at next: names of metrics and of metric groups, in drill-down order.
        notes: what a user should know of this choice, such as the erratum that its formulas correct.
        caveats: what a user should know of some metrics.
    """

    name: str
    title: str
    parts: frozenset[tuple[int, int]]
    products: tuple[str, ...]
    slots: int | None
    counters: int
    events: Mapping[str, CatalogEvent]
    metrics: Mapping[str, Metric]
    groups: Mapping[str, MetricGroup]
    roots: tuple[str, ...]
    tree: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()
    caveats: tuple[Caveat, ...] = ()

    def caveats_of(self, metrics: Iterable[Metric], missing: Container[str] = ()) -> list[str]:
        """What to say beside some metrics on a PMU that lacks some events, each thing once."""
        events = {event for metric in metrics for event in metric.events}
        return [
            caveat.text
            for caveat in self.caveats
            if any(event in events and (event in missing) == caveat.is_of_absence for event in caveat.events)
        ]

    def find_event(self, name: str) -> CatalogEvent | None:
        """The event of this name or alias, whatever its case."""
        wanted = name.upper()
        if wanted in self.events:
            return self.events[wanted]
        return next((e for e in self.events.values() if wanted in (alias.upper() for alias in e.aliases)), None)

    def find_event_by_code(self, code: int) -> CatalogEvent | None:
        """The event with this number."""
        return next((e for e in self.events.values() if e.code == code), None)
