"""A Topdown profile with its findings, both by hand: three functions, one of them with too few samples."""

from builders.findings import findings_of
from builders.profiles import Frame, ProfileBuilder
from tdprof.model.events import EventInfo, Unit
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.profile.categories import with_categories

CYCLES = 1_000_000
EVENTS = (
    EventInfo("CPU_CYCLES", Unit.COUNT, period=1000, total=4 * CYCLES, enabled_ns=10, running_ns=5),
    EventInfo("L1D_CACHE_REFILL", Unit.COUNT, period=10, total=50_000, enabled_ns=10, running_ns=5),
)
WORK = {
    "backend_bound": (62.4, 1.0),
    "frontend_bound": (10.0, 0.5),
    "retiring": (20.0, 0.8),
    "bad_speculation": (7.6, 0.4),
    "l1d_cache_mpki": (12.3454, 0.4),
    "l1d_cache_miss_ratio": (0.0342, 0.0011),
    "spe:l1d_cache_miss_ratio": (0.0201, 0.0012),
    "ipc": (0.813, 0.01),
}
PARSE = {
    "backend_bound": (-0.2, 0.3),
    "frontend_bound": (55.0, 1.0),
    "retiring": (30.0, 0.8),
    "bad_speculation": (15.0, 0.4),
    "l1d_cache_mpki": (1.5, 0.1),
    "ipc": (1.9, 0.02),
}
RARE = {name: (value, 40.0) for name, (value, _) in PARSE.items()}


def topdown_example() -> tuple[Profile, Findings]:
    """The profile has the events that Stage 1 adds; the weights are what an exporter gets."""
    main = Frame("main", 5, "app.c")
    work, parse, rare = (Frame(name, line, "app.c") for name, line in (("work", 20), ("parse", 40), ("rare", 60)))
    builder = ProfileBuilder(EVENTS)
    builder.add(main, work, weight=2 * CYCLES, count=2000)
    builder.add(main, work, weight=40_000, count=4000, event=1)
    builder.add(main, work, parse, weight=CYCLES, count=1000, tid=101, thread="worker")
    builder.add(main, parse, rare, weight=CYCLES // 2, count=3)
    builder.add(main, weight=CYCLES // 4, count=2)
    builder.add(weight=CYCLES // 4, count=1)
    profile = builder.build(rung="pmu-bpf", rung_reason="")
    findings = findings_of(
        profile,
        {**{name: value for name, value in WORK.items() if not name.startswith("spe:")}, "backend_bound": (48.0, 0.7)},
        {"work": WORK, "parse": PARSE, "rare": RARE},
        {"": ["backend_bound"], "work": ["backend_bound"], "parse": ["frontend_bound"]},
        few=["rare"],
        disagreements=["work: l1d_cache_miss_ratio is 0.0342 ± 0.0011 by the PMU and 0.0201 ± 0.0012 by SPE"],
    )
    return with_categories(profile, findings), findings
