"""Samples by their CPU, and those of time off one by the state that the thread was in."""

import csv
import io
from dataclasses import replace

import numpy as np
from rich.console import Console

from builders.profiles import CLOCK, ProfileBuilder, thread_times
from tdprof.model.choices import GroupKind
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.thread_state import ThreadState
from tdprof.profile.groups import group_samples
from tdprof.report.groups.csv import render_csv
from tdprof.report.groups.json import rows_json
from tdprof.report.groups.text import render_text

EVENTS = (CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, 10_000_000))


def test_samples_are_told_apart_by_their_cpu() -> None:
    builder = ProfileBuilder(EVENTS)
    for name, weight in (("work", 5), ("work", 3), ("other", 4)):
        builder.add("main", name, weight=weight)
    builder.add("main", "wait", event=1, weight=9, state=ThreadState.INTERRUPTIBLE)
    profile = builder.build()
    profile = replace(profile, samples=replace(profile.samples, cpu=np.array([10, 2, 2, -1], np.int32)))
    groups = group_samples(profile, GroupKind.CPU)
    assert list(groups.name) == ["2", "10", ""]
    assert groups.weight.tolist() == [[7, 0], [5, 0], [0, 9]]
    assert [row["cpu"] for row in rows_json(profile, groups, 0)] == [2, 10, None]


def test_time_off_a_cpu_is_told_apart_by_its_state() -> None:
    builder = ProfileBuilder(EVENTS).add("main", "work", weight=5)
    for name, weight, state in (
        ("futex", 30, ThreadState.INTERRUPTIBLE),
        ("read", 20, ThreadState.INTERRUPTIBLE),
        ("fsync", 40, ThreadState.UNINTERRUPTIBLE),
        ("work", 10, ThreadState.RUNNABLE),
    ):
        builder.add("main", name, event=1, weight=weight, state=state)
    profile = builder.build()
    groups = group_samples(profile, GroupKind.STATE, 1)
    names = ["asleep", "asleep beyond signals", "waiting for a CPU", "on a CPU"]
    assert list(groups.name) == names
    assert groups.weight.tolist() == [[0, 50], [0, 40], [0, 10], [5, 0]]
    assert groups.share.tolist() == [0.5, 0.4, 0.1, 0]
    assert [profile.functions.name[each] for each in groups.hottest[:3]] == ["futex", "fsync", "work"]


def test_where_the_time_of_each_thread_went_adds_up_in_its_row() -> None:
    builder = ProfileBuilder(EVENTS)
    for tid, weight in ((1, 50), (2, 30), (9, 1)):
        builder.add("main", "work", weight=weight, pid=1, tid=tid)
    # Number 2 was two threads', one after the other; of number 9 nothing is told.
    spent = thread_times(
        (1, 1, [5_000, 3_000, 2_000, 0], 0), (1, 2, [1_000, 0, 0, 4_000], 0), (1, 2, [0, 0, 7_000, 0], 7_000)
    )
    profile = builder.build(thread_times=spent)
    threads, processes = (group_samples(profile, kind) for kind in (GroupKind.THREAD, GroupKind.PROCESS))
    rows = {row["tid"]: row["time_spent"] for row in rows_json(profile, threads, 0)}
    names = ("running_ns", "runnable_ns", "interruptible_ns", "uninterruptible_ns")
    assert [rows[1][name] for name in names] == [5_000, 3_000, 2_000, 0]
    assert [rows[2][name] for name in names] == [1_000, 0, 7_000, 4_000]
    assert all(sum(rows[tid][name] for name in names) == rows[tid]["wall_ns"] for tid in (1, 2))
    assert (rows[2]["threads"], rows[2]["unsampled_ns"], rows[2]["unsampled_threads"]) == (2, 7_000, 1)
    assert {*rows[9].values()} == {None}
    [whole] = rows_json(profile, processes, 0)
    assert whole["time_spent"]["wall_ns"] == 22_000
    table = csv.DictReader(io.StringIO("".join(render_csv(profile, threads))))
    assert [row["time_spent_wall_ns"] for row in table] == ["10000", "12000", ""]
    text = render_text(profile, threads, [], Console(width=140), limit=None, usual=9).splitlines()
    heading = next(line for line in text if "wall time" in line)
    assert "on a CPU  + waiting  + asleep  + beyond signals  = wall time" in heading
    assert "1.000 µs 0 ns 7.000 µs 4.000 µs 12.00 µs" in " ".join(
        next(each for each in text if " 12.00 µs " in each).split()
    )
    assert "wall time" not in render_text(profile, threads, [], Console(width=100), limit=None, usual=9)
    assert not group_samples(builder.build(), GroupKind.THREAD).spent
