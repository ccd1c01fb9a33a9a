"""Estimates and their intervals on simulated recordings; tools/bench/accuracy does the same a thousand times.

Runs are seeded, so a failure is no chance. The bounds are far enough from what is expected, 95 to 97 %, that fewer than
one in 10,000 choices of seeds would miss them: values of one run move together, hence they count as few.
"""

import numpy as np
import pytest

from builders.coverage import BROKEN, KEPT, MIXED, Case, measure
from builders.simulation import Recording, simulate
from tdprof.metrics import estimate
from tdprof.model.findings import Findings
from tdprof.pipeline.load import find_findings
from tdprof.profile.frames import function_names
from tdprof.profile.statistics import MIN_SAMPLES

RUNS = {1: 60, 3: 15}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.title, marks=[pytest.mark.thorough] * (case is not KEPT[0])) for case in KEPT],
)
def test_intervals_hold_the_truth_as_often_as_they_say(case: Case) -> None:
    found = measure(case, range(RUNS[1 if "one group" in case.title else 3]))
    # 15 independent values a run: four standard errors of 96 % are five points with 15 runs.
    assert found.count() > 600
    assert 0.905 < found.share() < 0.995
    # The largest of 70 mean errors of 15 runs: five standard errors of a mean.
    assert found.worst_bias() < 5 / found.runs**0.5


def test_code_that_stays_is_known_better_than_chance() -> None:
    """Visits ten times as long as the sampling period: independent samples would be known six times worse."""
    staying = next(case for case in KEPT if "50 ms" in case.title)
    found = measure(staying, range(6))
    errors = np.concatenate([np.array(each) for each in found.errors.values()])
    assert len(errors) > 120
    assert 0.5 < 1.96 * np.sqrt(np.mean((errors[:, 0] / errors[:, 1]) ** 2)) < 1.1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "SCATTER_FREEDOM", np.inf)
        independent = measure(staying, range(6))
    half = [np.median([half for each in one.errors.values() for _, half in each]) for one in (found, independent)]
    assert half[0] < 0.4 * half[1]


def test_all_that_main_calls_is_no_surer_than_the_program() -> None:
    """Of all samples only multiplexing is in doubt, which two intervals that look alike by chance seem to deny."""
    recording = Recording(MIXED, seconds=1.7)
    for seed in range(2):
        profile = simulate(KEPT[0].program, recording, seed=seed).profile
        findings = find_findings(profile)
        assert findings is not None
        names = [function_names(profile)[function] for function in findings.function]
        program = dict(findings.program.row(0))
        main = dict(findings.inclusive.row(names.index("main")))
        known = [name for name, value in main.items() if value.samples >= MIN_SAMPLES]
        assert len(known) > 10
        assert all(main[name].half_width > 0.9 * program[name].half_width for name in known)


def test_phases_in_step_with_the_turns_are_not_covered() -> None:
    """What docs/accuracy.md warns of: the test of coverage can fail."""
    assert measure(BROKEN[-1], range(4)).share() < 0.9


def test_crediting_whole_intervals_makes_every_function_look_like_the_average() -> None:
    run = simulate(KEPT[0].program, KEPT[0].recording, seed=1)
    truth, wrong, average = run.truth["chase"], run.by_interval["chase"], run.program
    for metric in ("backend_bound", "frontend_bound", "retiring"):
        assert abs(wrong[metric] - average[metric]) < 0.25 * abs(truth[metric] - average[metric])
    findings = find_findings(run.profile)
    assert findings is not None
    ours = backend_bound(findings, function_names(run.profile))
    assert abs(ours - truth["backend_bound"]) < 0.25 * abs(truth["backend_bound"] - average["backend_bound"])


def backend_bound(findings: Findings, names: list[str]) -> float:
    row = [names[function] for function in findings.function].index("chase")
    return dict(findings.functions.row(row))["backend_bound"].value
