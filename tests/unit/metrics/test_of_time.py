"""Metrics of a stretch of a recording's time: each phase of a program has its own, all of it what the recording has."""

from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from builders.topdown import MEMORY_BOUND, RETIRING, Code, topdown_profile, true_metrics
from tdprof.cli import loading
from tdprof.model.choices import Selection
from tdprof.model.findings import Findings, MetricTable, MetricValue
from tdprof.model.profile import Profile
from tdprof.model.time_range import parse_time_ranges
from tdprof.pipeline.load import find_findings
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.calibrate import calibrated
from tdprof.profile.frames import function_names
from tdprof.profile.reliability import turns_doubt
from tdprof.profile.selection import select, why_no_metrics

STAGE_1 = ("frontend_bound", "backend_bound", "retiring", "bad_speculation", "ipc")
# The same functions do other things in the second phase.
SLOW = (Code("f", 60, MEMORY_BOUND.events), Code("g", 40, RETIRING.events))
FAST = (Code("f", 30, RETIRING.events), Code("g", 50), Code("h", 20))
PHASES = {"0s-4s": SLOW, "4s-8s": FAST}


def of_time(*texts: str) -> Selection:
    return Selection(times=tuple(each for text in texts for each in parse_time_ranges(text)))


def findings_of(profile: Profile, *texts: str) -> Findings:
    found = find_findings(profile, part=select(profile, of_time(*texts)))
    assert found is not None
    return found


def metrics_of(profile: Profile, findings: Findings, name: str) -> dict[str, MetricValue]:
    names = [function_names(profile)[function] for function in findings.function]
    return dict(findings.functions.row(names.index(name)))


def bytes_of(table: MetricTable) -> list[bytes]:
    return [each.tobytes() for each in (table.value, table.half_width, table.samples, table.is_significant)]


def test_each_phase_has_its_own_truth() -> None:
    profile = topdown_profile(SLOW, then=FAST, samples=40_000, metrics=STAGE_1)
    hits = []
    for time, codes in PHASES.items():
        found = findings_of(profile, time)
        names = [function_names(profile)[function] for function in found.function]
        assert sorted(names) == sorted({"main", *(code.name for code in codes)})
        for pieces, values in (
            *(((code,), metrics_of(profile, found, code.name)) for code in codes),
            (codes, dict(found.program.row(0))),
        ):
            truth = true_metrics(pieces)
            assert set(values) == set(STAGE_1)
            hits += [abs(value.value - truth[name]) <= value.half_width for name, value in values.items()]
            # The whole recording's values are far from either phase's.
            assert values["backend_bound"].half_width < 5
    assert len(hits) == 35
    assert np.mean(hits) > 0.85
    first, then = (findings_of(profile, time) for time in PHASES)
    assert metrics_of(profile, first, "f")["backend_bound"].value > 75
    assert metrics_of(profile, then, "f")["backend_bound"].value < 15
    assert first.diagnoses[0].path[0] == "backend_bound"


def test_intervals_hold_for_groups_that_took_turns() -> None:
    """All metrics, in thirteen groups, over many seeds: 95 % of the intervals have the truth in them."""
    hits = []
    for seed in range(4):
        profile = topdown_profile(SLOW, then=FAST, seed=seed)
        for time, codes in PHASES.items():
            found = findings_of(profile, time)
            for pieces, values in (
                *(((code,), metrics_of(profile, found, code.name)) for code in codes),
                (codes, dict(found.program.row(0))),
            ):
                truth = true_metrics(pieces)
                hits += [
                    abs(value.value - truth[name]) <= value.half_width
                    for name, value in values.items()
                    if value.is_significant
                ]
    assert len(hits) > 1000
    assert np.mean(hits) > 0.93


def test_less_time_has_wider_intervals() -> None:
    profile = topdown_profile(SLOW, seconds=16, samples=8000, metrics=STAGE_1)
    whole, part = find_findings(profile), findings_of(profile, "4s-8s")
    assert whole is not None
    of_whole, of_part = (metrics_of(profile, each, "f")["ipc"] for each in (whole, part))
    assert of_part.samples == pytest.approx(of_whole.samples / 4, rel=0.1)
    # A quarter of the samples has intervals of twice the width.
    assert of_part.half_width == pytest.approx(2 * of_whole.half_width, rel=0.15)
    # What the counters say of the whole is exact, of a part it is an estimate.
    assert dict(part.program.row(0))["ipc"].half_width > 0
    assert dict(whole.program.row(0))["ipc"].half_width < 1e-6


def test_many_threads_make_the_ends_of_a_time_uncertain() -> None:
    few = topdown_profile(SLOW, metrics=STAGE_1)
    rows = np.arange(len(few.samples.tid))
    many = replace(few, samples=replace(few.samples, tid=(rows % 40).astype(np.uint32)))
    doubts = [dict(findings_of(each, "0s-2s").program.row(0))["ipc"].half_width for each in (few, many)]
    assert 0 < 2 * doubts[0] < doubts[1]


@pytest.mark.parametrize("texts", [("0s-4s", "4s-8s"), ("0%-100%",), ("0s-",)])
def test_all_of_the_time_is_the_recording_to_the_byte(texts: tuple[str, ...]) -> None:
    profile = topdown_profile(SLOW, then=FAST)
    whole, part = find_findings(profile, by_time=True), findings_of(profile, *texts)
    assert whole is not None
    for name in ("program", "functions", "inclusive", "lines"):
        assert bytes_of(getattr(part, name)) == bytes_of(getattr(whole, name)), name
    assert part.function.tolist() == whole.function.tolist()
    assert list(map(astuple, part.diagnoses)) == list(map(astuple, whole.diagnoses))


def test_weights_of_a_part_stand_for_what_they_do_in_the_whole() -> None:
    profile = topdown_profile(SLOW, then=FAST, metrics=STAGE_1)
    part = calibrated(select(profile, of_time("4s-8s")), profile)
    expected = select(calibrated(profile), of_time("4s-8s"))
    assert part.samples.weight.tolist() == expected.samples.weight.tolist()
    assert part.events == expected.events
    assert {event.total for event in part.events} == {None}
    assert part.topdown == profile.topdown


def test_a_part_has_metrics_over_its_time() -> None:
    profile = topdown_profile(SLOW, then=FAST, metrics=STAGE_1)
    found = find_findings(profile, part=select(profile, of_time("4s-8s")), by_time=True)
    assert found is not None
    assert found.times is not None
    assert found.times.begin[0] == 4_000_000_000
    assert found.times.end.tolist()[-1] == 8_000_000_000


def test_what_else_chooses_samples_and_runs_of_their_own_leave_metrics_out() -> None:
    profile = topdown_profile(SLOW, then=FAST, metrics=STAGE_1)
    assert profile.topdown is not None
    passes = replace(profile, topdown=replace(profile.topdown, is_pass_per_group=True))
    assert why_no_metrics(profile, of_time("4s-8s")) == ""
    both = replace(of_time("4s-8s"), pids=(100,))
    for chosen, selection, words in (
        (profile, both, "metrics are of the whole recording"),
        (passes, of_time("4s-8s"), "each counter group had a run of its own"),
    ):
        part = select(chosen, selection)
        assert words in part.notes[0]
        assert part.topdown is None
    assert "metrics" not in select(profile, of_time("4s-8s")).notes[0]


def test_one_interval_does_not_tell_how_turns_scatter() -> None:
    profile = topdown_profile(SLOW)
    one, two = (select(profile, of_time(text)) for text in ("1s-2s", "1s-3s"))
    assert [text[:38] for text in turns_doubt(one, profile)] == ["± of metrics is of sampling alone: one"]
    assert not list(turns_doubt(two, profile))
    single = topdown_profile(SLOW, metrics=["ipc"])  # one group, which took no turns
    assert not list(turns_doubt(select(single, of_time("1s-2s")), single))
    # All there is has the recording's own metrics.
    short = topdown_profile(SLOW, seconds=1)
    assert not list(turns_doubt(select(short, of_time("0s-1s")), short))


def test_what_is_said_of_a_time_says_what_its_metrics_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one note, the first: `annotate` shows no other."""
    monkeypatch.setattr(loading, "load_profile", lambda _: topdown_profile(SLOW))
    capture = cast("OpenCapture", SimpleNamespace())
    part, findings = loading.load_with_findings(capture, Path("c"), selection=of_time("1s-2s"))
    assert findings is not None
    assert part.notes[0].startswith("only samples of --time 1s-2s: ")
    assert "; ± of metrics is of sampling alone: one" in part.notes[0]
    assert "±" not in "".join(part.notes[1:])
