"""Whose code an SPE record is of where the same address means different code at different times."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arm_spe.native import load_native
from builders import spe
from builders.capture_tables import mappings, processes, table
from builders.captures import replace_table, write_manifest
from builders.opened import operations_of
from builders.spe_capture import PID, load, write_spe_capture
from tdprof.capture.manifest import read_manifest
from tdprof.capture.schema import SPE_SPANS
from tdprof.model.spe import NO_TID, Stages
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_report import By, analyse
from tdprof.profile.frames import frame_stacks, function_names

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled decoder is not built")

CHILD, SECOND = 50, 51


def test_a_stage_ends_where_the_next_begins() -> None:
    stages = Stages(np.array([7, 9, 7], np.uint64), np.array([200, 100, 100], np.uint64))
    tid, time_ns = np.array([7, 7, 7, 7, 9, 8, NO_TID], np.uint64), np.array([0, 100, 199, 200, 99, 5, 5], np.uint64)
    stamped = stages.stamp(tid, time_ns)
    assert len(set(stamped.tolist())) == 6
    assert stamped[1] == stamped[2]
    threads, times = stages.split(stamped)
    assert threads.tolist() == tid.tolist()
    assert times[:5].tolist() == [99, 100, 100, 200, 99]
    assert stages.stamp(threads, times).tolist() == stamped.tolist()


TURNS = st.sets(st.tuples(st.sampled_from([1, 5, 2**32 - 1, NO_TID]), st.integers(0, 2**63)), max_size=20)


@given(TURNS, st.lists(st.tuples(st.sampled_from([0, 1, 2, 5, 2**32 - 1, NO_TID]), st.integers(0, 2**63)), min_size=1))
def test_stages_are_as_many_as_turns_before(turns: set[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    stages = Stages(np.array([tid for tid, _ in turns], np.uint64), np.array([time for _, time in turns], np.uint64))
    assert bool(stages) == bool(turns)
    tid, time_ns = (np.array(column, np.uint64) for column in zip(*asked, strict=True))
    stamped = stages.stamp(tid, time_ns).tolist()
    assert stamped == [
        thread | sum(turn <= time for other, turn in turns if other == thread) << 33 for thread, time in asked
    ]
    threads, times = stages.split(np.array(stamped, np.uint64))
    assert threads.tolist() == tid.tolist()
    known = np.isin(tid, [thread for thread, _ in turns]) & (times > 0)
    assert stages.stamp(threads, times)[known].tolist() == np.array(stamped, np.uint64)[known].tolist()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A child that runs a shell until 1000 ns, and then `app`, which has a library in two places in turn.

    Of 0x401000 the shell's records, a tick each nanosecond, are from 900, 950 and 999, `app`'s from 1000, 1001 and, of
    its second thread, 1500. A library is mapped at 0x70001000 until 2000, another from then on; one record has no time.
    """
    folder = write_spe_capture(tmp_path / "capture", has_samples=False)
    times = (900, 950, 999, 1000, 1001)
    truth = [load(0x401000, context_el2=CHILD, timestamp=time) for time in times]
    truth.append(load(0x401000, context_el2=SECOND, timestamp=1500))
    truth += [load(0x70001000, context_el2=SECOND, timestamp=time) for time in (1999, 2000, 2001, None)]
    stream, _ = spe.write_stream(truth, spe.packed_record)
    (folder / "spe/cpu0.0.aux").write_bytes(stream)
    tables = {
        "spe_spans": table(SPE_SPANS, [(5000, 0, 0, PID, PID, 0, len(stream), 0)]),
        "mappings": mappings(
            (10, CHILD, 0x400000, 0x10000, 0, "/no/shell", "aa"),
            (1001, CHILD, 0x400000, 0x10000, 0, "/bin/app", "ab12"),
            (1200, CHILD, 0x70000000, 0x10000, 0, "/lib/one", "cc"),
            (2000, CHILD, 0x70000000, 0x10000, 0, "/lib/two", "dd"),
        ),
        "processes": processes(
            (10, "fork", CHILD, CHILD, PID, PID, None),
            (1000, "exec", CHILD, CHILD, None, None, "app"),
            (1300, "fork", CHILD, SECOND, CHILD, CHILD, None),
        ),
    }
    for name, rows in tables.items():
        replace_table(folder, name, rows)
    manifest = read_manifest(folder)
    assert manifest.spe
    write_manifest(folder, replace(manifest, spe=replace(manifest.spe, clock_pairs=[[0, 0], [10_000, 10_000]])))
    return folder


EXPECTED = {"[no file] shell+0x1000": 3, "work": 3, "[no file] one+0x1000": 1, "[no file] two+0x1000": 3}


@pytest.mark.parametrize("by", [By.FUNCTION, By.LINE, By.INSTRUCTION])
def test_code_is_looked_for_in_what_was_mapped_then(capture: Path, by: By) -> None:
    with OpenCapture(capture) as opened:
        found = analyse(opened.spe_data, by, opened, workers=1)
    said = {name: int(count) for name, count in zip(found.names, found.counts["OPERATIONS"], strict=True)}
    assert sorted(said.values()) == sorted(EXPECTED.values())
    for name, count in EXPECTED.items():
        assert [each for row, each in said.items() if row.startswith(name)] == [count], said


def test_samples_say_the_same(capture: Path) -> None:
    operations = operations_of(capture)
    assert operations
    profile = operations.profile
    stacks, names = frame_stacks(profile), function_names(profile)
    found: dict[str, int] = {}
    leaf = stacks.function[stacks.start[profile.samples.stack]]
    for function, weight in zip(leaf, profile.samples.weight, strict=True):
        found[names[function]] = found.get(names[function], 0) + int(weight)
    assert found == EXPECTED
    assert set(profile.samples.tid.tolist()) == {CHILD, SECOND}


def test_threads_of_memory_are_not_counted_once_for_each_stage(capture: Path) -> None:
    with OpenCapture(capture) as opened:
        found = analyse(opened.spe_data, By.ADDRESS, opened, workers=1)
    assert found.threads is not None
    assert found.threads.tolist() == [2]
