"""Samples by process, thread, command and module."""

import numpy as np
import pytest

from builders.profiles import Frame, ProfileBuilder
from tdprof.model.choices import GroupKind
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names
from tdprof.profile.groups import Groups, group_samples

LIB = "/usr/lib/libz.so.1"


def some() -> Profile:
    builder = ProfileBuilder()
    builder.add("main", "parse", weight=10, count=2, pid=1, tid=1, thread="cc")
    builder.add("main", Frame("inflate", module=LIB), weight=20, count=1, pid=1, tid=5, thread="worker")
    builder.add("main", "parse", weight=30, count=3, pid=2, tid=2, thread="cc")
    builder.add("main", Frame("inflate", module=LIB), weight=40, count=4, pid=3, tid=3, thread="make")
    return builder.build(process_names={1: "cc", 2: "cc", 3: "make"})


def rows(kind: GroupKind) -> list[tuple[object, ...]]:
    groups = group_samples(some(), kind)
    names = function_names(some())
    hottest = [names[row] for row in groups.hottest]
    columns = (groups.name, groups.pid, groups.tid, groups.members, groups.weight[:, 0].tolist(), hottest)
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            GroupKind.PROCESS,
            [
                ("make", 3, None, 1, 40, "inflate"),
                ("cc", 1, None, 1, 30, "inflate"),
                ("cc", 2, None, 1, 30, "parse"),
            ],
        ),
        (
            GroupKind.THREAD,
            [
                ("make", 3, 3, 1, 40, "inflate"),
                ("cc", 2, 2, 1, 30, "parse"),
                ("worker", 1, 5, 1, 20, "inflate"),
                ("cc", 1, 1, 1, 10, "parse"),
            ],
        ),
        (GroupKind.COMMAND, [("cc", None, None, 2, 60, "parse"), ("make", None, None, 1, 40, "inflate")]),
        (GroupKind.MODULE, [(LIB, None, None, 1, 60, "inflate"), ("/bin/app", None, None, 1, 40, "parse")]),
    ],
)
def test_rows_have_their_samples_and_the_function_that_takes_most(kind: GroupKind, expected: object) -> None:
    assert rows(kind) == expected


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_a_thread_has_the_name_that_it_had_for_most_of_the_end(order: tuple[int, ...]) -> None:
    samples = [("starter", 50, 1), ("starter", 4, 2), ("worker", 3, 2), ("worker", 2, 2)]
    builder = ProfileBuilder()
    for at in order:
        name, count, second = samples[at]
        builder.add("main", f"work_{at}", count=count, tid=5, thread=name, time_ns=second * 10**9)
    assert list(group_samples(builder.build(), GroupKind.THREAD).name) == ["worker"]


def test_shares_are_of_all_samples_and_of_the_row() -> None:
    groups: Groups = group_samples(some(), GroupKind.COMMAND)
    assert groups.share.tolist() == [0.6, 0.4]
    assert groups.samples[:, 0].tolist() == [6, 4]
    assert groups.hottest_share.tolist() == pytest.approx([40 / 60, 1])
    assert np.all(groups.half_width > 0)


@pytest.mark.parametrize("kind", GroupKind)
def test_of_nothing_there_are_no_rows(kind: GroupKind) -> None:
    assert len(group_samples(ProfileBuilder().build(), kind)) == 0
