"""Programs and recordings on which intervals are put to the test, and how often they hold the truth."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from builders.simulation import Program, Recording, Run, simulate
from builders.topdown import EXAMPLE, SPECULATION_BOUND, Code
from tdprof.model.findings import Findings, MetricValue
from tdprof.pipeline.load import find_findings
from tdprof.profile.frames import function_names

LEVEL_1 = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")
# Metrics of every kind: sums, differences, ratios of the frequent and of the rare; three groups on six counters.
MIXED = (
    *LEVEL_1,
    "branch_mpki",
    "branch_misprediction_ratio",
    "ipc",
    "l1d_cache_mpki",
    "l1d_cache_miss_ratio",
    "l2_cache_mpki",
    "ll_cache_read_miss_ratio",
    "load_percentage",
    "dtlb_walk_ratio",
)
SAMPLE_CLASSES = (1, 10, 30, 100, 1000)

# Functions from 40 % of the cycles down to 0.8 %.
CODES = (
    *EXAMPLE[:4],
    Code("solve", 3),
    Code("small", 2, SPECULATION_BOUND.events),
    Code("tidy_up", 0.8, callers=("main", "solve")),
)


def _in_other_phase(code: Code) -> Code:
    """The same function elsewhere in the program: more or fewer visits, other rates of stalls, misses, instructions."""
    change = {"STALL_SLOT_BACKEND": 0.5, "BR_MIS_PRED_RETIRED": 2.5, "L1D_CACHE_REFILL": 0.5, "INST_RETIRED": 1.3}
    events = {name: code.count(name) / code.cycles * 1000 * factor for name, factor in change.items()}
    factor = 1.6 if code.name in ("chase", "sort") else 0.7
    return replace(code, cycles=code.cycles * factor, events={**code.events, **events})


SECOND = tuple(map(_in_other_phase, CODES))


@dataclass(frozen=True)
class Case:
    """One row of the table in docs/accuracy.md."""

    title: str
    program: Program
    recording: Recording


ONE_GROUP = Recording(LEVEL_1)
TURNS = Recording(MIXED, seconds=6, rate_hz=400)
# What the intervals are made for.
KEPT = (
    Case("one group, steady program", Program(CODES), ONE_GROUP),
    # Long enough for the narrowest intervals, which a bias would show in first.
    Case("one group, steady program, 30 s", Program(CODES), replace(ONE_GROUP, seconds=30)),
    # The fewest intervals by whose scatter samples are taken for even, where they are independent.
    Case("one group, steady program, 9 s", Program(CODES), replace(ONE_GROUP, seconds=9)),
    Case(
        "one group, first periods of 0.3 s five times as long",
        Program(CODES),
        replace(ONE_GROUP, first_seconds=0.3, first_factor=5),
    ),
    Case(
        "one group, visits of 50 ms, 199 Hz, 30 s",
        Program(CODES, visit_us=50_000),
        replace(ONE_GROUP, seconds=30, rate_hz=199),
    ),
    Case("three groups in turns, steady program", Program(CODES), TURNS),
    Case("three groups in turns, visits of 1 ms", Program(CODES, visit_us=1000), TURNS),
    Case("three groups, phases of 20 ms", Program(CODES, SECOND, 20), TURNS),
    Case("three groups, phases of 1 s", Program(CODES, SECOND, 1000), TURNS),
)
# What breaks them, or leaves them wider than need be.
BROKEN = (
    Case("visits longer than sampling periods (5 ms), 4 s", Program(CODES, visit_us=5000), ONE_GROUP),
    Case(
        "visits of 2 µs, skid of 300 cycles", Program(CODES, visit_us=2), replace(ONE_GROUP, skid_cycles=300, seconds=1)
    ),
    Case("three groups, phases of 20 ms, 1.5 s", Program(CODES, SECOND, 20), replace(TURNS, seconds=1.5, rate_hz=2000)),
    Case("three groups, phases in step with the turns", Program(CODES, SECOND, 6, has_even_phases=True), TURNS),
)


@dataclass
class Coverage:
    """How often intervals held the truth.

    Attributes:
        hits, values: by class of samples: of the values with so many, how many there were, how many held it.
        errors: by function and metric: estimate minus truth, half width, for each run with enough samples.
        inclusive, program: hits among values with enough samples.
    """

    hits: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    values: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    errors: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    inclusive: list[bool] = field(default_factory=list)
    program: list[bool] = field(default_factory=list)
    runs: int = 0

    def share(self, least: int = 30) -> float:
        """Of values with at least so many samples, the share whose interval holds the truth."""
        classes = [each for each in SAMPLE_CLASSES if each >= least]
        return sum(self.hits[each] for each in classes) / max(1, sum(self.values[each] for each in classes))

    def count(self, least: int = 30) -> int:
        """Values with at least so many samples."""
        return sum(self.values[each] for each in SAMPLE_CLASSES if each >= least)

    def worst_bias(self) -> float:
        """Largest mean error of a metric in its standard errors, of those with enough samples in each run."""
        steady = [np.array(each) for each in self.errors.values() if len(each) == self.runs]
        return max((abs(float(each[:, 0].mean() / each[:, 1].mean() * 1.96)) for each in steady), default=0.0)


def measure(case: Case, seeds: Iterable[int], each_run: Callable[[Run, Findings], None] | None = None) -> Coverage:
    """Simulate, run tdprof's own estimation on the samples, and compare with the truth."""
    found = Coverage()
    for seed in seeds:
        run = simulate(case.program, case.recording, seed)
        findings = find_findings(run.profile)
        assert findings is not None
        if each_run is not None:
            each_run(run, findings)
        found.runs += 1
        names = function_names(run.profile)
        for row, function in enumerate(findings.function.tolist()):
            name = names[function]
            for metric, value in findings.functions.row(row):
                if name in run.truth and value.samples:
                    _count(found, name, metric, value, run.truth[name])
            for metric, value in findings.inclusive.row(row):
                if value.samples >= 30:
                    found.inclusive.append(_holds(value, run.inclusive[name][metric]))
        found.program += [_holds(value, run.program[metric]) for metric, value in findings.program.row(0)]
    return found


def _count(found: Coverage, name: str, metric: str, value: MetricValue, truth: Mapping[str, float]) -> None:
    size = max(each for each in SAMPLE_CLASSES if each <= value.samples)
    found.values[size] += 1
    found.hits[size] += _holds(value, truth[metric])
    if value.samples >= 30:
        found.errors[name, metric].append((value.value - truth[metric], value.half_width))


def _holds(value: MetricValue, truth: float) -> bool:
    # Counts are whole numbers: the last digits of what was counted exactly are not known.
    return abs(value.value - truth) <= value.half_width + 1e-6 * abs(truth)
