"""The recorder's parts that need no perf event: rings, kallsyms, snapshots, the workload, host facts."""

import functools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from builders.waiting import PATIENCE_S
from tdprof.capture.spool import INITIAL_FILE, SpoolWriter
from tdprof.decode.side_band import initial_tables
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.errors import TdprofError
from tdprof.linux.elf import read_build_id
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder import patience, snapshot
from tdprof.recorder.host import has_pmu_nmi, is_in_initial_pid_namespace, parse_cpu_list
from tdprof.recorder.kallsyms import read_code_symbols, read_kernel_symbols, symbols_at
from tdprof.recorder.kallsyms_text import KallsymsAhead, read_kallsyms
from tdprof.recorder.ring import between, write_ring
from tdprof.recorder.snapshot import SnapshotThread
from tdprof.recorder.workload import Workload, check_command


@pytest.mark.parametrize(("start", "size"), [(0, 0), (0, 16), (3, 5), (12, 9), (16 * 5 + 15, 16), (2**63, 7)])
def test_a_ring_is_written_in_order_where_it_wraps(tmp_path: Path, start: int, size: int) -> None:
    ring = bytearray(16)
    expected = bytes(range(100, 100 + size))
    for index, value in enumerate(expected):
        ring[(start + index) % 16] = value
    path = tmp_path / "out"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    write_ring(fd, memoryview(ring), start, size)
    os.close(fd)
    assert path.read_bytes() == between(memoryview(ring), start, start + size) == expected


def test_kernel_symbols_cover_what_was_asked_for(tmp_path: Path) -> None:
    kallsyms = tmp_path / "kallsyms"
    kallsyms.write_text(
        "0000000000001000 T first\n0000000000001000 t alias\n0000000000001800 d data\n"
        "0000000000002000 t second\t[module]\n0000000000003000 T last\n"
    )
    table = symbols_at(np.array([0x500, 0x1900, 0x2000, 0x2FFF], np.uint64), read_code_symbols(kallsyms))
    assert table.name == ["first", "second"]
    assert table.module == [None, "module"]
    assert table.address.tolist() == [0x1000, 0x2000]
    assert table.size.tolist() == [0x1000, 0x1000]
    assert read_kernel_symbols(np.empty(0, np.uint64), lambda: read_code_symbols(kallsyms)).name == []


def test_the_kernels_list_is_read_whole_however_it_is_read(tmp_path: Path) -> None:
    """It comes in many pieces, ahead of NumPy; a list that is not there is empty."""
    names = KallsymsAhead().text()
    assert names.endswith(b"\n")
    assert names.count(b" T ") > 1000
    (tmp_path / "kallsyms").write_bytes(large := os.urandom(3 << 20))
    assert read_kallsyms(tmp_path / "kallsyms") == large
    assert read_kallsyms(tmp_path / "none") == b""


def test_no_kernel_symbol_takes_code_that_came_later(tmp_path: Path) -> None:
    """Trampolines and modules that are gone lie behind the kernel's code, between modules and behind them all."""
    kallsyms = tmp_path / "kallsyms"
    kallsyms.write_text(
        "0000000000001000 T inside\n0000000000005000 T _einittext\n00000000000a0000 t first\t[one]\n"
        "00000000000a8000 t last\t[one]\n00000000000c0f00 t only\t[two]\nfffffffffffff000 t top\t[three]\n"
    )
    asked = [0x1001, 0x6000, 0x9F000, 0xA7FFF, 0xA8001, 0xBFFFF, 0xC1000, 2**64 - 1]
    table = symbols_at(np.array(asked, np.uint64), read_code_symbols(kallsyms))
    found = dict(zip(table.name, zip(table.address.tolist(), table.size.tolist(), strict=True), strict=True))
    assert found["inside"] == (0x1000, 0x4000)
    assert found["first"] == (0xA0000, 0x8000)
    assert found["last"] == (0xA8000, 0x2000)
    assert found["only"] == (0xC0F00, 0x1100)
    assert found["top"] == (2**64 - 0x1000, 0xFFF)
    assert set(found) == {"inside", "first", "last", "only", "top"}


def test_kernel_symbols_read_ahead_serve_for_code_that_stays(tmp_path: Path) -> None:
    """Modules and BPF programs come and go while a recording runs; the kernel's own code does not."""
    kallsyms = tmp_path / "kallsyms"
    kallsyms.write_text(
        "0000000000001000 T _stext\n0000000000002000 T inside\n0000000000005000 T _etext\n"
        "00000000000a0000 t before\t[bpf]\n"
    )
    read = functools.partial(read_code_symbols, kallsyms)
    ahead = read()
    kallsyms.write_text("0000000000002000 T later\n00000000000a0000 t after\t[bpf]\n")
    of_kernel, of_both = np.array([0x2001], np.uint64), np.array([0x2001, 0xA0001], np.uint64)
    assert read_kernel_symbols(of_kernel, read, ahead).name == ["inside"]
    assert read_kernel_symbols(of_both, read, ahead).name == ["later", "after"]
    assert read_kernel_symbols(of_kernel, read, read_code_symbols(tmp_path / "none")).name == ["later"]


@pytest.mark.parametrize("piece_bytes", [1, 25, 26, 27, 60, 1 << 10])
def test_kernel_symbols_are_read_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    names = [f"f{number}" * (number % 7) for number in range(40)]
    lines = [f"{0x1000 * (number + 1):016x} {'tTd'[number % 3]} {name}\n" for number, name in enumerate(names)]
    (tmp_path / "kallsyms").write_text("\n".join(lines))  # with empty lines between
    monkeypatch.setattr("tdprof.recorder.kallsyms._PIECE_BYTES", piece_bytes)
    table = symbols_at(
        np.arange(0x1001, 0x1000 * 42, 0x1000, dtype=np.uint64), read_code_symbols(tmp_path / "kallsyms")
    )
    assert table.name == [name for number, name in enumerate(names) if number % 3 < 2]
    assert table.address.tolist() == [0x1000 * (number + 1) for number in range(40) if number % 3 < 2]


ADDRESS = "FFFFffff81000000"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"", []),
        (b"0000000000000000 T hidden\n", []),
        (b"garbage\n", []),
        (f"{ADDRESS} T f\nshort\n".encode(), ["f"]),
        (f"{ADDRESS[:-1]}g T f\n".encode(), []),
        (f"{ADDRESS} T \n".encode(), [""]),
        (f"{ADDRESS} W no_end".encode(), []),
        (f"{ADDRESS} w ".encode() + b"\xff\n", ["\ufffd"]),
    ],
)
def test_hidden_or_unreadable_kernel_symbols_are_none(tmp_path: Path, text: bytes, names: list[str]) -> None:
    (tmp_path / "kallsyms").write_bytes(text)
    found = symbols_at(np.array([1, 0xFFFFFFFF81000001], np.uint64), read_code_symbols(tmp_path / "kallsyms"))
    assert found.name == names
    assert found.address.tolist() == [int(ADDRESS, 16)] * len(names)


@pytest.mark.parametrize("where", ["mappings", "build-id"])
def test_a_process_that_keeps_the_snapshot_waiting_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    is_over = threading.Event()
    if where == "mappings":
        monkeypatch.setattr(snapshot.Snapshot, "read", lambda *_: is_over.wait() and None)
    else:
        monkeypatch.setattr(snapshot, "read_build_id", lambda _: is_over.wait() and "")
    monkeypatch.setattr(patience, "_MOST_S", 10 * PATIENCE_S)
    monkeypatch.setattr(snapshot, "_PATIENCE_S", 0.1)
    with SpoolWriter(OwnFolder.open(tmp_path)) as spool:
        found = SnapshotThread([os.getpid(), os.getppid()], spool).finish()
    is_over.set()
    assert found == ["2 processes have no names: what they map could not be read in 0.1 seconds"]


def test_a_path_that_does_not_answer_leaves_others_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_over, answer = threading.Event(), Path.stat

    def silent(path: Path, **options: bool) -> os.stat_result:
        if path == program:  # and what is below /proc answers
            is_over.wait()
        return answer(path, **options)

    program = Path(shutil.copy("/bin/sleep", tmp_path))
    held: list[int] = []
    with subprocess.Popen([program, "600"]) as child, SpoolWriter(OwnFolder.open(tmp_path)) as spool:
        try:
            monkeypatch.setattr(Path, "stat", silent)
            found = SnapshotThread([os.getpid(), child.pid], spool, hold=lambda pid, *_: held.append(pid)).finish(60)
        finally:
            is_over.set()
            child.kill()
    assert found == ["what 1 process mapped could not be read in time: names may be missing"]
    assert held == []
    processes = initial_tables(tmp_path / "spool" / INITIAL_FILE, SpoolDamage())[1]
    assert {os.getpid(), child.pid} <= set(processes["pid"].to_pylist())


def test_a_snapshot_of_this_process_comes_back_as_tables(tmp_path: Path) -> None:
    with SpoolWriter(OwnFolder.open(tmp_path)) as spool:
        assert SnapshotThread([os.getpid(), 2**22 + 1], spool).finish() == []  # the other one does not exist
    damage = SpoolDamage()
    mappings, processes = initial_tables(tmp_path / "spool" / INITIAL_FILE, damage)
    assert damage.bytes == 0
    rows = mappings.select(["path", "build_id"]).to_pylist()
    files = {row["path"]: row["build_id"] for row in rows if Path(row["path"]).is_file()}
    assert files == {path: read_build_id(path) or None for path in files}
    assert set(mappings["pid"].to_pylist()) == {os.getpid()}
    paths = mappings["path"].to_pylist()
    assert any(path.endswith("python3") or "python" in path for path in paths)
    assert "[vdso]" in paths
    assert set(processes["kind"].to_pylist()) == {"name"}
    lines = {line.split()[0]: line for line in Path("/proc/self/maps").read_text().splitlines() if " r-xp " in line}
    address, length = mappings["address"].to_pylist()[0], mappings["length"].to_pylist()[0]
    assert f"{address:08x}-{address + length:08x}" in set(lines)


def test_a_process_that_ends_while_build_ids_are_read_has_its_mappings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import os; os.write(1, b'.'); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.read(1)

        def read_and_end(path: Path) -> str:
            child.kill()
            child.wait()
            return read_build_id(path)

        monkeypatch.setattr(snapshot, "read_build_id", read_and_end)
        with SpoolWriter(OwnFolder.open(tmp_path)) as spool:
            assert SnapshotThread([os.getpid(), child.pid], spool).finish() == []
    rows = initial_tables(tmp_path / "spool" / INITIAL_FILE, SpoolDamage())[0].to_pylist()
    assert {row["pid"] for row in rows} == {child.pid, os.getpid()}
    mine = {row["path"]: row["build_id"] for row in rows if row["pid"] == os.getpid() and Path(row["path"]).is_file()}
    assert mine == {path: read_build_id(path) or None for path in mine}


def test_damaged_snapshot_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    good = {"pid": 1, "threads": {"1": "init"}, "maps": [[4096, 4096, 0, "/bin/x", "ab"]]}
    lines = [json.dumps(good), "[]", '{"pid": "x"}', json.dumps(good | {"maps": [[1]]}), json.dumps(good)[:-4]]
    (tmp_path / "initial.jsonl").write_text("\n".join(lines))
    damage = SpoolDamage()
    mappings, _ = initial_tables(tmp_path / "initial.jsonl", damage)
    assert len(mappings) == 1
    assert damage.bytes == sum(len(line) for line in lines[1:])


def test_cpu_lists() -> None:
    assert parse_cpu_list("0-3,8,10-11") == [0, 1, 2, 3, 8, 10, 11]
    assert parse_cpu_list("") == parse_cpu_list("x") == []


@pytest.mark.parametrize(
    ("machine", "command_line", "expected"),
    [
        ("x86_64", "", True),
        ("aarch64", "quiet", False),
        ("aarch64", "quiet irqchip.gicv3_pseudo_nmi=1", None),  # asked for, which is not to have it
        ("aarch64", "irqchip.gicv3_pseudo_nmi=Y irqchip.gicv3_pseudo_nmi=0", False),
        ("aarch64", "xirqchip.gicv3_pseudo_nmi=1", False),
        ("aarch64", "", None),
        ("riscv64", "quiet", None),
    ],
)
def test_whether_samples_reach_code_that_masks_interrupts(
    machine: str, command_line: str, expected: bool | None
) -> None:
    assert has_pmu_nmi(machine, command_line) is expected


def test_ids_of_a_namespace_that_cannot_be_told_are_not_the_hosts(tmp_path: Path) -> None:
    assert not is_in_initial_pid_namespace(tmp_path)
    assert not is_in_initial_pid_namespace(tmp_path / "absent")


def test_the_command_waits_for_start_and_its_status_is_kept(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with Workload(["sh", "-c", f"touch {marker}; exit 7"]) as workload:
        assert workload.poll() is None
        assert not marker.exists()
        workload.start()
        assert workload.wait() == 7
    assert marker.exists()


def test_a_signal_becomes_a_shell_status() -> None:
    with Workload(["sh", "-c", "kill -SEGV $$"]) as workload:
        workload.start()
        assert workload.wait() == 128 + signal.SIGSEGV


def test_an_unstarted_command_never_runs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with Workload(["touch", str(marker)]) as workload:
        pid = workload.pid
    assert not marker.exists()
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_commands_that_cannot_run_say_why(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    for name, status in (("no-such-command-x", 127), (str(plain), 126), (str(tmp_path), 126)):
        with pytest.raises(TdprofError) as caught:
            check_command(name)
        assert caught.value.status == status
    bad = tmp_path / "bad"
    bad.write_bytes(b"\x7fELF nonsense")
    bad.chmod(bad.stat().st_mode | stat.S_IXUSR)
    with Workload([str(bad)]) as workload, pytest.raises(TdprofError, match="cannot execute") as caught:
        workload.start()
    assert caught.value.status == 126
