"""What a command's environment gets with --perf-maps, and what doctor says of programs that lack it."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tdprof.cli.record import command
from tdprof.errors import TdprofError
from tdprof.recorder import process_memory
from tdprof.recorder.readiness.check import CheckStatus
from tdprof.recorder.readiness.machine import Machine
from tdprof.recorder.readiness.runtimes import check_runtimes
from tdprof.recorder.runtime_options import perf_maps_note, with_perf_maps
from tdprof.recorder.workload import Workload


def test_words_are_added_and_values_that_are_there_stay() -> None:
    set_ = with_perf_maps({"NODE_OPTIONS": "--no-warnings", "DOTNET_PerfMapEnabled": "3"}, has_python=True)
    assert set_["NODE_OPTIONS"] == "--no-warnings --perf-basic-prof-only-functions --interpreted-frames-native-stack"
    assert set_["JAVA_TOOL_OPTIONS"].startswith("-XX:+IgnoreUnrecognizedVMOptions -XX:+PreserveFramePointer")
    assert set_["ERL_AFLAGS"] == "+JPperf true"
    assert set_["PYTHONPERFSUPPORT"] == "1"
    assert "DOTNET_PerfMapEnabled" not in set_
    assert with_perf_maps({"DENO_V8_FLAGS": "--a,--b"}, has_python=True)["DENO_V8_FLAGS"].startswith("--a,--b,--perf-")
    assert "NODE_OPTIONS" in perf_maps_note(set_)
    assert "PYTHONPERFSUPPORT" not in with_perf_maps({}, has_python=False)


def test_the_command_sees_them_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    write = "import os, sys; open(sys.argv[1], 'w').write(os.environ['OURS'] + os.environ['THEIRS'])"
    with Workload([sys.executable, "-c", write, str(tmp_path / "out")], {"THEIRS": "2"}) as workload:
        workload.start()
        assert workload.wait() == 0
    assert (tmp_path / "out").read_text() == "12"


def test_without_a_command_there_is_no_environment() -> None:
    result = CliRunner().invoke(command, ["--perf-maps", "-a"])
    assert isinstance(result.exception, TdprofError)
    assert "--perf-maps" in result.exception.message


def process(root: Path, pid: int, mapped: str, cmdline: str, environ: str = "") -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "maps").write_text(
        f"1000-2000 r-xp 00000000 00:00 7   {mapped}\n3000-4000 r--p 0 00:00 8   /x/libjvm.so\n"
    )
    (folder / "cmdline").write_text(cmdline)
    (folder / "environ").write_text(environ)


def test_doctor_names_runtimes_and_what_they_lack(tmp_path: Path) -> None:
    assert check_runtimes(Machine(tmp_path)).status is CheckStatus.OK
    process(tmp_path, 1, "/usr/bin/node", "node\0--perf-basic-prof\0app.js")
    process(tmp_path, 2, "/usr/bin/python3.11", "python3")
    assert check_runtimes(Machine(tmp_path)).detail == "running: Node (1 process), Python (1 process)"
    assert check_runtimes(Machine(tmp_path)).status is CheckStatus.OK
    process(tmp_path, 6, "/usr/lib/x86_64-linux-gnu/libpypy3.9-c.so", "pypy3")
    detail = check_runtimes(Machine(tmp_path)).detail
    assert detail.endswith("PyPy (1 process); nothing names the functions of PyPy programs")
    process(tmp_path, 3, "/usr/bin/node", "node\0app.js")
    process(tmp_path, 4, "/jvm/lib/server/libjvm.so", "java", "JAVA_TOOL_OPTIONS=-XX:+PreserveFramePointer")
    process(tmp_path, 5, "/jvm/lib/server/libjvm.so", "java")
    check = check_runtimes(Machine(tmp_path))
    assert check.status is CheckStatus.WARN
    assert check.cost.endswith("Node (3): node --perf-basic-prof; Java (5): -XX:+PreserveFramePointer")
    assert check.fix == "tdprof record --perf-maps -- CMD sets it"
    process(tmp_path, 7, "/usr/bin/ruby3.1", "ruby")
    assert check_runtimes(Machine(tmp_path)).fix == "tdprof record --perf-maps -- CMD sets it for Node and Java"


def test_doctor_knows_what_perf_maps_does_not_set(tmp_path: Path) -> None:
    process(tmp_path, 1, "/usr/bin/php8.2", "php")
    check = check_runtimes(Machine(tmp_path))
    assert (check.status, check.fix) == (CheckStatus.WARN, "")
    assert "PHP (1): php -d opcache" in check.cost


def test_doctor_goes_on_where_what_reads_memory_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "_READER", "import os; os.write(1, b'r')")
    process(tmp_path, 1, "/usr/bin/node", "node")
    assert check_runtimes(Machine(tmp_path)).detail == "no program of a known one runs; 1 process did not answer"
