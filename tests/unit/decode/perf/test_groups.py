"""Adding samples up, compiled and in Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdprof.decode.perf import groups as perf_groups
from tdprof.decode.perf.columns import NOT_RECORDED, READ, SAMPLE_COLUMNS, Samples
from tdprof.decode.perf.groups import (
    GROUP,
    INTERVAL_NS,
    WHOLE_RECORDING_NS,
    ProcessChanges,
    SampleGroups,
    SampleIntervals,
    sorted_changes,
)
from tdprof.decode.perf.reads import ReadDeltas

NO_CHANGES = ProcessChanges(np.empty(0, np.uint32), np.empty(0, np.uint64))


KEYS = ("time_ns", "event", "pid", "tid", "user_chain", "kernel_chain", "cgroup")


def samples(**columns: list[int]) -> Samples:
    rows = len(next(iter(columns.values())))
    return Samples(**{name: np.array(columns.get(name, [0] * rows), dtype) for name, dtype in SAMPLE_COLUMNS.items()})


def grouped(groups: SampleGroups, *batches: Samples) -> list[tuple[int, ...]]:
    """All rows as (time, event, pid, tid, user, kernel, cgroup, count, weight), equal keys added up, sorted."""
    tables = [table for batch in batches for table in groups.add(batch)] + list(groups.flush())
    total: dict[tuple[int, ...], list[int]] = {}
    for row in np.concatenate(tables) if tables else np.empty(0, GROUP):
        key = tuple(int(row[name]) for name in KEYS)
        sums = total.setdefault(key, [0, 0])
        sums[0] += int(row["count"])
        sums[1] = (sums[1] + int(row["weight"])) % 2**64
    return sorted((*key, *sums) for key, sums in total.items())


@pytest.mark.usefixtures("implementation")
def test_equal_samples_of_an_interval_are_one_row() -> None:
    batch = samples(time_ns=[1, 2, INTERVAL_NS], period=[10, 20, 30], pid=[5] * 3, user_chain=[1] * 3)
    assert grouped(SampleGroups(SampleIntervals([0], NO_CHANGES)), batch) == [
        (INTERVAL_NS - 1, 0, 5, 0, 1, 0, 0, 2, 30),
        (2 * INTERVAL_NS - 1, 0, 5, 0, 1, 0, 0, 1, 30),
    ]


@pytest.mark.usefixtures("implementation")
def test_intervals_end_before_a_change_of_the_process() -> None:
    changes = sorted_changes(np.array([6, 5, 5, 5], np.uint32), np.array([50, 200, 100, 0], np.uint64))
    batch = samples(time_ns=[99, 100, 199, 200, 300, 40, 60], pid=[5, 5, 5, 5, 5, 6, 7], period=[1] * 7)
    rows = [(row[0], row[2], row[-2]) for row in grouped(SampleGroups(SampleIntervals([0], changes)), batch)]
    end = INTERVAL_NS - 1
    assert rows == [(49, 6, 1), (99, 5, 1), (199, 5, 2), (end, 5, 2), (end, 7, 1)]


@pytest.mark.usefixtures("implementation")
def test_events_are_renumbered_and_unwanted_ones_left_out() -> None:
    batch = samples(time_ns=[1] * 4, event=[0, 1, 2, NOT_RECORDED], period=[1, 2, 4, 8])
    rows = grouped(SampleGroups(SampleIntervals([NOT_RECORDED, 1, 0], NO_CHANGES)), batch)
    assert [(row[1], row[-1]) for row in rows] == [(0, 4), (1, 2)]


def test_many_threads_in_turns_have_a_row_each() -> None:
    count = 300_000
    batch = samples(time_ns=[1] * count, tid=list(range(count)), period=[3] * count)
    groups = SampleGroups(SampleIntervals([0], NO_CHANGES))
    tables = [*groups.add(batch), *groups.add(batch), *groups.flush()]
    assert len(tables) > 1
    assert {int(weight) for table in tables for weight in table["weight"]} == {6}
    assert [int(tid) for table in tables for tid in table["tid"]] == list(range(count))


def test_a_full_table_comes_out_and_nothing_is_lost() -> None:
    count = 1_100_000
    batch = samples(time_ns=[1] * count, tid=list(range(count)), period=[3] * count)
    groups = SampleGroups(SampleIntervals([0], NO_CHANGES))
    tables = [*groups.add(batch), *groups.flush()]
    assert len(tables) > 1
    assert sum(int(table["weight"].sum()) for table in tables) == 3 * count
    assert len({int(tid) for table in tables for tid in table["tid"]}) == count


times = st.one_of(st.integers(0, 5 * INTERVAL_NS), st.integers(0, 2**64 - 1))


def test_an_interval_as_long_as_the_recording_still_ends_where_a_process_changes() -> None:
    changes = sorted_changes(np.array([1], np.uint32), np.array([5 * INTERVAL_NS], np.uint64))
    batch = samples(time_ns=[second * INTERVAL_NS for second in (1, 4, 5, 9)] * 2, pid=[1] * 4 + [2] * 4)
    rows = grouped(SampleGroups(SampleIntervals([0], changes, WHOLE_RECORDING_NS)), batch)
    assert sorted((row[2], row[-2]) for row in rows) == [(1, 2), (1, 2), (2, 4)]


@given(
    st.sampled_from([INTERVAL_NS, WHOLE_RECORDING_NS]),
    st.lists(
        st.tuples(
            *(times, st.integers(0, 3), st.integers(0, 3), st.integers(0, 2**64 - 1), st.integers(-1, 2)),
            st.sampled_from([0, 1, 2**32 + 1]),
        )
    ),
    st.lists(st.tuples(st.integers(0, 3), times)),
)
@settings(max_examples=200, deadline=None)
def test_compiled_equals_python(interval_ns: int, rows: list[tuple[int, ...]], changes: list[tuple[int, int]]) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * 6
    names = ("time_ns", "event", "pid", "period", "user_chain", "cgroup")
    batch = samples(**{name: list(column) for name, column in zip(names, columns, strict=True)})
    pids, change_ns = zip(*changes, strict=True) if changes else ((), ())
    held = sorted_changes(np.array(pids, np.uint32), np.array(change_ns, np.uint64))
    compiled = grouped(SampleGroups(SampleIntervals([0, 1, NOT_RECORDED], held, interval_ns)), batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perf_groups, "load_native", lambda: None)
        assert grouped(SampleGroups(SampleIntervals([0, 1, NOT_RECORDED], held, interval_ns)), batch) == compiled


def reads(*rows: tuple[int, int, int, int, int]) -> np.ndarray:
    """Rows of (sample, id, event, tid, value)."""
    table = np.zeros(len(rows), READ)
    for row, (sample, id_, event, tid, value) in zip(table, rows, strict=True):
        row["sample"], row["id"], row["event"], row["tid"], row["value"] = sample, id_, event, tid, value
    return table


def test_every_counter_of_a_group_gets_what_it_counted_since() -> None:
    deltas = ReadDeltas()
    first = deltas.expand(
        samples(ip=[1, 2, 3], event=[0, 0, 2], period=[9, 9, 7]),
        reads((0, 10, 0, 0, 100), (0, 11, 1, 0, 5), (1, 10, 0, 0, 250), (1, 11, 1, 0, 5), (1, 99, NOT_RECORDED, 0, 1)),
    )
    rows = sorted(zip(first.ip.tolist(), first.event.tolist(), first.period.tolist(), strict=True))
    assert rows == [(1, 0, 100), (1, 1, 5), (2, 0, 150), (3, 2, 7)]
    assert deltas.unknown_ids == 1
    second = deltas.expand(samples(ip=[4], event=[0]), reads((0, 10, 0, 0, 260), (0, 11, 1, 0, 25)))
    assert second.period.tolist() == [10, 20]
    reset = deltas.expand(samples(ip=[5], event=[0]), reads((0, 10, 0, 0, 3)))
    assert reset.period.tolist() == [3]


def test_counters_of_a_buffer_that_was_written_backward() -> None:
    """perf record --overwrite: each counter's last value stands first in the file."""
    rows = [(0, 10, 0, 0, 260), (0, 11, 1, 0, 25), (1, 10, 0, 0, 250), (0, 10, 0, 0, 100), (1, 11, 1, 0, 5)]
    table = reads(*rows)
    table["time_ns"] = [40, 40, 30, 20, 20]
    deltas = ReadDeltas(backward=table)
    first = deltas.expand(samples(ip=[4, 3]), table[:3])
    assert sorted(zip(first.ip.tolist(), first.event.tolist(), first.period.tolist(), strict=True)) == [
        (3, 0, 150),
        (4, 0, 10),
        (4, 1, 20),
    ]
    second = deltas.expand(samples(ip=[2, 1]), table[3:])
    assert second.period.tolist() == [100, 5]


def test_inherited_counters_count_for_each_thread() -> None:
    deltas = ReadDeltas(per_thread=True)
    result = deltas.expand(
        samples(ip=[1, 2, 3], tid=[7, 8, 7]), reads((0, 10, 0, 7, 100), (1, 10, 0, 8, 30), (2, 10, 0, 7, 110))
    )
    assert result.period.tolist() == [100, 30, 10]
