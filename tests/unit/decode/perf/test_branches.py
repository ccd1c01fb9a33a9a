"""Adding entries of branch stacks up, compiled and in Python, and the rows of the capture that they become."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.perf_records import branch_flags
from tdprof.decode.perf import groups as perf_groups
from tdprof.decode.perf.branches import SUM, BranchSums, branch_table
from tdprof.decode.perf.columns import BRANCH, NOT_RECORDED, SAMPLE_COLUMNS, Samples, Table
from tdprof.decode.perf.groups import WHOLE_RECORDING_NS, ProcessChanges, SampleIntervals, sorted_changes

NO_CHANGES = ProcessChanges(np.empty(0, np.uint32), np.empty(0, np.uint64))
KEYS = ("time_ns", "event", "pid", "from", "to", "kind")
COUNTS = ("count", "stacks", "mispredicted", "predicted", "cycles", "with_cycles", "cycles_at_limit")


def samples(**columns: list[int]) -> Samples:
    rows = len(next(iter(columns.values())))
    return Samples(**{name: np.array(columns.get(name, [0] * rows), dtype) for name, dtype in SAMPLE_COLUMNS.items()})


def entries(*rows: tuple[int, int, int, int]) -> Table:
    """(from, to, flags, sample) each."""
    return np.array(list(rows), BRANCH)


def intervals(changes: ProcessChanges = NO_CHANGES, numbers: tuple[int, ...] = (0,)) -> SampleIntervals:
    return SampleIntervals(numbers, changes, WHOLE_RECORDING_NS)


def summed(sums: BranchSums, *batches: tuple[Samples, Table]) -> dict[tuple[int, ...], dict[str, int]]:
    """Counts by key, equal keys of several tables added up."""
    tables = [table for batch in batches for table in sums.add(*batch)] + list(sums.flush())
    total: dict[tuple[int, ...], dict[str, int]] = {}
    for row in np.concatenate(tables) if tables else np.empty(0, SUM):
        counts = total.setdefault(tuple(int(row[name]) for name in KEYS), dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            counts[name] += int(row[name])
    return total


@pytest.mark.usefixtures("implementation")
def test_entries_of_one_branch_are_one_row() -> None:
    flags = [
        branch_flags(mispredicted=True, cycles=10),
        branch_flags(predicted=True, cycles=0xFFFF),
        branch_flags(predicted=True),
        branch_flags(),
        branch_flags(mispredicted=True, predicted=True),
    ]
    stacks = [0, 0, 1, 1, 1]
    batch = samples(time_ns=[5, 9], pid=[7, 7])
    rows = entries(*((0x10, 0x20, flag, sample) for flag, sample in zip(flags, stacks, strict=True)))
    [(key, counts)] = summed(BranchSums(intervals()), (batch, rows)).items()
    assert key == (WHOLE_RECORDING_NS - 1, 0, 7, 0x10, 0x20, 0)
    assert counts == {
        "count": 5,
        "stacks": 2,
        "mispredicted": 1,
        "predicted": 2,  # of an entry with neither flag, or with both, nothing is known
        "cycles": 10 + 0xFFFF,
        "with_cycles": 2,
        "cycles_at_limit": 1,
    }


@pytest.mark.usefixtures("implementation")
def test_rows_end_where_the_process_changes_and_differ_by_kind() -> None:
    changes = sorted_changes(np.array([7], np.uint32), np.array([100], np.uint64))
    batch = samples(time_ns=[99, 100], pid=[7, 7])
    call, back = branch_flags(type_=4), branch_flags(type_=6)
    rows = summed(BranchSums(intervals(changes)), (batch, entries((1, 2, call, 0), (1, 2, call, 1), (1, 2, back, 1))))
    assert [(key[0], key[5]) for key in sorted(rows)] == [
        (99, call),
        (WHOLE_RECORDING_NS - 1, call),
        (WHOLE_RECORDING_NS - 1, back),
    ]


@pytest.mark.usefixtures("implementation")
def test_entries_of_unknown_events_are_counted_and_of_unwanted_ones_left_out() -> None:
    batch = samples(time_ns=[1] * 4, event=[0, 1, 2, NOT_RECORDED])
    sums = BranchSums(intervals(numbers=(3, NOT_RECORDED)))
    rows = summed(sums, (batch, entries((1, 2, 0, 0), (1, 2, 0, 1), (1, 2, 0, 2), (1, 2, 0, 3))))
    assert [key[1] for key in rows] == [3]
    assert sums.unknown_events == 2


def test_a_full_table_comes_out_and_nothing_is_lost() -> None:
    count = 300_000
    batch = samples(time_ns=[1] * 10)
    rows = np.zeros(count, BRANCH)
    rows["from"], rows["sample"] = np.arange(count), np.arange(count) // 30_000
    sums = BranchSums(intervals())
    tables = [*sums.add(batch, rows), *sums.flush()]
    assert len(tables) > 1
    assert sum(int(table["count"].sum()) for table in tables) == count
    assert len({int(address) for table in tables for address in table["from"]}) == count


words = st.integers(0, 2**64 - 1)


@given(
    st.lists(st.tuples(words, st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.one_of(words, st.integers(0, 31)), st.integers(0, 5))),
    st.lists(st.tuples(st.integers(0, 2), words)),
)
@settings(max_examples=200, deadline=None)
def test_compiled_equals_python(
    of_samples: list[tuple[int, ...]], of_branches: list[tuple[int, int, int, int]], of_changes: list[tuple[int, int]]
) -> None:
    time_ns, event, pid = (list(column) for column in zip(*of_samples, strict=True))
    batch = samples(time_ns=time_ns, event=event, pid=pid)
    # As the decoder has them: the entries of one sample stand together.
    of_branches = sorted(
        ((a, b, c, sample % len(of_samples)) for a, b, c, sample in of_branches), key=lambda row: row[3]
    )
    pids, change_ns = zip(*of_changes, strict=True) if of_changes else ((), ())
    held = intervals(sorted_changes(np.array(pids, np.uint32), np.array(change_ns, np.uint64)), (0, 1, NOT_RECORDED))
    batches = [(batch, entries(*of_branches)), (batch, entries(*of_branches[:3]))]
    compiled, reference = BranchSums(held), None
    found = summed(compiled, *batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perf_groups, "load_native", lambda: None)
        reference = BranchSums(held)
        assert summed(reference, *batches) == found
    assert reference.unknown_events == compiled.unknown_events


def table_row(flags: int, **values: int) -> dict[str, object]:
    row = np.zeros(1, SUM)
    row["kind"] = flags
    for name, value in values.items():
        row[name] = value
    [found] = branch_table(row, 1000).to_pylist()
    return found


def test_what_is_not_told_is_null() -> None:
    row = table_row(0, to=5, time_ns=2**63 - 1)
    assert (row["from_address"], row["to_address"]) == (None, 5)
    assert (row["type"], row["speculation"], row["privilege"]) == (None, None, None)
    assert row["time_ns"] == 1000


@pytest.mark.parametrize(
    ("type_", "new_type", "word"),
    [
        *((1, 0, "conditional"), (6, 0, "return"), (14, 0, "outside transaction"), (15, 0, "alignment fault")),
        *((15, 2, "instruction fault"), (15, 3, "fast interrupt"), (15, 7, "debug data"), (15, 8, None)),
        (15, 15, None),
    ],
)
def test_types_have_the_names_of_the_kernels_header(type_: int, new_type: int, word: str | None) -> None:
    assert table_row(branch_flags(type_=type_, new_type=new_type))["type"] == word


def test_flags_become_words() -> None:
    row = table_row(branch_flags(speculation=1, privilege=2, in_transaction=True))
    assert (row["speculation"], row["privilege"], row["in_transaction"], row["aborted"]) == (
        "wrong path",
        "kernel",
        True,
        False,
    )
    assert table_row(branch_flags(privilege=7, aborted=True)) | {"privilege": None, "aborted": True} == table_row(
        branch_flags(privilege=7, aborted=True)
    )
