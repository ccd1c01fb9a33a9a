"""Writes Topdown profiles of programs whose every metric is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from builders.profiles import Call, Frame, ProfileBuilder
from tdprof.catalog.choose import find_by_name
from tdprof.catalog.entries import Catalog
from tdprof.metrics.formula import evaluate
from tdprof.metrics.schedule import schedule_metrics
from tdprof.model.events import EventInfo, SampledGroup, TopdownInfo, Unit
from tdprof.model.profile import Profile

# Events for 1,000 cycles of unremarkable code on a Neoverse N3. Slot counts add up: STALL_SLOT is the sum of its parts.
ORDINARY: Mapping[str, float] = {
    "CPU_CYCLES": 1000,
    "INST_RETIRED": 1800,
    "INST_SPEC": 2000,
    "OP_RETIRED": 2000,
    "OP_SPEC": 2200,
    "STALL_FRONTEND": 150,
    "STALL_FRONTEND_FLUSH": 40,
    "STALL_FRONTEND_FLOW": 50,
    "STALL_FRONTEND_CPUBOUND": 100,
    "STALL_FRONTEND_MEMBOUND": 50,
    "STALL_FRONTEND_TLB": 10,
    "STALL_FRONTEND_L1I": 25,
    "STALL_FRONTEND_MEM": 15,
    "STALL_BACKEND": 400,
    "STALL_BACKEND_BUSY": 60,
    "STALL_BACKEND_CPUBOUND": 150,
    "STALL_BACKEND_RENAME": 50,
    "STALL_BACKEND_MEMBOUND": 250,
    "STALL_BACKEND_L1D": 100,
    "STALL_BACKEND_MEM": 80,
    "STALL_BACKEND_ST": 30,
    "STALL_BACKEND_TLB": 40,
    "STALL_SLOT_FRONTEND": 700,
    "STALL_SLOT_BACKEND": 1500,
    "BR_RETIRED": 300,
    "BR_MIS_PRED_RETIRED": 6,
    "BR_IMMED_RETIRED": 240,
    "BR_IND_RETIRED": 60,
    "BR_RETURN_RETIRED": 30,
    "PC_WRITE_SPEC": 330,
    "LD_SPEC": 500,
    "ST_SPEC": 250,
    "DP_SPEC": 900,
    "DSB_SPEC": 1,
    "DMB_SPEC": 4,
    "ISB_SPEC": 1,
    "VFP_SPEC": 40,
    "ASE_SPEC": 20,
    "CRYPTO_SPEC": 5,
    "SVE_INST_SPEC": 30,
    "SVE_PRED_SPEC": 20,
    "SVE_PRED_FULL_SPEC": 14,
    "SVE_PRED_PARTIAL_SPEC": 5,
    "SVE_PRED_EMPTY_SPEC": 1,
    "FP_HP_SPEC": 2,
    "FP_SP_SPEC": 30,
    "FP_DP_SPEC": 25,
    "FP_FIXED_OPS_SPEC": 60,
    "FP_SCALE_OPS_SPEC": 80,
    "L1D_CACHE": 800,
    "L1D_CACHE_REFILL": 30,
    "L1D_TLB": 760,
    "L1D_TLB_REFILL": 8,
    "DTLB_WALK": 2,
    "L1I_CACHE": 600,
    "L1I_CACHE_REFILL": 12,
    "L1I_TLB": 500,
    "L1I_TLB_REFILL": 3,
    "ITLB_WALK": 1,
    "L2D_CACHE": 60,
    "L2D_CACHE_REFILL": 10,
    "L2D_TLB": 12,
    "L2D_TLB_REFILL": 3,
    "LL_CACHE_RD": 12,
    "LL_CACHE_MISS_RD": 5,
}


@dataclass(frozen=True)
class Code:
    """A function, or one line of it, with what it does.

    Attributes:
        name, line: where; one function may stand in several.
        cycles: spent in its own instructions, in any unit; shares matter.
        events: for 1,000 cycles, where not as ``ORDINARY``.
        callers: root first.
    """

    name: str
    cycles: float
    events: Mapping[str, float] = field(default_factory=dict)
    callers: Sequence[str] = ("main",)
    line: int = 1

    def count(self, event: str) -> float:
        """Of this code, in the unit of its cycles."""
        if event == "STALL_SLOT" and event not in self.events:
            return self.count("STALL_SLOT_FRONTEND") + self.count("STALL_SLOT_BACKEND")
        return self.cycles * self.events.get(event, ORDINARY[event]) / 1000


# One function for each way to lose slots, one that does not, and one with next to no samples.
MEMORY_BOUND = Code(
    "chase",
    40,
    {
        "INST_RETIRED": 400,
        "INST_SPEC": 420,
        "OP_RETIRED": 450,
        "OP_SPEC": 470,
        "STALL_FRONTEND_FLUSH": 4,
        "STALL_SLOT_FRONTEND": 200,
        "STALL_SLOT_BACKEND": 4200,
        "STALL_BACKEND": 820,
        "STALL_BACKEND_CPUBOUND": 60,
        "STALL_BACKEND_MEMBOUND": 760,
        "STALL_BACKEND_L1D": 120,
        "STALL_BACKEND_MEM": 560,
        "STALL_BACKEND_TLB": 60,
        "L1D_CACHE": 200,
        "L1D_CACHE_REFILL": 90,
        "L2D_CACHE": 110,
        "L2D_CACHE_REFILL": 70,
        "LL_CACHE_RD": 70,
        "LL_CACHE_MISS_RD": 50,
    },
    ("main", "solve"),
)
FRONTEND_BOUND = Code(
    "interpret",
    25,
    {
        "OP_RETIRED": 1500,
        "OP_SPEC": 1600,
        "STALL_SLOT_FRONTEND": 2900,
        "STALL_SLOT_BACKEND": 400,
        "STALL_FRONTEND": 560,
        "STALL_FRONTEND_CPUBOUND": 120,
        "STALL_FRONTEND_MEMBOUND": 440,
        "STALL_FRONTEND_L1I": 320,
        "STALL_FRONTEND_MEM": 60,
        "STALL_FRONTEND_TLB": 40,
        "L1I_CACHE_REFILL": 90,
        "STALL_BACKEND": 90,
        "STALL_BACKEND_CPUBOUND": 50,
        "STALL_BACKEND_MEMBOUND": 40,
        "STALL_BACKEND_L1D": 20,
        "STALL_BACKEND_MEM": 10,
    },
)
SPECULATION_BOUND = Code(
    "sort",
    20,
    {
        "OP_RETIRED": 1400,
        "OP_SPEC": 2600,
        "STALL_FRONTEND_FLUSH": 250,
        "STALL_FRONTEND_CPUBOUND": 290,
        "STALL_FRONTEND": 340,
        "STALL_SLOT_FRONTEND": 1700,
        "STALL_SLOT_BACKEND": 600,
        "BR_MIS_PRED_RETIRED": 40,
    },
    ("main", "solve"),
)
RETIRING = Code("mix", 14, {"STALL_SLOT_FRONTEND": 300, "STALL_SLOT_BACKEND": 400, "OP_RETIRED": 4200, "OP_SPEC": 4300})
RARE = Code("tidy_up", 0.05)
EXAMPLE = (MEMORY_BOUND, FRONTEND_BOUND, SPECULATION_BOUND, RETIRING, RARE, Code("solve", 0.95))


def true_metrics(codes: Sequence[Code], core: str = "neoverse-n3") -> dict[str, float]:
    """Every metric of the core for these pieces of code together."""
    return {
        metric.name: float(
            evaluate(metric.expression, {event: sum(code.count(event) for code in codes) for event in metric.events})
        )
        for metric in find_by_name(core).metrics.values()
    }


def topdown_groups(
    catalog: Catalog, metrics: Sequence[str], counters: int, has_cycle_counter: bool
) -> tuple[list[SampledGroup], list[str]]:
    """The schedule of these metrics as a recording notes it, and the metrics spread over groups."""
    schedule = schedule_metrics(
        catalog, [catalog.metrics[name] for name in metrics], counters, has_cycle_counter=has_cycle_counter
    )
    groups, first = [], 0
    for group in schedule.groups:
        rows = list(range(first, first + len(group.events)))
        groups.append(SampledGroup(rows, list(group.events), list(group.metrics)))
        first += len(group.events)
    return groups, list(schedule.split_metrics)


def topdown_profile(
    codes: Sequence[Code] = EXAMPLE,
    *,
    then: Sequence[Code] = (),
    samples: int = 4000,
    seconds: int = 4,
    metrics: Sequence[str] | None = None,
    counters: int = 6,
    has_cycle_counter: bool = True,
    seed: int = 1,
) -> Profile:
    """A profile of a program that does one thing all the time, or another after it, its samples drawn at random.

    Args:
        codes: all that the program does.
        then: what it does after that, for as long.
        samples: of each event of each group, in each phase where these have it alike.
        seconds: of a phase.
        metrics: the catalog's names; all of Neoverse N3's by default, in groups that take turns.
    """
    random = np.random.default_rng(seed)
    core = "neoverse-n3"
    catalog = find_by_name(core)
    names = list(catalog.metrics) if metrics is None else list(metrics)
    groups, split = topdown_groups(catalog, names, counters, has_cycle_counter)
    phases = [codes, then] if then else [codes]
    enabled = seconds * 1_000_000_000 * len(phases)
    running = enabled // len(groups)
    events = []
    builder = ProfileBuilder(())
    for group in groups:
        for row, name in zip(group.events, group.names, strict=True):
            # At 3 GHz, in the time that the group ran.
            totals = [
                int(
                    3
                    * running
                    / len(phases)
                    * sum(code.count(name) for code in phase)
                    / sum(code.cycles for code in phase)
                )
                for phase in phases
            ]
            period = max(1, sum(totals) // (samples * len(phases)))
            events.append(EventInfo(name, Unit.COUNT, period, 0, sum(totals), enabled, running))
            for number, (phase, total) in enumerate(zip(phases, totals, strict=True)):
                counts = np.array([code.count(name) for code in phase])
                expected = samples if len(phases) == 1 else total // period
                drawn = random.multinomial(
                    expected // seconds if total else 0, counts / max(counts.sum(), 1e-9), seconds
                )
                for second, taken in enumerate(drawn.tolist(), number * seconds):
                    _add_second(builder, phase, taken, row, period, second)
    builder.events = events
    return replace(
        builder.build(),
        topdown=TopdownInfo(core, groups, split_metrics=split),
        rung="pmu-bpf",
        rung_reason="",
        duration_ns=enabled,
    )


def _add_second(
    builder: ProfileBuilder, codes: Sequence[Code], taken: Sequence[int], row: int, period: int, second: int
) -> None:
    """So many samples of each code."""
    for code, count in zip(codes, taken, strict=True):
        if count:
            builder.add(
                *(Frame(caller, 10, f"{caller}.c") for caller in code.callers),
                Call((Frame(code.name, code.line, f"{code.name}.c"),)),
                weight=count * period,
                count=count,
                event=row,
                time_ns=(second + 1) * 1_000_000_000,
            )
