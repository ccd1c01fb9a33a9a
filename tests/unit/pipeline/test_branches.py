"""Branch stacks of an imported recording in a report: places, shares, mispredictions and what is not known."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from builders.imported import imported, run_report
from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import Sample, branch_flags
from tdprof.capture.manifest import read_manifest
from tdprof.capture.tables import has_table, read_table
from tdprof.decode.perf.layout import BRANCH_CALL_STACK, BRANCH_COUNTERS, BRANCH_HW_INDEX, RecordLayout
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.perf_abi import SampleType
from tdprof.metrics.spe import share_interval
from tdprof.pipeline.archive import archive_symbols
from tdprof.pipeline.import_perf import import_perf_data

SOURCE = """
__attribute__((noinline)) int callee(int x) { return x * 3; }
__attribute__((noinline)) int caller(int x) { return callee(x) + 1; }
int main(int argc, char **argv) { (void)argv; return caller(argc); }
"""
FIELDS = SampleType.IDENTIFIER | SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.BRANCH_STACK
LAYOUT = RecordLayout(FIELDS, branch_sample_type=BRANCH_HW_INDEX, ids=(1,))
BASE, KERNEL = 0x5000_0000, 0xFFFF_8000_0801_0000
CALL, CONDITIONAL, SYSTEM_CALL = 4, 1, 7


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A program with lines, and the file offsets of its functions."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("program")
    (folder / "branchy.c").write_text(SOURCE)
    command = [compiler, "-O1", "-g", "-Wl,-z,noseparate-code", "-o", "branchy", "branchy.c"]
    subprocess.run(command, cwd=folder, check=True)
    listed = subprocess.run(["nm", "branchy"], cwd=folder, capture_output=True, text=True, check=True).stdout
    offsets = {line.split()[2]: int(line.split()[0], 16) for line in listed.splitlines() if " T " in line}
    return folder / "branchy", offsets


def recording(folder: Path, program: tuple[Path, dict[str, int]], layout: RecordLayout = LAYOUT) -> Path:
    """Two stacks of one call, one of a system call that the hardware half hides, and one out of any mapping."""
    path, offsets = program
    made = PerfDataWriter([Event(layout, "cycles")])
    w = made.records
    trailer = w.sample_id(pid=7, tid=7, time_ns=1, id_=1)
    source, target = BASE + offsets["caller"], BASE + offsets["callee"]
    stacks = [
        [(source, target, branch_flags(mispredicted=True, cycles=10, type_=CALL))] * 3
        + [(source, target, branch_flags(predicted=True, cycles=30, type_=CALL))],
        [(source, target, branch_flags(predicted=True, cycles=0xFFFF, type_=CALL))] * 4,
        [(target, 0, branch_flags(type_=SYSTEM_CALL)), (0, KERNEL, branch_flags(type_=SYSTEM_CALL, privilege=2))],
        [(0x10, 0x20, branch_flags(predicted=True, type_=CONDITIONAL, speculation=1))],
    ]
    data = w.comm(7, 7, b"branchy", trailer=trailer)
    data += w.mmap2(7, BASE, 0x10000, 0, str(path).encode(), trailer=trailer)
    for time_ns, stack in enumerate(stacks):
        data += w.sample(Sample(ip=source, pid=7, tid=7, time_ns=10 + time_ns, id=1, branches=stack))
    return imported(folder, made.file(data))


def test_branches_have_functions_lines_and_ratios(tmp_path: Path, program: tuple[Path, dict[str, int]]) -> None:
    document = json.loads(run_report(str(recording(tmp_path, program)), "--branches", "--json").stdout)
    assert document["events"] == [{"name": "cycles", "branches": 11}]
    call, *rest = document["rows"]
    assert (call["from"]["function"], call["from"]["line"]) == ("caller", 3)
    assert (call["to"]["function"], call["to"]["line"]) == ("callee", 2)
    assert call["from"]["file"].endswith("branchy.c")
    assert (call["type"], call["count"], call["stacks"], call["share"]) == ("call", 8, 2, 8 / 11)
    assert call["mean_cycles"] == (3 * 10 + 30 + 4 * 0xFFFF) / 8
    # Eight entries of two stacks are two observations.
    share = share_interval(np.array([3 / 8 * 2]), np.array([2]))
    assert call["mispredict"] == {"value": 3 / 8, "low": share.low[0], "high": share.high[0]}
    ends = {(row["type"], (row["from"] or {}).get("function"), (row["to"] or {}).get("function")) for row in rest}
    assert ends == {
        ("system call", "callee", None),
        ("system call", None, f"[hidden kernel] [kernel]+{KERNEL:#x}"),
        ("conditional", "[no mapping]", "[no mapping]"),
    }
    hidden = next(row for row in rest if row["to"] is None)
    assert hidden["mispredict"] == {"value": None, "low": None, "high": None}
    assert hidden["mean_cycles"] is None
    notes = " ".join(document["notes"])
    assert "2 entries do not tell whether they were predicted" in notes
    assert "4 entries have as many cycles as the field holds" in notes
    assert "1 entries were speculated on a wrong path" in notes
    assert "2 entries have no source or no target" in notes


def test_every_form_has_every_row(tmp_path: Path, program: tuple[Path, dict[str, int]]) -> None:
    capture = str(recording(tmp_path, program))
    text = run_report(capture, "--branches").stdout
    assert "caller branchy.c:3" in text
    assert "≥" in text
    assert "[not recorded]" in text
    assert len(run_report(capture, "--branches", "--csv").stdout.splitlines()) == 1 + 4
    assert len(run_report(capture, "--branches", "--csv", "--limit", "2").stdout.splitlines()) == 1 + 2
    assert "and 3 more" in run_report(capture, "--branches", "--limit", "1").stdout
    # What reads a capture reads perf.data itself, too.
    assert run_report(str(tmp_path / "perf.data"), "--branches").stdout == text


def test_functions_add_their_branches_up(tmp_path: Path, program: tuple[Path, dict[str, int]]) -> None:
    capture = str(recording(tmp_path, program))
    document = json.loads(run_report(capture, "--branches", "--by", "function", "--json").stdout)
    found = {(row["from"] or {}).get("function"): row["count"] for row in document["rows"]}
    assert found == {"caller": 8, "callee": 1, None: 1, "[no mapping]": 1}
    assert all("to" not in row for row in document["rows"])
    assert "caller" in run_report(capture, "--branches", "--by", "function").stdout
    assert "from_function" in run_report(capture, "--branches", "--by", "function", "--csv").stdout


@pytest.mark.parametrize("by", [[], ["--by", "function"]])
def test_alike_branches_of_a_sample_are_one_observation(
    tmp_path: Path, program: tuple[Path, dict[str, int]], by: list[str]
) -> None:
    """Samples whose 16 branches are all mispredicted, or none; two processes, whose samples are not the same."""
    path, offsets = program
    made = PerfDataWriter([Event(LAYOUT, "cycles")])
    w = made.records
    data = b""
    for pid, samples in ((7, 6), (8, 4)):
        trailer = w.sample_id(pid=pid, tid=pid, time_ns=1, id_=1)
        data += w.comm(pid, pid, b"branchy", trailer=trailer)
        data += w.mmap2(pid, BASE, 0x10000, 0, str(path).encode(), trailer=trailer)
        for number in range(samples):
            stack = []
            for which in range(16):  # of four addresses, all in the first instruction, and four kinds
                source = BASE + offsets["caller"] + which % 4
                missed = number % 2 == 0
                flags = branch_flags(mispredicted=missed, predicted=not missed, type_=CALL, privilege=which // 4)
                stack.append((source, BASE + offsets["callee"], flags))
            data += w.sample(Sample(ip=source, pid=pid, tid=pid, time_ns=10 + number, id=1, branches=stack))
    (tmp_path / "perf.data").write_bytes(made.file(data))
    [row] = json.loads(run_report(str(tmp_path / "perf.data"), "--branches", "--json", *by).stdout)["rows"]
    assert (row["count"], row["stacks"]) == (160, 10)
    share = share_interval(np.array([5]), np.array([10]))
    assert row["mispredict"] == {"value": 0.5, "low": share.low[0], "high": share.high[0]}


def test_archived_captures_name_branches_without_the_program(
    tmp_path: Path, program: tuple[Path, dict[str, int]]
) -> None:
    path, offsets = program
    copy = tmp_path / "gone"
    shutil.copy(path, copy)
    capture = recording(tmp_path / "r", (copy, offsets))
    archive_symbols(OwnFolder.open(capture), read_manifest(capture))
    copy.unlink()
    [first, *_] = json.loads(run_report(str(capture), "--branches", "--json").stdout)["rows"]
    assert (first["from"]["line"], first["to"]["function"]) == (3, "callee")


def test_hardware_call_stacks_are_no_branches(tmp_path: Path, program: tuple[Path, dict[str, int]]) -> None:
    layout = RecordLayout(FIELDS, branch_sample_type=BRANCH_HW_INDEX | BRANCH_CALL_STACK, ids=(1,))
    capture = recording(tmp_path, program, layout)
    assert not has_table(capture, "branches")
    with pytest.raises(TdprofError, match="has no branch stacks") as caught:
        run_report(str(capture), "--branches")
    assert "perf record -b" in (caught.value.hint or "")


def test_empty_stacks_leave_an_empty_table(tmp_path: Path) -> None:
    made = PerfDataWriter([Event(LAYOUT, "cycles")])
    (tmp_path / "perf.data").write_bytes(made.file(made.records.sample(Sample(ip=1, pid=7, tid=7, time_ns=5, id=1))))
    manifest = import_perf_data(str(tmp_path / "perf.data"), tmp_path / "capture")
    assert len(read_table(tmp_path / "capture", "branches")) == 0
    assert any("none holds a branch" in note for note in manifest.notes)
    assert json.loads(run_report(str(tmp_path / "capture"), "--branches", "--json").stdout)["rows"] == []
    assert run_report(str(tmp_path / "capture"), "--branches").exit_code == 0


def test_both_byte_orders_make_the_same_table(tmp_path: Path) -> None:
    tables = []
    for order in ("little", "big"):
        made = PerfDataWriter([Event(LAYOUT, "cycles")], order)
        flags = branch_flags(mispredicted=True, cycles=300, type_=CALL, privilege=1)
        if order == "big":
            flags = _big_endian(flags)
        sample = Sample(ip=1, pid=7, tid=7, time_ns=5, id=1, branches=[(16, 32, flags)] * 2)
        (tmp_path / order).write_bytes(made.pipe(made.records.sample(sample)))
        import_perf_data(str(tmp_path / order), tmp_path / f"{order}.capture")
        tables.append(read_table(tmp_path / f"{order}.capture", "branches").to_pylist())
    assert tables[0] == tables[1]
    assert (tables[0][0]["cycles"], tables[0][0]["mispredicted"], tables[0][0]["type"]) == (600, 2, "call")


def test_counters_behind_a_branch_stack_do_not_shift_what_follows(tmp_path: Path) -> None:
    """Linux 6.8 can put counters there."""
    stack = [(0x1000, 0x2000, branch_flags(predicted=True, cycles=5))] * 3
    found = []
    for more in (0, BRANCH_COUNTERS):
        layout = RecordLayout(FIELDS | SampleType.CGROUP, branch_sample_type=1 << 3 | more, ids=(1,))
        made = PerfDataWriter([Event(layout)])
        sample = Sample(ip=1, pid=7, tid=7, time_ns=5, id=1, branches=stack, cgroup=77)
        (tmp_path / str(more)).write_bytes(made.file(made.records.sample(sample)))
        import_perf_data(str(tmp_path / str(more)), tmp_path / f"{more}.capture")
        names = (("branches", ()), ("samples", ("cgroup",)))
        found.append([read_table(tmp_path / f"{more}.capture", *name).to_pylist() for name in names])
    assert found[0] == found[1]
    assert (found[0][0][0]["count"], found[0][1][0]["cgroup"]) == (3, 77)


def _big_endian(flags: int) -> int:
    """The same fields in the order in which a big-endian compiler lays out a bit-field."""
    result, at, low = 0, 64, 0
    for width in (1, 1, 1, 1, 16, 4, 2, 4, 3):
        at -= width
        result |= (flags >> low & (1 << width) - 1) << at
        low += width
    return result


@pytest.mark.parametrize(
    "options",
    [("--branches", "--spe"), ("--branches", "--lines")],
)
def test_contradictions_are_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(TdprofError, match="exclude each other"):
        run_report("some.capture", *options)


def test_other_rows_of_branches_are_refused() -> None:
    with pytest.raises(TdprofError, match="--branches has no rows by page") as caught:
        run_report("some.capture", "--branches", "--by", "page")
    assert caught.value.hint == "--by function"


def test_rows_of_other_views_are_refused_with_the_views_that_have_them() -> None:
    with pytest.raises(TdprofError, match="rows by function are those of an SPE report") as caught:
        run_report("some.capture", "--by", "function")
    assert all(option in (caught.value.hint or "") for option in ("--spe", "--branches", "cgroup", "--lines"))


def test_options_that_would_change_nothing_are_refused() -> None:
    with pytest.raises(TdprofError, match="--sort orders") as caught:
        run_report("some.capture", "--branches", "--sort", "cycles")
    assert caught.value.hint == "leave --sort out"
    for other in (["--lines"], ["--tree"], ["--function", "f"], ["--spe"]):
        with pytest.raises(TdprofError, match="exclude each other"):
            run_report("some.capture", "--branches", *other)
