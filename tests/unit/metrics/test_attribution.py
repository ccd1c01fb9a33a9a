"""Metrics of functions from samples whose truth is known, and what is said where too little was seen."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from builders.profiles import ProfileBuilder
from builders.topdown import EXAMPLE, MEMORY_BOUND, Code, topdown_profile, true_metrics
from tdprof.catalog.choose import find_by_name
from tdprof.metrics.attribution import attribute_metrics
from tdprof.metrics.observations import sample_entries
from tdprof.model.events import EventInfo, Unit
from tdprof.model.findings import Findings, MetricValue
from tdprof.model.profile import Profile, SampleTable
from tdprof.pipeline.load import find_findings
from tdprof.profile.frames import function_names
from tdprof.profile.statistics import MIN_SAMPLES

LEVEL_1 = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")


def findings_of(profile: Profile) -> Findings:
    found = find_findings(profile)
    assert found is not None
    return found


def row_of(profile: Profile, findings: Findings, name: str) -> int:
    return [function_names(profile)[function] for function in findings.function].index(name)


def metrics_of(profile: Profile, name: str) -> dict[str, MetricValue]:
    findings = findings_of(profile)
    return dict(findings.functions.row(row_of(profile, findings, name)))


def with_events(profile: Profile, events: Sequence[EventInfo]) -> Profile:
    return replace(profile, events=events)


def without_samples(profile: Profile, keep: np.ndarray) -> Profile:
    samples = profile.samples
    return replace(profile, samples=SampleTable(*(getattr(samples, name)[keep] for name in SampleTable.__slots__)))


def test_every_function_and_the_program_are_within_their_intervals() -> None:
    profile = topdown_profile()
    findings = findings_of(profile)
    hits = []
    for code in EXAMPLE:
        truth = true_metrics([code])
        values = dict(findings.functions.row(row_of(profile, findings, code.name)))
        hits += [
            abs(value.value - truth[name]) <= value.half_width for name, value in values.items() if value.is_significant
        ]
    # 97 % would be hit by more than 99 % of seeds if the intervals were right; half as wide they would hit 67 %.
    assert len(hits) > 250
    assert np.mean(hits) > 0.92
    truth = true_metrics(EXAMPLE)
    for name, value in findings.program.row(0):
        assert value.value == pytest.approx(truth[name], rel=1e-6)
        assert value.half_width < 1e-6 * max(1, abs(value.value))
        assert value.is_significant


def test_bottlenecks_are_those_that_the_functions_have() -> None:
    profile = topdown_profile()
    findings = findings_of(profile)
    found = {code.name: findings.diagnoses[row_of(profile, findings, code.name)] for code in EXAMPLE}
    assert found["chase"].path == (
        "backend_bound",
        "backend_mem_bound",
        "backend_mem_cache_bound",
        "backend_cache_l2d_bound",
    )
    assert tuple(found["chase"].groups[:2]) == ("L2_Cache_Effectiveness", "LL_Cache_Effectiveness")
    assert found["interpret"].path[-1] == "frontend_cache_l1i_bound"
    assert found["sort"].path == ("bad_speculation",)
    assert found["mix"].path == ("retiring",)
    assert found["tidy_up"].bottleneck is None
    assert found["chase"].advice.startswith("Backend Cache L2D Bound: ")
    assert not found["tidy_up"].advice


def test_level_1_adds_up_in_every_function() -> None:
    profile = topdown_profile()
    findings = findings_of(profile)
    columns = [list(findings.functions.metrics).index(name) for name in LEVEL_1]
    row = row_of(profile, findings, "sort")
    # Each event was sampled on its own, so that the sum has the noise of STALL_SLOT against its two parts.
    total = findings.functions.value[row, columns].sum()
    assert total == pytest.approx(100, abs=float(np.linalg.norm(findings.functions.half_width[row, columns])))


def test_inclusive_is_of_a_function_with_all_that_it_calls() -> None:
    profile = topdown_profile()
    findings = findings_of(profile)
    names = function_names(profile)
    inclusive = dict(findings.inclusive.row(row_of(profile, findings, "solve")))
    truth = true_metrics([code for code in EXAMPLE if code.name == "solve" or "solve" in code.callers])
    for name in LEVEL_1:
        assert abs(inclusive[name].value - truth[name]) < 1.5 * inclusive[name].half_width
    assert names[findings.function[0]] == "chase"
    everything = dict(findings.inclusive.row(row_of(profile, findings, "main")))
    assert everything["ipc"].value == pytest.approx(true_metrics(EXAMPLE)["ipc"], rel=1e-6)


def test_of_too_many_functions_those_with_the_largest_shares_have_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = topdown_profile()
    whole = findings_of(profile)
    monkeypatch.setattr("tdprof.metrics.attribution._MOST_ROWS", 3)
    some = findings_of(profile)
    names = [function_names(profile)[function] for function in some.function]
    assert len(names) == 3
    assert "main" in names  # of itself it has next to nothing
    assert some.left_out == len(whole.function) - 3
    for name in names:
        rows = [row_of(profile, findings, name) for findings in (whole, some)]
        assert whole.functions.row(rows[0]) == some.functions.row(rows[1])
        assert whole.inclusive.row(rows[0]) == some.inclusive.row(rows[1])


def test_metrics_are_told_over_time() -> None:
    told = (*LEVEL_1, "ipc")
    slow, fast = Code("f", 50, MEMORY_BOUND.events), Code("g", 50)
    first, then = (topdown_profile([code], samples=40_000, metrics=told, seconds=4) for code in (slow, fast))
    later = replace(then.samples, time_ns=then.samples.time_ns + np.uint64(4_000_000_000))
    columns = {
        name: np.concatenate([getattr(first.samples, name), getattr(later, name)]) for name in SampleTable.__slots__
    }
    events = [
        replace(one, total=(one.total or 0) + (other.total or 0))
        for one, other in zip(first.events, then.events, strict=True)
    ]
    both = replace(first, events=events, samples=SampleTable(**columns), duration_ns=8_000_000_000)
    times = find_findings(both, by_time=True)
    assert times
    assert times.times
    n = len(times.times.begin)
    assert n >= 8
    assert times.times.end[-1] == 8_000_000_000
    table = times.times.metrics
    assert set(table.metrics) == set(told)
    truths = true_metrics([slow]), true_metrics([fast])
    hits = [
        abs(table.value[row, column] - truths[row >= n // 2][name]) <= table.half_width[row, column]
        for row in range(n)
        for column, name in enumerate(table.metrics)
    ]
    # Of so many of 95 % intervals; both halves' values differ by far more.
    assert np.mean(hits) > 0.8
    assert abs(truths[0]["backend_bound"] - truths[1]["backend_bound"]) > 20


def test_metrics_over_time_are_for_who_asks() -> None:
    assert findings_of(topdown_profile()).times is None


def test_lines_have_metrics_of_their_own() -> None:
    slow, fast = Code("f", 50, MEMORY_BOUND.events, line=3), Code("f", 50, line=9)
    profile = topdown_profile([slow, fast])
    findings = findings_of(profile)
    by_line = {int(line): dict(findings.lines.row(i)) for i, line in enumerate(findings.line)}
    for code in (slow, fast):
        value = by_line[code.line]["backend_bound"]
        assert abs(value.value - true_metrics([code])["backend_bound"]) < 1.5 * value.half_width
    assert set(by_line) == {3, 9}


def test_call_paths_have_metrics_of_their_own() -> None:
    slow = Code("f", 40, MEMORY_BOUND.events, callers=("main", "scan"))
    fast = Code("f", 60, callers=("main", "lookup"))
    profile = topdown_profile([slow, fast])
    paths, names = findings_of(profile).call_paths, function_names(profile)
    assert paths is not None
    [leaf] = {each[0] for each in map(paths.functions_of, range(len(paths.share)))}
    found = paths.ending_in(leaf)
    assert [[names[each] for each in paths.functions_of(path)] for path in found] == [
        ["f", "lookup", "main"],
        ["f", "scan", "main"],
    ]
    for path, code in zip(found, (fast, slow), strict=True):
        value = dict(paths.metrics.row(path))["backend_bound"]
        assert abs(value.value - true_metrics([code])["backend_bound"]) < 1.5 * value.half_width
        assert value.half_width < 10
        assert paths.share[path] == pytest.approx(code.cycles / 100, abs=0.05)


def test_what_gave_no_sample_is_only_known_to_be_below_a_bound() -> None:
    clean = Code("clean", 50, {"BR_MIS_PRED_RETIRED": 0, "STALL_FRONTEND_FLUSH": 0})
    profile = topdown_profile([clean, Code("other", 50)])
    findings = findings_of(profile)
    row, column = row_of(profile, findings, "clean"), list(findings.functions.metrics).index("branch_mpki")
    assert findings.functions.value[row, column] == 0
    # 3.7 periods: with 4,000 samples in as many instructions of `other`.
    assert 0 < findings.functions.half_width[row, column] < 6 / 1.8 * 3.7 / 4000 * 1.2
    assert not findings.functions.is_significant[row, column]
    # Where it is but a small part of a sum the sum is known.
    values = dict(findings.functions.row(row))
    assert values["frontend_bound"].is_significant
    assert abs(values["frontend_bound"].value - 14) < 1.5 * values["frontend_bound"].half_width


def test_an_event_that_never_happened_is_zero() -> None:
    codes = [Code("f", 50, {"CRYPTO_SPEC": 0}), Code("g", 50, {"CRYPTO_SPEC": 0})]
    profile = topdown_profile(codes)
    assert metrics_of(profile, "f")["crypto_percentage"].value == 0
    assert dict(findings_of(profile).program.row(0))["crypto_percentage"].value == 0


def test_few_samples_are_not_significant() -> None:
    profile = topdown_profile(samples=4000)
    findings = findings_of(profile)
    for name, value in findings.functions.row(row_of(profile, findings, "tidy_up")):
        assert not value.is_significant, name
        assert value.samples < MIN_SAMPLES


def test_a_group_that_never_ran_leaves_its_metrics_out() -> None:
    profile = topdown_profile()
    assert profile.topdown is not None
    dead = next(group for group in profile.topdown.groups if "branch_mpki" in group.metrics)
    events = [
        replace(event, total=0, running_ns=0) if row in dead.events else event
        for row, event in enumerate(profile.events)
    ]
    profile = without_samples(with_events(profile, events), ~np.isin(profile.samples.event, dead.events))
    values = metrics_of(profile, "chase")
    assert "branch_mpki" not in values
    assert values["ipc"].is_significant


def test_metrics_spread_over_groups_are_scaled_together() -> None:
    profile = topdown_profile(metrics=LEVEL_1, counters=2, samples=20_000)
    assert profile.topdown is not None
    assert "bad_speculation" in profile.topdown.split_metrics
    values, truth = metrics_of(profile, "sort"), true_metrics([EXAMPLE[2]])
    for name in LEVEL_1:
        assert abs(values[name].value - truth[name]) < 1.5 * values[name].half_width
        assert values[name].is_significant


def test_without_a_cycle_counter_groups_need_no_cycles() -> None:
    profile = topdown_profile(metrics=("branch_mpki", "l1d_cache_mpki"), has_cycle_counter=False)
    values = metrics_of(profile, "sort")
    assert (
        abs(values["branch_mpki"].value - true_metrics([EXAMPLE[2]])["branch_mpki"]) < values["branch_mpki"].half_width
    )


def test_totals_that_could_not_be_read_leave_the_weights() -> None:
    profile = topdown_profile()
    unread = [replace(event, total=None, enabled_ns=None, running_ns=None) for event in profile.events]
    values, truth = metrics_of(with_events(profile, unread), "chase"), true_metrics([MEMORY_BOUND])
    assert abs(values["backend_bound"].value - truth["backend_bound"]) < 1.5 * values["backend_bound"].half_width


def test_counts_are_calibrated_to_the_exact_totals() -> None:
    profile = topdown_profile()
    assert profile.topdown is not None
    # Half of one event's samples were lost: its weights say half of what was counted.
    row = next(row for group in profile.topdown.groups for row in group.events if "ipc" in group.metrics)
    weight = profile.samples.weight.copy()
    weight[profile.samples.event == row] //= 2
    halved = replace(profile, samples=replace(profile.samples, weight=weight))
    assert metrics_of(halved, "chase")["ipc"].value == pytest.approx(
        metrics_of(profile, "chase")["ipc"].value, rel=1e-3
    )


def test_samples_of_unequal_weight_have_wider_intervals() -> None:
    profile = topdown_profile()
    heavy = np.arange(len(profile.samples.weight)) % 2 == 0
    weight = np.where(heavy, profile.samples.weight * 5, profile.samples.weight).astype(np.uint64)
    uneven = replace(profile, samples=replace(profile.samples, weight=weight))
    even_width = metrics_of(profile, "chase")["ipc"].half_width
    assert metrics_of(uneven, "chase")["ipc"].half_width > 1.1 * even_width


def test_threads_with_unlike_periods_are_no_scatter() -> None:
    """A thread keeps the period that it began with: weights differ between rows, and not within them."""
    profile = topdown_profile()
    second = profile.samples.time_ns > 2_000_000_000
    weight = np.where(second, profile.samples.weight * 3, profile.samples.weight).astype(np.uint64)
    events = [replace(event, period=0, frequency_hz=199) for event in profile.events]  # as the recorder writes them
    uneven = replace(profile, events=events, samples=replace(profile.samples, weight=weight))
    even_width = metrics_of(profile, "chase")["load_percentage"].half_width
    # Kish: half of the samples at three times the weight are worth (1 + 3)^2 / (2 (1 + 9)) = 0.8 of them.
    assert metrics_of(uneven, "chase")["load_percentage"].half_width < 1.5 * even_width


def test_rows_with_samples_of_two_periods_have_the_squares_of_both() -> None:
    """Each function begins under a first period and goes on under another one, found while the interval lasted."""
    first, later = 10_000_019, 600_011
    builder = ProfileBuilder([EventInfo("CPU_CYCLES", Unit.COUNT, frequency_hz=199)])
    wanted = []
    for name, heavy, light in (("start", 1, 0), ("f", 30, 400), ("g", 5, 700), ("late", 0, 50)):
        builder.add(name, count=heavy + light, weight=heavy * first + light * later)
        wanted.append(heavy * first**2 + light * later**2)
    # A sample of a row more or less is what the row's own mean leaves open.
    assert sample_entries(builder.build()).squares == pytest.approx(wanted, rel=0.05)


def test_code_without_a_heavy_sample_may_just_have_missed_them() -> None:
    """A first period stands beside one that is found later, ten times as long."""
    profile = topdown_profile(then=[code for code in EXAMPLE if code is not MEMORY_BOUND], metrics=["ipc"])
    second = profile.samples.time_ns > 4_000_000_000
    weight = np.where(second, profile.samples.weight * 10, profile.samples.weight).astype(np.uint64)
    even = metrics_of(profile, MEMORY_BOUND.name)["ipc"]
    uneven = metrics_of(replace(profile, samples=replace(profile.samples, weight=weight)), MEMORY_BOUND.name)["ipc"]
    # As many samples as 0.6 of them of equal weight, and a fifth of the share.
    assert uneven.half_width / uneven.value > 2 * even.half_width / even.value


def test_nothing_sampled_has_no_values() -> None:
    profile = topdown_profile()
    empty = without_samples(profile, np.zeros(len(profile.samples.event), np.bool_))
    findings = findings_of(empty)
    assert not np.isfinite(findings.functions.value).any()
    # The counters still tell of the program.
    assert dict(findings.program.row(0))["ipc"].value == pytest.approx(true_metrics(EXAMPLE)["ipc"], rel=1e-6)


def test_one_sample_tells_nothing_significant() -> None:
    profile = topdown_profile()
    single = without_samples(profile, np.arange(len(profile.samples.event)) == 0)
    findings = findings_of(single)
    assert not findings.functions.is_significant.any()
    assert all(not diagnosis.path for diagnosis in findings.diagnoses)


def test_other_profiles_have_no_findings() -> None:
    profile = ProfileBuilder().add("main", "f").build()
    assert find_findings(profile) is None
    with pytest.raises(ValueError, match="not a Topdown profile"):
        attribute_metrics(profile, find_by_name("neoverse-n3"))
