# SPDX-License-Identifier: Apache-2.0
"""What must hold of the micro-benchmarks on any Neoverse, beside what was measured.

Bounds are wide, since cores differ: what they rule out is a wrong event, a wrong place, a wrong name. Orders between
benchmarks need no bound. Where a thing was not measured the check says so; it never passes for lack of a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from measure import COUNTED, EVENTS, LINE_BYTES, Json, Measured

LEVEL_1 = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")
CHASES = ("loads_of_l1", "loads_of_l2", "loads_of_llc", "loads_of_dram")
# Of each load of a chase the loop has two instructions for sixteen.
LOADS_OF_A_CHASE = 16 / 18
# Doubt in a sum, in per cent of all slots, beyond which it says nothing.
MOST_DOUBT = 25
# Metrics of tight loops, and of loads of which each goes wrong in one way: benchmark, metric, least, most.
BOUNDS = (
    # Sixteen operations, the counter's and the branch. Five are arithmetic; nothing says whether NOPs count as such.
    ("retires", "integer_dp_percentage", 20, 101),
    ("retires", "branch_percentage", 3, 9),
    ("divides", "scalar_fp_percentage", 60, 101),
    ("retires", "store_percentage", 0, 3),
    ("retires", "simd_percentage", 0, 2),
    ("retires", "scalar_fp_percentage", 0, 2),
    ("retires", "crypto_percentage", 0, 2),
    ("retires", "sve_all_percentage", 0, 2),
    ("loads_of_dram", "backend_stalled_cycles", 50, 101),
    ("retires", "frontend_stalled_cycles", 0, 30),
    ("fetches", "frontend_stalled_cycles", 50, 101),
    # Each line of code is used once, by two fetches or four.
    ("fetches", "l1i_cache_miss_ratio", 0.05, 1.5),
    # Half of one branch in thirteen halves of instructions goes wrong.
    ("branches_at_random", "branch_mpki", 30, 150),
    ("retires", "itlb_mpki", 0, 1),
    ("retires", "l1i_tlb_mpki", 0, 1),
    ("retires", "itlb_walk_ratio", 0, 0.01),
    ("retires", "l1i_tlb_miss_ratio", 0, 0.01),
    ("retires", "l1i_cache_miss_ratio", 0, 0.02),
    ("retires", "branch_mpki", 0, 2),
    ("loads_of_l1", "load_percentage", 80, 97),
    ("loads_of_l1", "l1d_cache_miss_ratio", 0, 0.05),
    ("loads_of_l1", "l1d_tlb_mpki", 0, 5),
    ("loads_of_l1", "l1d_tlb_miss_ratio", 0, 0.01),
    ("loads_of_l1", "dtlb_mpki", 0, 5),
    ("loads_of_l2", "l1d_cache_miss_ratio", 0.3, 1.5),
    ("loads_of_dram", "l2_cache_miss_ratio", 0.2, 1.5),
    # Whatever the last level is: the system's cache, the cluster's or the core's own.
    ("loads_of_dram", "ll_cache_read_mpki", 300, 2000),
    ("loads_of_dram", "ll_cache_read_miss_ratio", 0.3, 1.01),
    ("loads_of_dram", "ll_cache_read_hit_ratio", -0.01, 0.7),
    ("walks", "dtlb_mpki", 200, 1500),
    ("walks", "l1d_tlb_mpki", 200, 2000),
    ("walks", "l1d_tlb_miss_ratio", 0.2, 1.5),
)
# Share of loads without a known source beyond which shares of sources say nothing.
MOST_UNKNOWN = 0.05


@dataclass(frozen=True)
class Check:
    """One thing that must hold.

    Attributes:
        about: the benchmark.
        must: in words.
        says: what was measured, or why nothing was.
        holds: None where nothing was measured, or not well enough.
    """

    about: str
    must: str
    says: str
    holds: bool | None


def check_all(found: Measured) -> list[Check]:
    """Every check, in the order in which a person reads them."""
    return [*_counts(found), *_levels(found), *_metrics(found), *_operations(found), *_both(found)]


def _between(
    about: str, what: str, value: float | None, low: float, high: float, half_width: float | None = None
) -> Check:
    """An interval that reaches the bounds with its value outside, or that is wider than they are, says nothing."""
    must = f"{what} from {low:g} to {high:g}"
    if value is None:
        return Check(about, must, "not measured", None)
    doubt = half_width or 0
    is_told = low <= value <= high and 2 * doubt <= high - low
    can_be = low - doubt <= value <= high + doubt
    return Check(about, must, _as_text(value, half_width), is_told or (None if can_be else False))


def _as_text(value: float, half_width: float | None) -> str:
    return f"{value:.4g} ± {half_width:.2g}" if half_width else f"{value:.4g}"


def _ordered(about: str, what: str, values: Sequence[tuple[str, float | None]]) -> Check:
    """Each value less than the next."""
    must = f"{what}: {' < '.join(name for name, _ in values)}"
    known = [value for _, value in values if value is not None]
    if len(known) < len(values):
        return Check(about, must, "not measured", None)
    return Check(about, must, " < ".join(f"{value:.4g}" for value in known), known == sorted(set(known)))


def _most(found: Measured, about: str, metric: str) -> Check:
    """More than in every other benchmark; of what is too rare to be seen, more than it can be at most."""
    must = f"{metric}: the most of all benchmarks"
    own = _metric(found, about, metric)
    others = {
        name: bound for name in found.topdown if name != about and (bound := _bound(found, name, metric)) is not None
    }
    if own is None or not others:
        return Check(about, must, "not measured", None)
    next_one = max(others, key=others.__getitem__)
    says = f"{own:.4g}; {next_one} {others[next_one]:.4g}"
    is_known = _metric(found, next_one, metric) is not None
    return Check(about, must, says, own > others[next_one] or (False if is_known else None))


def _counts(found: Measured) -> Iterator[Check]:
    """Counting, against the source and against perf."""
    for tool in ("tdprof stat", "perf stat"):
        counts, known = found.counted.get(tool), found.counted_instructions.get(tool)
        value = counts[EVENTS[0]] / known if counts and known else None
        yield _between(COUNTED, f"instructions of {tool} / those in the source", value, 0.99, 1.02)
    ipc = {tool: counts[EVENTS[0]] / counts[EVENTS[1]] for tool, counts in found.counted.items()}
    ours, theirs = ipc.get("tdprof stat"), ipc.get("perf stat")
    ratio = ours / theirs if ours and theirs else None
    yield _between(COUNTED, "instructions a cycle of tdprof stat / of perf stat", ratio, 0.95, 1.05)
    own, half_width = (_metric(found, COUNTED, "ipc", key) for key in ("value", "half_width"))
    ratio, doubt = (each / ours if each is not None and ours else None for each in (own, half_width))
    yield _between(COUNTED, "ipc of Topdown / instructions a cycle of tdprof stat", ratio, 0.9, 1.1, doubt)


def _metric(found: Measured, benchmark: str, metric: str, key: str = "value") -> float | None:
    entry: Json = found.topdown.get(benchmark, {}).get(metric, {})
    value: float | None = entry.get(key)
    return value


def _bound(found: Measured, benchmark: str, metric: str) -> float | None:
    """Its value, or what it is at most where it is too rare to be seen even once."""
    value = _metric(found, benchmark, metric)
    return _metric(found, benchmark, metric, "at_most") if value is None else value


def _little(found: Measured, benchmark: str, metric: str, high: float) -> Check:
    """No more than that."""
    half_width = _metric(found, benchmark, metric, "half_width")
    check = _between(benchmark, metric, _bound(found, benchmark, metric), 0, high, half_width)
    # A bound that is not low enough says nothing.
    return check if check.holds or _metric(found, benchmark, metric) is not None else replace(check, holds=None)


def _levels(found: Measured) -> Iterator[Check]:
    """Topdown level 1; cores without it count stalled cycles."""
    measured = {metric for metrics in found.topdown.values() for metric in metrics}
    if measured and not measured & set(LEVEL_1):
        yield from _stalls(found)
        return
    for benchmark in found.topdown_ran or [COUNTED]:
        values = [_metric(found, benchmark, metric) for metric in LEVEL_1]
        doubt = sum(_metric(found, benchmark, metric, "half_width") or 0 for metric in LEVEL_1)
        known = [value for value in values if value is not None]
        total = sum(known) if len(known) == len(LEVEL_1) else None
        check = _between(benchmark, "the sum of level 1 in %", total, 99 - doubt, 101 + doubt)
        yield replace(check, holds=None) if check.holds and doubt > MOST_DOUBT else check
    for benchmark, metric in {
        "retires": "retiring",
        "divides": "backend_bound",
        "loads_of_l1": "backend_bound",
        "loads_of_dram": "backend_bound",
        "fetches": "frontend_bound",
    }.items():
        others = [(name, _metric(found, benchmark, name)) for name in LEVEL_1 if name != metric]
        most = max((each for each in others if each[1] is not None), key=lambda each: each[1] or 0, default=("", None))
        own = _metric(found, benchmark, metric)
        says = "not measured" if own is None else f"{own:.1f} %; {most[0]} {most[1] or 0:.1f} %"
        yield Check(benchmark, f"{metric} is its bottleneck", says, None if own is None else own > (most[1] or 0))
    for benchmark, metric in {"branches_at_random": "bad_speculation", "fetches": "frontend_bound"}.items():
        yield _most(found, benchmark, metric)
    foreseen, random = (_metric(found, name, "bad_speculation") for name in ("branches_foreseen", "branches_at_random"))
    yield _ordered("branches_at_random", "bad speculation", [("foreseen", foreseen), ("at random", random)])


def _stalls(found: Measured) -> Iterator[Check]:
    yield _most(found, "fetches", "frontend_stalled_cycles")


def _metrics(found: Measured) -> Iterator[Check]:
    """Metrics of caches, branches and translations, by the PMU."""

    def between(benchmark: str, metric: str, low: float, high: float) -> Check:
        value, half_width = (_metric(found, benchmark, metric, key) for key in ("value", "half_width"))
        return _between(benchmark, metric, value, low, high, half_width)

    for name, metric, low, high in BOUNDS:
        yield between(name, metric, low, high) if low else _little(found, name, metric, high)
    # Of each turn's two branches nobody can foretell the one, of which half go wrong.
    yield between("branches_at_random", "branch_misprediction_ratio", 0.15, 0.35)
    yield _little(found, "branches_foreseen", "branch_misprediction_ratio", 0.01)
    yield _most(found, "retires", "ipc")
    yield _little(found, "loads_of_l1", "l1d_cache_mpki", 20)
    # 889 loads in a thousand instructions, each in a line of its own.
    yield between("loads_of_l2", "l1d_cache_mpki", 300, 2000)
    yield between("loads_of_dram", "l2_cache_mpki", 300, 2000)
    yield _little(found, "loads_of_l1", "l2_cache_mpki", 20)
    yield between("fetches", "l1i_cache_mpki", 50, 2000)
    yield _most(found, "fetches", "l1i_cache_mpki")
    yield between("walks", "dtlb_walk_ratio", 0.2, 1.5)
    yield _little(found, "loads_of_l1", "dtlb_walk_ratio", 0.01)
    yield _ordered(
        "loads_of_dram",
        "instructions a cycle",
        [(name, _metric(found, name, "ipc")) for name in ("loads_of_dram", "loads_of_l2", "loads_of_l1")],
    )


def _operations(found: Measured) -> Iterator[Check]:
    """What SPE says of single operations."""
    total = sum(row["counts"]["operations"] for row in found.spe.values())
    yield Check(
        "all", "no record in no mapping", str(found.unmapped) if total else "not measured",
        found.unmapped == 0 if total else None,
    )  # fmt: skip
    for benchmark in CHASES:
        yield _between(benchmark, "share of loads", _share(found, benchmark, "loads", "operations"),
                       LOADS_OF_A_CHASE - 0.08, LOADS_OF_A_CHASE + 0.08)  # fmt: skip
    for benchmark, levels in {
        "loads_of_l1": ("l1",),
        "loads_of_l2": ("l2",),
        "loads_of_dram": ("dram", "remote"),
    }.items():
        name = " or ".join(levels)
        yield _between(benchmark, f"share of loads from {name}", _level_share(found, benchmark, levels), 0.5, 1)
    yield _ordered("loads_of_dram", "median latency", [(name, _latency(found, name)) for name in CHASES])
    yield _between("walks", "share of loads that walk", _ratio(found, "walks", "dtlb_walk_ratio"), 0.2, 1)
    yield _between("loads_of_l1", "share of loads that walk", _ratio(found, "loads_of_l1", "dtlb_walk_ratio"), 0, 0.01)
    peers = [(name, _level_share(found, name, ("peer", "remote"))) for name in ("shares_nothing", "shares_a_line")]
    yield _ordered("shares_a_line", "share of loads from other cores", peers)
    for benchmark, how in {"shares_a_line": "false", "shares_nothing": None}.items():
        ran = found.spe_ran.get(benchmark)
        row = found.lines.get(ran.address // LINE_BYTES * LINE_BYTES) if ran else None
        must = f"its line's sharing is {how or 'none'}"
        if row is None:
            yield Check(benchmark, must, "not measured", None)
        else:
            yield Check(benchmark, must, f"{row['sharing'] or 'none'}, {row['threads']} threads", row["sharing"] == how)


def _both(found: Measured) -> Iterator[Check]:
    """SPE beside the PMU: two ways to the same number."""
    for benchmark, metric, margin in (
        ("branches_at_random", "branch_misprediction_ratio", 0.05),
        ("branches_foreseen", "branch_misprediction_ratio", 0.01),
        ("loads_of_l1", "load_percentage", 8),
        ("loads_of_l2", "l1d_cache_miss_ratio", 0.15),
        ("walks", "dtlb_walk_ratio", 0.25),
    ):
        by_pmu, by_spe = _bound(found, benchmark, metric), _ratio(found, benchmark, metric)
        must = f"{metric}: SPE within {margin:g} of the PMU"
        if by_pmu is None or by_spe is None:
            yield Check(benchmark, must, "not measured", None)
        else:
            least = by_pmu if _metric(found, benchmark, metric) is not None else 0
            half_width = _metric(found, benchmark, metric, "half_width")
            check = _between(benchmark, must, by_spe, least - margin, by_pmu + margin, half_width)
            yield replace(check, must=must, says=f"SPE {by_spe:.4g}, PMU {_as_text(by_pmu, half_width)}")


def _share(found: Measured, benchmark: str, part: str, whole: str) -> float | None:
    counts = found.spe.get(benchmark, {}).get("counts")
    return counts[part] / counts[whole] if counts and counts[whole] else None


def _level_share(found: Measured, benchmark: str, levels: Sequence[str]) -> float | None:
    """None where the core's encoding is not known, and events tell the source of some loads only."""
    by_level: Json = found.spe.get(benchmark, {}).get("loads_by_level", {})
    all_loads = sum(by_level.values())
    if not all_loads or by_level.get("unknown", 0) > MOST_UNKNOWN * all_loads:
        return None
    return sum(by_level.get(level, 0) for level in levels) / all_loads


def _latency(found: Measured, benchmark: str) -> float | None:
    value: float | None = found.spe.get(benchmark, {}).get("latency_cycles", {}).get("total_latency", {}).get("p50")
    return value


def _ratio(found: Measured, benchmark: str, metric: str) -> float | None:
    value: float | None = found.spe.get(benchmark, {}).get("ratios", {}).get(metric, {}).get("value")
    return value
