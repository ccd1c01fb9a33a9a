"""Phases: change points are found where they are, and not where there are none."""

import numpy as np
import pytest

from builders.profiles import ProfileBuilder
from tdprof.model.arrays import F64
from tdprof.model.choices import GroupKind
from tdprof.model.profile import Profile
from tdprof.profile.groups import group_samples
from tdprof.profile.intervals import even_intervals
from tdprof.profile.phases import (
    FALSE_POSITIVE_RATE,
    LEAST_ACTIVITY_CHANGE,
    LEAST_CHANGE,
    Observed,
    find_cuts,
    find_phases,
)

S = 1_000_000_000
SHARES = np.array([0.5, 0.2, 0.15, 0.1, 0.05])


def observed(counts: F64) -> list[Observed]:
    """Of how many samples each function has in each bin, as `find_phases` asks."""
    whole = counts.sum(axis=1)
    most = np.full_like(whole, whole.max())
    return [Observed(counts, whole, LEAST_CHANGE), Observed(whole[:, None], most, LEAST_ACTIVITY_CHANGE)]


def steady(random: np.random.Generator, bins: int, samples: int, concentration: float) -> F64:
    """Shares that scatter around the same from bin to bin, more than samples alone would where work comes in lumps."""
    shares = random.dirichlet(SHARES * concentration, bins) if concentration else np.tile(SHARES, (bins, 1))
    return np.array([random.multinomial(random.poisson(samples), each) for each in shares], np.float64)


@pytest.mark.parametrize("concentration", [0, 30])
@pytest.mark.parametrize(("bins", "samples"), [(12, 900), (60, 40)])
def test_what_stays_alike_is_cut_as_seldom_as_is_said(bins: int, samples: int, concentration: float) -> None:
    random = np.random.default_rng(18)
    rounds = 150 if bins < 60 else 60
    cut = sum(bool(find_cuts(observed(steady(random, bins, samples, concentration)), n)) for n in range(rounds))
    mean = rounds * FALSE_POSITIVE_RATE
    assert cut <= mean + 4 * mean**0.5


@pytest.mark.parametrize("lengths", [(20, 20), (15, 6, 20), (10, 10, 10, 10), (300, 250, 400)])
def test_changes_are_found_within_a_bin_of_where_they_are(lengths: tuple[int, ...]) -> None:
    random = np.random.default_rng(7)
    shares = [SHARES if n % 2 else SHARES[::-1] for n in range(len(lengths))]
    counts = [random.multinomial(100, of, bins) for of, bins in zip(shares, lengths, strict=True)]
    found = find_cuts(observed(np.concatenate(counts).astype(np.float64)))
    assert len(found) == len(lengths) - 1
    assert np.abs(np.array(found) - np.cumsum(lengths)[:-1]).max() <= 1


@pytest.mark.parametrize("into", range(10))
def test_a_change_within_a_stretch_of_the_search_is_one_change(into: int) -> None:
    random = np.random.default_rng(0)
    is_first = (np.arange(1200) < 360 + into) | (np.arange(1200) >= 600 + into)
    counts = random.poisson(8, 1200)[:, None] * np.stack([is_first, ~is_first], axis=1)
    found = find_cuts(observed(counts.astype(np.float64)))
    assert len(found) == 2
    assert np.abs(np.array(found) - (360 + into, 600 + into)).max() <= 1


def test_work_that_takes_turns_with_other_work_is_one_phase() -> None:
    counts = np.tile([[100.0, 0], [0, 100]], (30, 1))
    assert find_cuts(observed(counts)) == []


def program(*, has_sample_times: bool = False) -> Profile:
    """Reads for 12 s, sorts for 12 s, then hardly does anything for 12 s; in intervals of 1 s, or at random moments."""
    random = np.random.default_rng(1)
    builder = ProfileBuilder()
    for second in range(36):
        for name, share in (("copy", 0.8), ("check", 0.2)):
            samples = int(random.poisson(1000 * share * (0.05 if second >= 24 else 1)))
            path = ("main", "read" if second < 12 else "sort", name)
            moments = second + (np.sort(random.random(40)) if has_sample_times else np.ones(1))
            counts = random.multinomial(samples, np.full(len(moments), 1 / len(moments)))
            for at_s, count in zip(moments[counts > 0], counts[counts > 0].tolist(), strict=True):
                builder.add(*path, weight=count * 1_000_000, count=count, time_ns=round(at_s * S))
    return builder.build(duration_ns=36 * S, has_sample_times=has_sample_times)


@pytest.mark.parametrize("has_sample_times", [False, True])
def test_callers_and_how_much_there_is_make_phases_too(has_sample_times: bool) -> None:
    profile = program(has_sample_times=has_sample_times)
    found = find_phases(profile, 0)
    assert found.stretches.begin / S == pytest.approx([0, 12, 24], abs=1)
    assert (found.stretches.begin[1:] == found.stretches.end[:-1]).all()
    names = profile.functions.name
    changed = {(names[each.function or 0], round(each.before), round(each.after)) for each in found.changes[1]}
    assert {("read", 1, 0), ("sort", 0, 1)} <= changed
    [less] = found.changes[2]
    assert less.function is None
    assert less.after == pytest.approx(0.05, abs=0.04)
    rows = group_samples(profile, GroupKind.PHASE)
    assert rows.weight.sum() == profile.samples.weight.sum()
    assert len(rows) == 3


def test_time_without_samples_is_a_phase_with_none() -> None:
    builder = ProfileBuilder()
    for second in [*range(1, 13), *range(25, 37)]:
        builder.add("main", weight=1000, count=1000, time_ns=second * S)
    profile = builder.build(duration_ns=36 * S)
    assert even_intervals(profile, 100).begin.tolist() == [second * S for second in range(36)]
    rows = group_samples(profile, GroupKind.PHASE)
    assert [(begin / S, end / S) for begin, end in rows.seconds] == [(0, 12), (12, 24), (24, 36)]
    assert rows.weight[:, 0].tolist() == [12_000, 0, 12_000]


def test_nothing_has_no_phases() -> None:
    assert len(group_samples(ProfileBuilder().build(), GroupKind.PHASE)) == 0
    assert len(group_samples(ProfileBuilder(events=()).build(), GroupKind.PHASE)) == 0
