"""Samples by second, and functions over time, in every form."""

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console

from builders.profiles import CLOCK, ProfileBuilder
from tdprof.model.choices import GroupKind
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.profile import Profile
from tdprof.model.thread_state import ThreadState
from tdprof.profile.groups import group_samples
from tdprof.report.groups.csv import render_csv
from tdprof.report.groups.json import render_json
from tdprof.report.groups.seconds import sparkline, within_seconds
from tdprof.report.groups.text import render_text

S = 1_000_000_000


def phases() -> Profile:
    """Four seconds: parse in the first two, sort in the last two, some wait in all."""
    builder = ProfileBuilder()
    for second in range(4):
        builder.add("main", "parse" if second < 2 else "sort", weight=90 * S // 100, count=90, time_ns=(second + 1) * S)
        builder.add("main", "wait", weight=10 * S // 100, count=10, time_ns=(second + 1) * S)
    return builder.build(duration_ns=4 * S)


def test_text_has_functions_over_time_and_every_second_in_order() -> None:
    profile = phases()
    groups = group_samples(profile, GroupKind.SECOND)
    lines = render_text(profile, groups, [], Console(width=120), limit=None, usual=2).splitlines()
    assert next(line for line in lines if line.endswith(" parse")).split()[:2] == ["45.0%", "██"]
    assert next(line for line in lines if line.endswith(" sort")).split()[:2] == ["45.0%", "██"]
    assert next(line for line in lines if line.endswith(" wait")).split()[:2] == ["10.0%", "████"]
    rows = [line.split()[-2:] for line in lines if " 90% " in line]
    assert rows == [["90%", name] for name in ("parse", "parse", "sort", "sort")]


def test_json_and_csv_have_exact_sums() -> None:
    profile = phases()
    groups = group_samples(profile, GroupKind.SECOND)
    document = json.loads(render_json(profile, groups))
    assert [(row["begin_ns"], row["end_ns"]) for row in document["rows"]] == [(n * S, (n + 1) * S) for n in range(4)]
    by_name = {each["name"]: each["weight"] for each in document["functions"]}
    assert by_name["parse"] == [90 * S // 100] * 2 + [0, 0]
    for row, total in enumerate(document["rows"]):
        assert sum(weight[row] for weight in by_name.values()) == total["weight"]["cpu-clock"]
    rows = list(csv.DictReader(io.StringIO("".join(render_csv(profile, groups)))))
    assert [row["hottest"] for row in rows] == ["parse", "parse", "sort", "sort"]
    assert [int(row["begin_ns"]) for row in rows] == [n * S for n in range(4)]


def test_phases_are_told_with_what_changes_and_how_to_see_one_alone() -> None:
    builder = ProfileBuilder()
    for second in range(24):
        name = "parse" if second < 12 else "sort"
        builder.add("main", name, weight=900 + second % 3, count=900, time_ns=(second + 1) * S)
    profile = builder.build(duration_ns=24 * S)
    groups = group_samples(profile, GroupKind.PHASE)
    text = render_text(profile, groups, [], Console(width=120), limit=None, usual=2)
    assert "2 phases: where the profile changes by 5% of its samples or more" in text
    assert "at 12.000 s: parse 100% → 0%, sort 0% → 100%" in text
    assert "--time 12.000s-24.000s" in text
    document = json.loads(render_json(profile, groups))
    assert document["false_positive_rate"] == 0.01
    first, second_row = document["rows"]
    assert first["changes"] == []
    assert {"function": "sort", "is_self": True, "before": 0, "after": 1} in second_row["changes"]
    assert [(row["begin_ns"], row["end_ns"]) for row in document["rows"]] == [(0, 12 * S), (12 * S, 24 * S)]
    rows = list(csv.DictReader(io.StringIO("".join(render_csv(profile, groups)))))
    assert [row["hottest"] for row in rows] == ["parse", "sort"]


def halved(*, has_off_cpu: bool) -> Profile:
    """Half a minute of one thread that has a CPU all the time, then half of it since it waits for one."""
    builder = ProfileBuilder((CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, 10_000_000)) if has_off_cpu else (CLOCK,))
    for second in range(60):
        on_cpu = 1000 if second < 30 else 500
        builder.add("main", "work", weight=on_cpu * S // 1000, count=on_cpu, time_ns=(second + 1) * S)
        if has_off_cpu and second >= 30:
            for state, count in ((ThreadState.RUNNABLE, 45), (ThreadState.INTERRUPTIBLE, 5)):
                weight = count * S // 100
                builder.add("main", event=1, weight=weight, count=count, state=state, time_ns=(second + 1) * S)
    return builder.build(duration_ns=60 * S)


def test_a_phase_of_a_program_that_others_take_the_cpus_from_says_how_many_threads_wait() -> None:
    profile = halved(has_off_cpu=True)
    groups = group_samples(profile, GroupKind.PHASE)
    text = render_text(profile, groups, [], Console(width=160), limit=None, usual=2)
    assert "at 30.000 s: how much there is 100% → 50% (threads waiting for a CPU 0.00 → 0.45) (--time" in text
    assert "with record --off-cpu" not in text
    rows = json.loads(render_json(profile, groups))["rows"]
    assert [row["threads_waiting"] for row in rows] == [0, pytest.approx(0.45)]
    table = list(csv.DictReader(io.StringIO("".join(render_csv(profile, groups)))))
    assert [float(row["threads_waiting"]) for row in table] == [0, pytest.approx(0.45)]


def test_a_phase_that_may_be_of_others_making_says_so_where_the_recording_does_not_tell() -> None:
    profile = halved(has_off_cpu=False)
    groups = group_samples(profile, GroupKind.PHASE)
    text = render_text(profile, groups, [], Console(width=300), limit=None, usual=2)
    assert "at 30.000 s: how much there is 100% → 50% (--time" in text
    assert "how much there is also changes where other programs take the CPUs" in text
    assert "threads_waiting" not in json.loads(render_json(profile, groups))["rows"][0]


def test_where_samples_have_times_a_row_shows_the_heat_within_its_second() -> None:
    builder = ProfileBuilder()
    for at_ms, count in ((0, 8), (39, 8), (500, 4), (1999, 16)):
        builder.add("main", weight=count, count=count, time_ns=at_ms * 1_000_000)
    profile = builder.build(duration_ns=2 * S, has_sample_times=True)
    groups = group_samples(profile, GroupKind.SECOND)
    assert within_seconds(profile, groups) == ["█" + " " * 11 + "▂" + " " * 12, " " * 24 + "█"]
    text = render_text(profile, groups, [], Console(width=120), limit=None, usual=2)
    assert "each 40 ms of it" in text
    assert "█" + " " * 11 + "▂" in text
    assert within_seconds(phases(), group_samples(phases(), GroupKind.SECOND)) == []


@pytest.mark.parametrize(
    ("values", "blocks"), [([0, 1, 8, 4], " ▁█▄"), ([0, 0], "  "), ([], ""), ([1e-9, 1], "▁█"), ([5, 5], "██")]
)
def test_a_line_of_blocks(values: list[float], blocks: str) -> None:
    assert sparkline(np.array(values, np.float64)) == blocks


def test_a_profile_without_samples_has_no_seconds() -> None:
    profile = ProfileBuilder().build()
    groups = group_samples(profile, GroupKind.SECOND)
    assert json.loads(render_json(profile, groups))["rows"] == []
    assert render_text(profile, groups, [], Console(width=80), limit=None, usual=2)


@pytest.mark.parametrize("kind", [GroupKind.SECOND, GroupKind.PHASE, GroupKind.PROCESS])
def test_a_recording_without_samples_says_so(kind: GroupKind) -> None:
    profile = ProfileBuilder().build()
    text = render_text(profile, group_samples(profile, kind), [], Console(width=120), limit=None, usual=2)
    assert text.endswith("No samples: the command ran too briefly, or never on a CPU that was measured.\n")
