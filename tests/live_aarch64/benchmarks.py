"""How the validation kit's benchmarks behave on a core where everything that the kit checks holds."""

from builders.topdown import FRONTEND_BOUND, MEMORY_BOUND, ORDINARY, RETIRING, SPECULATION_BOUND, Code
from live_aarch64.neoverse_sim import DRAM, L1, L2, PEER_CORE, SYSTEM_CACHE, Region
from tdprof.catalog.choose import load_packaged
from tdprof.metrics.formula import evaluate

CATALOG = load_packaged("neoverse-v1")
# A core of eight slots that has these events, too.
V1 = {"BR_MIS_PRED": 0, "BR_IMMED_SPEC": 250, "BR_INDIRECT_SPEC": 60, "LD_SPEC": 1760, "INST_SPEC": 2000,
      "L1D_CACHE_REFILL": 0, "L2D_CACHE_REFILL": 0, "L1I_CACHE_REFILL": 0, "DTLB_WALK": 0, "L1D_TLB": 800,
      "BR_MIS_PRED_RETIRED": 0}  # fmt: skip


def behaves(
    code: Code, *, sources: dict[int, tuple[int, int]], walks: float = 0.0, mispredicts: float = 0.0, **events: float
) -> Region:
    """Events for 1,000 cycles, where loads come from, and the shares of accesses and branches that go wrong."""
    counts = {**ORDINARY, **code.events, **V1, **events}
    counts["STALL_SLOT"] = counts["STALL_SLOT_FRONTEND"] + counts["STALL_SLOT_BACKEND"]
    needed = {event for metric in CATALOG.metrics.values() for event in metric.events}
    rates = {CATALOG.events[event].code: counts[event] / 1000 for event in needed}
    return Region(rates=rates, sources=sources, walk_share=walks, mispredict_share=mispredicts)


FROM_L1 = {L1: (1, 4)}
STALLED = {"STALL_SLOT_FRONTEND": 300, "STALL_SLOT_BACKEND": 6800}
BEHAVIOUR = {
    "retires": behaves(
        RETIRING, sources=FROM_L1, INST_RETIRED=6000, STALL_SLOT_BACKEND=600, DP_SPEC=1800, BR_IMMED_SPEC=110,
        BR_INDIRECT_SPEC=0, LD_SPEC=10, ST_SPEC=2, VFP_SPEC=2, ASE_SPEC=2, SVE_INST_SPEC=2,
    ),
    "divides": behaves(MEMORY_BOUND, sources=FROM_L1, VFP_SPEC=1600, LD_SPEC=10, **STALLED),
    "branches_foreseen": behaves(RETIRING, sources=FROM_L1, INST_RETIRED=1500),
    "branches_at_random": behaves(
        SPECULATION_BOUND, sources=FROM_L1, mispredicts=0.25, OP_SPEC=4000, OP_RETIRED=1800,
        BR_MIS_PRED=45, BR_MIS_PRED_RETIRED=75, BR_RETIRED=300,
    ),
    "fetches": behaves(
        FRONTEND_BOUND, sources=FROM_L1, INST_RETIRED=1000, L1I_CACHE_REFILL=100,
        STALL_SLOT_FRONTEND=5800, STALL_SLOT_BACKEND=600,
    ),
    "loads_of_l1": behaves(
        MEMORY_BOUND, sources=FROM_L1, INST_RETIRED=300, L1D_TLB_REFILL=0, ITLB_WALK=0, **STALLED
    ),
    "loads_of_l2": behaves(
        MEMORY_BOUND,
        sources={L2: (9, 11), L1: (1, 4)},
        INST_RETIRED=100,
        L1D_CACHE_REFILL=90,
        L1D_CACHE=100,
        **STALLED,
    ),
    "loads_of_llc": behaves(
        MEMORY_BOUND, sources={SYSTEM_CACHE: (9, 60), L2: (1, 11)}, INST_RETIRED=30, L1D_CACHE_REFILL=27, **STALLED
    ),
    "loads_of_dram": behaves(
        MEMORY_BOUND,
        sources={DRAM: (9, 200), SYSTEM_CACHE: (1, 60)},
        INST_RETIRED=50,
        L1D_CACHE_REFILL=45,
        L2D_CACHE_REFILL=45,
        **STALLED,
    ),
    "walks": behaves(
        MEMORY_BOUND,
        sources={L2: (1, 11)},
        walks=0.8,
        INST_RETIRED=110,
        DTLB_WALK=80,
        L1D_TLB=100,
        L1D_TLB_REFILL=90,
        **STALLED,
    ),
    "shares_nothing": behaves(MEMORY_BOUND, sources=FROM_L1, INST_RETIRED=1000, **STALLED),
    "shares_a_line": behaves(MEMORY_BOUND, sources={L1: (1, 4), PEER_CORE: (1, 80)}, INST_RETIRED=100, **STALLED),
}  # fmt: skip


def true_metrics() -> dict[str, dict[str, float]]:
    """Benchmark to metric to its value, by the catalog's formulas over what is declared."""
    names = {event.code: event.name for event in CATALOG.events.values()}
    found = {}
    for benchmark, region in BEHAVIOUR.items():
        counts = {names[code]: rate for code, rate in region.rates.items()}
        found[benchmark] = {
            metric.name: float(evaluate(metric.expression, counts)) for metric in CATALOG.metrics.values()
        }
    return found
