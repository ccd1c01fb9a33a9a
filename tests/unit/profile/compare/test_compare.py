"""Two profiles compared: what is one function, what changed, and how often chance is taken for change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from builders.profiles import CLOCK, Call, Frame, ProfileBuilder
from builders.runs import simulate_run
from builders.topdown import EXAMPLE, MEMORY_BOUND, Code, topdown_profile
from tdprof.catalog.choose import load_packaged
from tdprof.errors import TdprofError
from tdprof.model.addresses import FileKind, MappedFile, Unknown
from tdprof.model.choices import Basis
from tdprof.model.events import EventInfo, Unit
from tdprof.model.findings import Diagnosis, Findings, MetricTable
from tdprof.model.profile import Profile
from tdprof.pipeline.load import find_findings
from tdprof.profile.calibrate import calibrated
from tdprof.profile.compare import Comparison, Match, compare

PROGRAM = {"work": 0.4, "parse": 0.25, "hash": 0.2, "copy": 0.1, "log": 0.05}


def profile_of(*frames: Frame | Call, files: list[MappedFile] | None = None, count: int = 100) -> Profile:
    builder = ProfileBuilder(files=files or [])
    for frame in frames:
        builder.add("main", frame, count=count, weight=count * 1_000_000)
    return builder.build()


def matches(comparison: Comparison) -> dict[tuple[str, str], Match]:
    """(name in A, name in B) and how they were matched, without main."""
    functions = comparison.functions
    return {
        (name_a, "" if match is Match.ONLY_A else name): match
        for name_a, name, match in zip(functions.names_a, functions.names, functions.match, strict=True)
        if name != "main"
    }


def is_any(comparison: Comparison) -> bool:
    tables = (comparison.program, comparison.self_changes, comparison.inclusive_changes)
    return any(table.is_significant.any() for table in tables)


def test_the_same_function_is_found_by_name_and_module() -> None:
    a = profile_of(Frame("f", file="x.c"), Frame("f", file="y.c"), Frame("g", module="/lib/one.so"))
    b = profile_of(Frame("f", file="y.c"), Frame("f", file="x.c"), Frame("g", module="/lib/one.so"))
    assert set(compare(a, b).functions.match) == {Match.SAME}
    assert len(compare(a, b).functions) == 4


def test_a_function_that_moved_to_another_module_is_found_by_its_name() -> None:
    a, b = profile_of(Frame("g", module="/lib/one.so")), profile_of(Frame("g", module="/lib/two.so"))
    assert matches(compare(a, b)) == {("g", "g"): Match.MOVED}


def test_a_function_of_javascript_is_itself_where_lines_were_added_above_it() -> None:
    def script(*names: str) -> Profile:
        return profile_of(*(Frame(f"JS:{name}", file="/app.js", module="[anon]") for name in names))

    a = script("f /app.js:1:9", "run /app.js:5:9", "run /app.js:9:9", " /app.js:20:1", "g /lib.js:1:1")
    b = script("f /app.js:3:9", "run /app.js:7:9", "run /app.js:11:9", " /app.js:22:1", "g /app.js:1:1")
    found = matches(compare(a, b))
    assert found.pop(("JS:f /app.js:1:9", "JS:f /app.js:3:9")) is Match.MOVED
    # Two have the name run, others none, and the same name in another file is another function.
    assert set(found.values()) == {Match.ONLY_A, Match.ONLY_B}


def test_so_is_one_that_tells_no_column() -> None:
    """Node 18's."""
    a, b = (
        profile_of(*(Frame(f"LazyCompile:{name}", file="/app.js", module="[anon]") for name in names))
        for names in (("f /app.js:1", " /app.js:20"), ("f /app.js:3", " /app.js:22"))
    )
    found = matches(compare(a, b))
    assert found.pop(("LazyCompile:f /app.js:1", "LazyCompile:f /app.js:3")) is Match.MOVED
    assert set(found.values()) == {Match.ONLY_A, Match.ONLY_B}


def test_functions_of_python_that_have_their_name_from_others_are_one_unless_both_have_the_same() -> None:
    def script(**samples: int) -> Profile:
        builder = ProfileBuilder()
        for name, count in samples.items():
            builder.add(
                "main", Frame(name.replace("_", ":"), file="/app.py", module="[python]"), count=count, weight=count
            )
        return builder.build()

    same = compare(script(get_2=75, get_9=25, run=50), script(get_2=25, get_9=75, run=50))
    assert {*matches(same)} == {("get:2", "get:2"), ("get:9", "get:9"), ("run", "run")}
    # Ten lines were added above; or one of them has no sample, by chance.
    for b in (script(get_12=25, get_19=75, run=50), script(get_9=75, get_16=25, run=50), script(get=100, run=50)):
        for found in (compare(script(get_2=75, get_9=25, run=50), b), compare(b, script(get_2=75, get_9=25, run=50))):
            assert matches(found) == {("get", "get"): Match.SAME, ("run", "run"): Match.SAME}
            row = list(found.functions.names).index("get")
            assert found.share_a[row, 0] == found.share_b[row, 0] == pytest.approx(100 * 2 / 3)


def test_a_name_that_two_modules_have_decides_nothing() -> None:
    a = profile_of(Frame("g", module="/lib/one.so"))
    b = profile_of(Frame("g", module="/lib/two.so"), Frame("g", module="/lib/three.so"))
    assert list(matches(compare(a, b)).values()).count(Match.ONLY_B) == 1  # both are keyed ("", "g")
    assert compare(a, b).functions.match.count(Match.ONLY_B) == 2


def test_clones_belong_to_their_function() -> None:
    a = profile_of(Frame("run(int)"))
    b = profile_of(Frame("run(int) [isra.0]"))
    assert matches(compare(a, b)) == {("run(int)", "run(int) [isra.0]"): Match.CLONE}
    b = profile_of(Frame("run(int)"), Frame("run(int) [cold]"))
    comparison = compare(a, b)
    assert matches(comparison) == {("run(int)", "run(int)"): Match.CLONE}
    row = list(comparison.functions.names).index("run(int)")
    assert comparison.share_b[row, 0] == pytest.approx(100)


def test_a_function_that_is_inlined_now_is_still_itself() -> None:
    a = profile_of(Frame("square", 3, "m.h"), Frame("work", 9, "w.c"))
    b = profile_of(Call((Frame("square", 3, "m.h"), Frame("work", 9, "w.c"))))
    assert matches(compare(a, b)) == {("square", "square"): Match.INLINED, ("work", "work"): Match.SAME}


def test_a_renamed_function_is_found_by_its_lines() -> None:
    a = profile_of(*(Frame("old", line, "w.c") for line in (10, 14, 20)), Frame("other", 30, "w.c"))
    b = profile_of(*(Frame("new", line, "w.c") for line in (11, 15, 21)), Frame("other", 31, "w.c"))
    assert matches(compare(a, b))[("old", "new")] is Match.RENAMED
    b = profile_of(*(Frame("new", line, "w.c") for line in (60, 64, 70)))
    assert matches(compare(a, b))[("old", "")] is Match.ONLY_A


def test_nameless_code_is_the_same_only_in_the_same_file() -> None:
    def stripped(build_id: str) -> Profile:
        file = MappedFile("/lib/z.so", build_id)
        frame = Frame("[stripped] z.so+0x10", module="/lib/z.so")
        return profile_of(Call((frame,), 0x10, Unknown.STRIPPED), files=[file])

    assert compare(stripped("aa"), stripped("aa")).functions.match.count(Match.SAME) == 2
    assert Match.ONLY_A in compare(stripped("aa"), stripped("bb")).functions.match


def test_nameless_code_of_the_kernel_is_the_same_only_in_the_same_boot() -> None:
    frame = Frame("[no symbol] [kernel]+0xffffffffc004c244", module="[kernel]")
    kernel = profile_of(Call((frame,), 0xFFFFFFFFC004C244), files=[MappedFile("[kernel]", "", FileKind.KERNEL)])

    def matches_of(boot_a: str, boot_b: str) -> Sequence[Match]:
        return compare(replace(kernel, boot_id=boot_a), replace(kernel, boot_id=boot_b)).functions.match

    assert set(matches_of("one", "one")) == {Match.SAME}
    assert Match.ONLY_A in matches_of("one", "other")
    assert Match.ONLY_A in matches_of("", "")


def test_what_is_unknown_for_one_reason_is_one_row() -> None:
    unknown = [
        Call((Frame("[no mapping]", module=""),), 0x10, Unknown.NO_MAPPING),
        Call((Frame("[incomplete: jit without frame pointers]", module=""),), 0x20),
        Call((Frame("[no perf map] [anon] of process 7", module="[anon]"),), 0x30, Unknown.NO_PERF_MAP),
    ]
    elsewhere = [replace(call, address=call.address + 0x1000) for call in unknown]
    assert set(compare(profile_of(*unknown), profile_of(*elsewhere)).functions.match) == {Match.SAME}


def test_function_ids_lead_to_rows_also_without_a_stack() -> None:
    a, b = ProfileBuilder().add().add("f").build(), ProfileBuilder().add("g").add("f").add().build()
    comparison = compare(a, b)
    assert comparison.functions.row_of_a[-1] == comparison.functions.row_of_b[-1] >= 0
    assert comparison.functions.names[comparison.functions.row_of_b[-1]] == "[no call stack]"


@pytest.mark.parametrize("has_phases", [False, True])
def test_a_slow_down_of_a_tenth_is_found_and_nothing_else_blamed(has_phases: bool) -> None:
    random = np.random.default_rng(5)
    found = 0
    for _ in range(40):
        a = simulate_run(random, PROGRAM, seconds=20, has_phases=has_phases)
        b = simulate_run(random, PROGRAM, seconds=20, has_phases=has_phases, slow={"work": 1.1})
        comparison = compare(a, b)
        names = [
            comparison.functions.names[row]
            for row in np.flatnonzero(comparison.self_changes.is_significant[:, 0]).tolist()
        ]
        found += names == ["work"]
    assert found >= 34


@pytest.mark.parametrize(
    "scatter",
    [{}, {"jitter": 0.05}, {"machine": 0.01}, {"has_phases": True}],
    ids=["none", "jitter", "machine", "phases"],
)
def test_the_same_program_seldom_seems_changed(scatter: dict[str, Any]) -> None:
    random = np.random.default_rng(7)
    alarms = sum(
        is_any(compare(simulate_run(random, PROGRAM, **scatter), simulate_run(random, PROGRAM, **scatter)))
        for _ in range(100)
    )
    assert alarms <= 5


def test_a_slower_machine_is_no_change_of_functions() -> None:
    random = np.random.default_rng(11)
    a = simulate_run(random, PROGRAM, seconds=60)
    b = simulate_run(random, PROGRAM, seconds=60, slow=dict.fromkeys(PROGRAM, 1.03))
    comparison = compare(a, b)
    assert not is_any(comparison)
    assert comparison.common_factor[0] == pytest.approx(1.03, abs=0.02)


def test_all_functions_slower_by_more_than_machines_differ_is_change() -> None:
    random = np.random.default_rng(13)
    a = simulate_run(random, PROGRAM, seconds=60)
    b = simulate_run(random, PROGRAM, seconds=60, slow=dict.fromkeys(PROGRAM, 1.2))
    comparison = compare(a, b)
    assert comparison.program.is_significant[0, 0]
    assert not is_any(compare(a, b, noise_percent=40))


def test_shares_are_compared_where_a_run_has_no_end() -> None:
    random = np.random.default_rng(17)
    long, short = simulate_run(random, PROGRAM, seconds=30), simulate_run(random, PROGRAM, seconds=10)
    comparison = compare(long, short, basis=Basis.SHARE)
    assert not is_any(comparison)
    assert comparison.program.a.shape == (1, 0)
    row = list(comparison.functions.names).index("work")
    assert comparison.self_changes.a[row, 0] == pytest.approx(40, abs=2)
    assert compare(long, ProfileBuilder().add("f").build()).basis is Basis.SHARE


def test_with_shares_the_others_are_not_blamed_for_one() -> None:
    random = np.random.default_rng(31)
    blamed = 0
    for _ in range(30):
        a = simulate_run(random, PROGRAM, seconds=30)
        b = simulate_run(random, PROGRAM, seconds=30, slow={"work": 1.2})
        comparison = compare(a, b, basis=Basis.SHARE)
        marked = np.flatnonzero(comparison.self_changes.is_significant[:, 0]).tolist()
        names = {comparison.functions.names[row] for row in marked}
        assert "work" in names
        assert comparison.common_factor[0] == pytest.approx(1 / 1.08, abs=0.05)
        blamed += names != {"work"}
    assert blamed <= 4


def test_what_only_one_profile_has_is_listed_and_judged() -> None:
    random = np.random.default_rng(19)
    a = simulate_run(random, PROGRAM)
    b = simulate_run(random, {**PROGRAM, "novel": 0.2})
    comparison = compare(a, b)
    row = list(comparison.functions.names).index("novel")
    assert comparison.functions.match[row] is Match.ONLY_B
    assert comparison.self_changes.is_significant[row, 0]
    assert comparison.self_changes.a[row, 0] == 0
    assert np.isinf(comparison.self_changes.relative()[row, 0])


def test_amounts_are_those_of_the_exact_total() -> None:
    profile = simulate_run(np.random.default_rng(23), PROGRAM)
    comparison = compare(profile, profile)
    assert comparison.program.a[0, 0] == pytest.approx(float(profile.events[0].total or 0))
    assert comparison.self_changes.a[:, 0].sum() == pytest.approx(float(profile.events[0].total or 0))
    assert not is_any(comparison)
    inside = (comparison.self_changes.low[:, 0] <= 0) & (comparison.self_changes.high[:, 0] >= 0)
    assert inside.all()


def test_other_events_are_named() -> None:
    faults = EventInfo("page-faults", Unit.COUNT, period=1)
    a = ProfileBuilder([CLOCK]).add("f").build()
    b = ProfileBuilder([faults]).add("f").build()
    with pytest.raises(TdprofError, match="A has cpu-clock, B has page-faults"):
        compare(a, b)
    both = ProfileBuilder([CLOCK, faults]).add("f").add("f", event=1).build()
    assert compare(a, both).notes == ["only B has page-faults"]


def test_other_rates_are_one_note() -> None:
    def sampled(hz: int, count: int) -> Profile:
        events = [EventInfo(f"event-{number}", Unit.COUNT, frequency_hz=hz) for number in range(count)]
        builder = ProfileBuilder(events)
        for number in range(count):
            builder.add("f", event=number)
        return builder.build()

    assert compare(sampled(99, 9), sampled(99, 9)).notes == []
    assert compare(sampled(99, 1), sampled(199, 1)).notes == [
        "event-0 was sampled at other rates, which the intervals take into account"
    ]
    assert compare(sampled(99, 9), sampled(199, 9)).notes == [
        "9 of 9 events (event-0, event-1, event-2, event-3, event-4 and 4 more) were sampled at other rates, "
        "which the intervals take into account"
    ]


def findings_of(profile: Profile, ipc: dict[str, tuple[float, float]]) -> Findings:
    """Findings with one metric of the functions named, (value, half width)."""

    def table(values: list[tuple[float, float]]) -> MetricTable:
        columns = np.array(values, np.float64).reshape(-1, 2)
        shape = (len(columns), 1)
        return MetricTable(
            ["ipc"],
            ["per cycle"],
            ["pmu"],
            columns[:, :1],
            columns[:, 1:],
            np.full(shape, 1000, np.uint64),
            np.ones(shape, bool),
        )

    names = list(profile.functions.name)
    ids = np.array([names.index(name) for name in ipc], np.int32)
    nothing = Diagnosis((), (), "")
    none = np.zeros(0, np.int32)
    return Findings(
        catalog=load_packaged("neoverse-n1"),
        program=table([(1.5, 0.01)]),
        program_diagnosis=nothing,
        function=ids,
        functions=table(list(ipc.values())),
        inclusive=table(list(ipc.values())),
        diagnoses=[nothing] * len(ids),
        line_function=none,
        line=none.astype(np.uint32),
        lines=table([]),
    )


def test_metrics_are_compared_by_their_intervals() -> None:
    random = np.random.default_rng(29)
    a, b = simulate_run(random, PROGRAM), simulate_run(random, PROGRAM)
    before = findings_of(a, {"work": (2.0, 0.1), "parse": (1.0, 0.1), "hash": (1.0, float("nan"))})
    after = findings_of(b, {"parse": (1.05, 0.1), "work": (1.0, 0.1), "hash": (3.0, 0.1)})
    comparison = compare(a, b, before, after)
    column = comparison.self_changes.column("ipc")
    assert column is not None
    names = list(comparison.functions.names)
    work, parse, hashes = (names.index(name) for name in ("work", "parse", "hash"))
    assert comparison.self_changes.is_significant[work, column]
    assert comparison.self_changes.high[work, column] < 0
    assert not comparison.self_changes.is_significant[parse, column]
    assert np.isnan(comparison.self_changes.p[hashes, column])
    assert comparison.program.a[0, comparison.program.column("ipc")] == 1.5
    assert compare(a, b, before, None).notes == ["only A has metrics (record --topdown): none can be compared"]


def topdown_pair(seed: int, codes: Sequence[Code] = EXAMPLE) -> Comparison:
    """A program and, with other samples, one that does ``codes``."""
    a, b = topdown_profile(seed=seed), topdown_profile(codes, seed=seed + 1)
    return compare(calibrated(a), calibrated(b), find_findings(a), find_findings(b))


@pytest.mark.thorough
def test_metrics_of_one_program_do_not_change() -> None:
    comparisons = [topdown_pair(seed) for seed in range(0, 20, 2)]
    assert [quantity.name for quantity in comparisons[0].inclusive_changes.quantities] == ["CPU_CYCLES", "INST_RETIRED"]
    assert sum(map(is_any, comparisons)) <= 2


def test_more_cache_misses_are_found_where_they_are() -> None:
    worse = [
        replace(code, events={**code.events, "L1D_CACHE_REFILL": 1.5 * code.events["L1D_CACHE_REFILL"]})
        if code is MEMORY_BOUND
        else code
        for code in EXAMPLE
    ]
    comparison = topdown_pair(50, worse)
    column = comparison.self_changes.column("l1d_cache_miss_ratio")
    assert column is not None
    changed = np.flatnonzero(comparison.self_changes.is_significant[:, column]).tolist()
    assert [comparison.functions.names[row] for row in changed] == [MEMORY_BOUND.name]
    true = 0.5 * MEMORY_BOUND.count("L1D_CACHE_REFILL") / MEMORY_BOUND.count("L1D_CACHE")
    low, high = comparison.self_changes.low[changed[0], column], comparison.self_changes.high[changed[0], column]
    assert abs((low + high) / 2 - true) < high - low  # four standard errors: of 95 % intervals one in twenty misses
    assert not comparison.self_changes.is_significant[:, 0].any()  # no other time
