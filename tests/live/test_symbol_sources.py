"""Symbols that do not come from the mapped file itself: carried by the capture, fetched by path, made at run time."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from live.recording import TDPROF, record

pytestmark = pytest.mark.needs_perf


def report(folder: Path, *arguments: str | Path, **environment: str) -> str:
    command = [*TDPROF, "report", str(folder), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
    return result.stdout


@pytest.fixture
def program(build: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a program that the test may move away."""
    return Path(shutil.copy(build("inlined.cpp"), tmp_path / "program"))


def test_a_capture_with_symbols_needs_no_binary(program: Path, folder: Path) -> None:
    record("-F", "1999", "--with-symbols", "--", program, "0.3", folder=folder)
    expected = report(folder, "--lines")
    assert "shapes::area(unsigned long)" in expected
    program.unlink()
    assert report(folder, "--lines") == expected


def test_archive_and_symfs(program: Path, folder: Path, tmp_path: Path) -> None:
    record("-F", "1999", "--", program, "0.3", folder=folder)
    elsewhere = tmp_path / "sysroot" / str(program).lstrip("/")
    elsewhere.parent.mkdir(parents=True)
    program.rename(elsewhere)
    without = report(folder, "--no-symbol-cache")
    assert "shapes::area" not in without
    assert "--symfs" in without
    with_files = report(folder, "--symfs", tmp_path / "sysroot")
    assert "shapes::area(unsigned long)" in with_files
    archived = subprocess.run(
        [*TDPROF, "archive", folder, "--symfs", tmp_path / "sysroot"], capture_output=True, text=True, check=True
    )
    assert "carries the symbols of" in archived.stderr
    assert "shapes::area(unsigned long)" in report(folder)


def test_a_replaced_program_is_named_not_used(program: Path, folder: Path) -> None:
    record("-F", "1999", "--", program, "0.3", folder=folder)
    shutil.copy("/bin/true", program.with_name("new"))
    os.replace(program.with_name("new"), program)
    said = report(folder, "--no-symbol-cache")
    assert "was replaced since the recording" in said
    assert "shapes::" not in said


def test_cache_command(program: Path, folder: Path, tmp_path: Path) -> None:
    record("-F", "1999", "--", program, "0.3", folder=folder)
    home = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    report(folder, **home)
    shown, pruned, after = (
        subprocess.run([*TDPROF, "cache", *more], capture_output=True, text=True, check=True, env=os.environ | home)
        for more in ([], ["--prune", "0"], [])
    )
    assert "0 files" not in shown.stdout
    assert "removed" in pruned.stdout
    assert ": 0 files" in after.stdout
    wrong = subprocess.run([*TDPROF, "cache", "--prune", "much"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr.splitlines()[0]) == (2, "tdprof: 'much' is no size")


def test_node_names_its_functions(folder: Path, tmp_path: Path) -> None:
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    script = tmp_path / "spin.js"
    script.write_text(
        "function hotFunction(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) | 0; return s; }\n"
        "const end = Date.now() + 700; let r = 0; while (Date.now() < end) r += hotFunction(100000);\n"
    )
    record(
        "-F",
        "1999",
        "--",
        "node",
        "--perf-basic-prof",
        "--no-logfile-per-isolate",
        f"--logfile={tmp_path}/v8.log",
        script,
        folder=folder,
    )
    assert "hotFunction" in report(folder)
