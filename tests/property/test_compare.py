"""What holds of the comparison of any two profiles."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from rich.console import Console

from builders.profiles import profiles
from tdprof.errors import TdprofError
from tdprof.model.choices import Basis
from tdprof.model.profile import Profile
from tdprof.profile.compare import Comparison, Match, compare
from tdprof.profile.frames import frame_stacks
from tdprof.report.comparison.csv import render_csv
from tdprof.report.comparison.json import render_json
from tdprof.report.comparison.text import render_text


def compared(a: Profile, b: Profile, basis: Basis | None = None) -> Comparison | None:
    """None where they have no event in common, which is the one thing that may be refused."""
    have = [{(event.name, event.unit) for event in profile.events} for profile in (a, b)]
    if have[0] & have[1]:
        return compare(a, b, basis=basis)
    with pytest.raises(TdprofError, match="no event in common"):
        compare(a, b, basis=basis)
    return None


@settings(deadline=None, max_examples=60)
@given(profiles(), profiles())
def test_nothing_is_lost_and_nothing_told_twice(a: Profile, b: Profile) -> None:
    comparison = compared(a, b, Basis.SHARE)
    if comparison is None:
        return
    functions = comparison.functions
    for profile, row_of, absent in ((a, functions.row_of_a, Match.ONLY_B), (b, functions.row_of_b, Match.ONLY_A)):
        rows = row_of[np.unique(frame_stacks(profile).function)]
        assert (rows >= 0).all()
        assert set(rows.tolist()) == {i for i, match in enumerate(functions.match) if match is not absent}
    for values, shares in (
        (comparison.self_changes.a, comparison.share_a),
        (comparison.self_changes.b, comparison.share_b),
    ):
        sums = shares.sum(axis=0)
        assert np.all(np.isclose(sums, 100) | (sums == 0))
        assert np.allclose(values, shares)
    assert np.all(comparison.inclusive_changes.a >= comparison.self_changes.a - 1e-6)
    for table in (comparison.program, comparison.self_changes, comparison.inclusive_changes):
        assert not table.is_significant[np.isnan(table.p)].any()
        assert np.all(table.low <= table.high)


@settings(deadline=None, max_examples=40)
@given(profiles(), profiles())
def test_the_other_way_round_everything_changes_sign(a: Profile, b: Profile) -> None:
    there, back = (compared(*pair, Basis.RUN) for pair in ((a, b), (b, a)))
    if there is None or back is None:
        return
    row = {function: back.functions.row_of_a[i] for i, function in enumerate(there.functions.row_of_b.tolist())}
    order = [row[i] for i in range(len(there.functions)) if i in row]
    kept = [i for i in range(len(there.functions)) if i in row]
    assert np.allclose(there.self_changes.a[kept], back.self_changes.b[order])
    assert np.allclose(there.self_changes.low[kept], -back.self_changes.high[order], rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(profiles())
def test_a_profile_does_not_differ_from_itself(profile: Profile) -> None:
    for is_whole_run in (False, True):
        same = replace(profile, is_whole_run=is_whole_run)
        comparison = compared(same, same)
        if comparison is None:
            return
        assert set(comparison.functions.match) <= {Match.SAME, Match.MOVED, Match.CLONE, Match.ONLY_A, Match.ONLY_B}
        matched = [i for i, match in enumerate(comparison.functions.match) if match is Match.SAME]
        assert not comparison.self_changes.is_significant[matched].any()


@settings(deadline=None, max_examples=40)
@given(profiles(), profiles())
def test_any_comparison_can_be_shown(a: Profile, b: Profile) -> None:
    comparison = compared(a, b)
    if comparison is None:
        return
    sides = [("a", a), ("b", b)]
    json.loads("".join(render_json(comparison, sides, [], event=0, limit=0)))
    text = "".join(render_csv(comparison, event=0, limit=0))
    assert text.startswith("function,")
    shown = render_text(comparison, sides, Console(width=100, color_system=None), event=0, limit=0)
    assert "\x1b" not in shown
