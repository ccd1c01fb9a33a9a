"""Which thread ran on a CPU, from records of context switches with a known order."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from builders import spe
from builders.captures import table_writer, write_manifest
from builders.perf_data import AUXTRACE_INFO, TIME_CONV, Event, PerfDataWriter
from builders.perf_records import RecordLayout
from builders.switch_records import rows
from tdprof.capture.manifest import Rung, read_manifest
from tdprof.capture.tables import read_table
from tdprof.cli.import_ import command as import_command
from tdprof.cli.spe import command
from tdprof.decode.perf.columns import NOT_RECORDED
from tdprof.decode.perf.layout import MISC_SWITCH_OUT
from tdprof.decode.spe.line_uses import CacheLines, look_at_lines
from tdprof.decode.spe.perf_input import open_perf_data
from tdprof.decode.spe.row_sums import LINE_BYTES
from tdprof.decode.spe.switches import Switches, switches_of, switches_of_table, switches_table
from tdprof.linux.perf_abi import RecordType
from tdprof.model.choices import By
from tdprof.model.duty import SPE, DutyInfo
from tdprof.model.spe import NO_TID
from tdprof.pipeline.spe_report import analyse

OUT, IN = MISC_SWITCH_OUT, 0


def wide(time: int, misc: int, tid: int, other: int, cpu: int = 0) -> tuple[int, int, int, int, int, RecordType]:
    return time, cpu, misc, tid, other, RecordType.SWITCH_CPU_WIDE


def threads(switches: Switches, *times: int) -> list[int]:
    return switches.thread_at(np.array(times, np.uint64)).tolist()


def test_of_a_cpu_both_threads_are_known() -> None:
    found = switches_of([rows(wide(100, OUT, 7, 8), wide(101, IN, 8, 7)), rows(wide(200, OUT, 8, 0, cpu=1))])
    assert threads(found[0], 0, 99, 100, 101, 5000) == [7, 7, 8, 8, 8]
    assert threads(found[1], 199, 200) == [8, 0]


def test_of_a_task_nobody_is_known_after_it_went() -> None:
    one = RecordType.SWITCH
    found = switches_of([rows((10, 2, IN, 5, 0, one), (20, 2, OUT, 5, 0, one), (30, 2, IN, 6, 0, one))])
    assert threads(found[2], 9, 10, 19, 20, 29, 30) == [NO_TID, 5, 5, NO_TID, NO_TID, 6]


def test_nobody_is_known_around_a_loss() -> None:
    lost = (25, 0, 0, 0, 0, RecordType.LOST)
    found = switches_of([rows(wide(10, OUT, 1, 2), lost, wide(40, OUT, 3, 4))])
    assert threads(found[0], 5, 10, 24, 25, 39, 40) == [1, NO_TID, NO_TID, NO_TID, NO_TID, 4]
    assert switches_of([rows(lost)]) == switches_of([]) == {}


def test_nobody_is_known_on_a_cpu_whose_switches_may_all_be_lost() -> None:
    found = switches_of([rows(wide(10, OUT, 1, 2), (25, 1, 0, 0, 0, RecordType.LOST))])
    assert list(found) == [0, 1]
    assert threads(found[1], 5, 30) == [NO_TID, NO_TID]


def test_outside_the_windows_in_which_switches_are_told_nobody_is_known() -> None:
    told = [wide(110, OUT, 1, 2), wide(190, OUT, 2, 3), wide(520, OUT, 4, 5), wide(150, OUT, 8, 9, cpu=1)]
    found = switches_of([rows(*told)], [[100, 200], [500, 600], [800, 900]])
    assert threads(found[0], 99, 100, 110, 190, 199, 200) == [NO_TID, 1, 2, 3, 3, NO_TID]
    assert threads(found[0], 499, 500, 520, 599, 600, 850) == [NO_TID, 4, 5, 5, NO_TID, NO_TID]
    assert threads(found[1], 100, 150, 199, 550) == [8, 9, 9, NO_TID]
    assert switches_of([rows(*told)], [[-1, 5], [7]])[0].tid.tolist() == [1, 2, 3, 5]
    assert switches_of([], [[100, 200]]) == {}


def test_what_names_no_cpu_or_thread_tells_nothing() -> None:
    found = switches_of([rows(wide(10, IN, NOT_RECORDED, 4), wide(10, IN, 1, 2, cpu=NOT_RECORDED))])
    assert list(found) == [0]
    assert threads(found[0], 9, 10) == [4, NO_TID]


def test_a_capture_keeps_them(tmp_path: Path) -> None:
    nobody_before = (5, 9, IN, 3, 0, RecordType.SWITCH)
    records = (wide(100, OUT, 7, 8), wide(150, OUT, 8, 9), wide(3, IN, 1, 2, cpu=6), nobody_before)
    found = switches_of([rows(*records)])
    assert threads(found[9], 4, 5) == [NO_TID, 3]
    with table_writer(tmp_path) as writer:
        writer.write("switches", switches_table(found))
    again = switches_of_table(read_table(tmp_path, "switches"))
    assert set(again) == {0, 6, 9}
    for cpu, of_cpu in found.items():
        assert again[cpu].time_ns.tolist() == of_cpu.time_ns.tolist()
        assert again[cpu].tid.tolist() == of_cpu.tid.tolist()
    cut = switches_of_table(read_table(tmp_path, "switches").filter(np.array([False] + [True] * 6)))
    assert threads(cut[0], 99, 100) == [NO_TID, 8]


CPU_MAGIC = 0x1010101010101010


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Ten loads of CPU 0 at 1000, 1010, … ns: the first has context 70, the last no time; switches 7 to 8 at 1055."""
    records = [
        spe.Truth(
            pc=0x80 << 56 | 0x401000,
            op_class=1,
            op=0,
            events=0x16,
            total=20,
            va=0x1000,
            context_el2=70 if number == 0 else None,
            timestamp=1000 + 10 * number if number < 9 else None,
        )
        for number in range(10)
    ]
    stream, _ = spe.write_stream(records, spe.packed_record)
    writer = PerfDataWriter([Event(RecordLayout(sample_type=0x10087, sample_id_all=True), name="arm_spe_0//", type=9)])
    words = [2, 4, 9, 1, CPU_MAGIC, 0, 4, 0x410FD0C0, 9, 1024, 0]
    data = writer.tool_record(TIME_CONV, struct.pack("<5QBB6x", 0, 1, 0, 0, 2**64 - 1, 1, 0))
    data += writer.tool_record(AUXTRACE_INFO, struct.pack(f"<II{len(words)}Q", 4, 0, *words))
    trailer = writer.records.sample_id(pid=7, tid=7, time_ns=1055, cpu=0)
    data += writer.records.record(RecordType.SWITCH_CPU_WIDE, struct.pack("<II", 8, 8) + trailer, MISC_SWITCH_OUT)
    data += writer.auxtrace(stream + b"\0" * (-len(stream) % 8), cpu=0)
    path = tmp_path / "perf.data"
    path.write_bytes(writer.file(data))
    return path


def test_contexts_of_another_namespace_are_not_used(recording: Path) -> None:
    """The first record's context packet names 70, which nobody is here."""
    with open_perf_data(recording) as source:
        inside = replace(source, contexts_name_threads=False)
        found = {}
        for data in (source, inside):
            line = CacheLines(np.array([0x1000 // LINE_BYTES], np.uint64), np.zeros(1, bool), np.zeros(1, bool))
            found[data.contexts_name_threads] = sorted(look_at_lines(data, line).tid.tolist())
            result = analyse(data, By.SOURCE, None, workers=1)
            assert any("another PID namespace" in note for note in result.notes) is not data.contexts_name_threads
    assert found == {True: [7, 8, 70, NO_TID], False: [7, 8, NO_TID]}


def report(path: Path) -> tuple[dict[str, dict], list[str]]:
    arguments = ["report", str(path), "--by", "address", "--json", "-j", "1"]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    return {row["name"]: row for row in said["rows"]}, said["notes"]


def test_a_report_names_threads_by_them_and_says_so(recording: Path, tmp_path: Path) -> None:
    """The time of the last record is in no packet; a capture of the file says the same."""
    result = CliRunner().invoke(
        import_command, [str(recording), "-o", str(tmp_path / "capture")], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    for path in (recording, tmp_path / "capture"):
        lines, notes = report(path)
        assert lines["0x1000"]["threads"] == 1  # 70, 7 and 8 are processes of one each, and one is unknown
        assert "threads are known from context packets (1), context switches (8)" in notes
        assert "1 records name no thread" in notes


@pytest.mark.parametrize(
    ("rung", "duty", "lost"),
    [
        (Rung.PERF_DATA, [], 3),
        (Rung.BPF_PMU, [], 5),  # switches share the rings of mappings and threads
        (Rung.RING_BUFFER, [], 0),  # SPE's own rings tell them
        (Rung.RING_BUFFER, [DutyInfo(SPE, 1, 10)], 3),
    ],
)
def test_lost_records_may_be_why_no_thread_is_known(
    recording: Path, tmp_path: Path, rung: Rung, duty: list[DutyInfo], lost: int
) -> None:
    """Only those of rings that tell context switches."""
    capture = tmp_path / "capture"
    CliRunner().invoke(import_command, [str(recording), "-o", str(capture)], catch_exceptions=False)
    manifest = read_manifest(capture)
    of_bpf = 5 if rung is Rung.BPF_PMU else 0
    losses = replace(manifest.losses, samples_ring_full=3, side_band_records_lost=of_bpf)
    write_manifest(capture, replace(manifest, rung=rung, duty=duty, losses=losses, notes=["spoken of"]))
    _, notes = report(capture)
    why = f" ({lost} records were lost that may have been of context switches)" if lost else ""
    assert f"1 records name no thread{why}" in notes
    assert "spoken of" in notes
