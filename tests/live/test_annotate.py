"""`tdprof annotate` on recordings: source, instructions, and code of which something is missing."""

import json
import os
import pty
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.perf_tool import NO_PERF, find_perf, run_perf
from live.recording import TDPROF, record

pytestmark = [pytest.mark.needs_perf, pytest.mark.beside_others]


def annotate(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TDPROF, "annotate", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": "/nonexistent", **environment},
    )


def as_json(*arguments: object) -> dict[str, Any]:
    result = annotate(*arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    data: dict[str, Any] = json.loads(result.stdout)
    return data


@pytest.fixture(scope="module")
def program(build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workload, compiled beside a copy of its source, so that both may be changed."""
    folder = tmp_path_factory.mktemp("annotate")
    shutil.copy(Path(__file__).parent / "workloads" / "steps.c", folder)
    flags = ["-O1", "-g", "-fno-omit-frame-pointer"]
    subprocess.run(["gcc", *flags, "-o", "steps", "steps.c"], cwd=folder, check=True)
    record("--", folder / "steps", 1500, folder=folder / "capture")
    return folder


def test_source_lines_add_up_to_the_function(program: Path) -> None:
    data = as_json(program / "capture", "multiply")
    (source,) = data["sources"]
    assert source["path"] == str(program / "steps.c")
    costs = [line["cost"]["cpu-clock"]["self"] for line in source["lines"] if line["cost"]]
    assert sum(costs) == data["cost"]["cpu-clock"]["self"] > 0
    texts = {line["line"]: line["text"] for line in source["lines"]}
    written = (program / "steps.c").read_text().splitlines()
    assert all(text == written[number - 1].expandtabs(8) for number, text in texts.items())
    assert data["notes"] == []


def test_instructions_add_up_to_the_function(program: Path) -> None:
    data = as_json(program / "capture", "multiply", "--asm")
    (part,) = data["code"]
    costs = [each["cost"]["cpu-clock"]["self"] for each in part["instructions"] if each["cost"]]
    assert sum(costs) == data["cost"]["cpu-clock"]["self"] > 0
    assert part["instructions"][-1]["text"].startswith("ret")
    gaps = [
        b["address"] - a["address"] - a["size"]
        for a, b in zip(part["instructions"], part["instructions"][1:], strict=False)
    ]
    assert set(gaps) == {0}


def test_text_for_people(program: Path) -> None:
    result = annotate(program / "capture", "multiply", COLUMNS="100")
    assert result.returncode == 0
    assert "__attribute__((noinline)) static uint64_t multiply(uint64_t x, int n)" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("no_colour", [False, True])
def test_colours_on_a_terminal_only_and_not_against_the_users_wish(program: Path, no_colour: bool) -> None:
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "PAGER")}
    environment |= {"TERM": "xterm-256color", "PAGER": "cat"} | ({"NO_COLOR": "1"} if no_colour else {})
    command = [*TDPROF, "annotate", str(program / "capture"), "multiply"]
    subprocess.run(command, stdout=terminal, stderr=subprocess.DEVNULL, env=environment, check=True)
    os.close(terminal)
    shown = os.read(controller, 1 << 16)
    os.close(controller)
    assert b"multiply" in shown
    assert (b"31m" in shown) != no_colour  # red


def test_changed_source_is_said_to_be(program: Path) -> None:
    later = time.time_ns() + 10_000_000_000
    os.utime(program / "steps.c", ns=(later, later))
    (note,) = as_json(program / "capture", "multiply")["notes"]
    assert note == f"{program}/steps.c was changed after the code was built: lines may stand elsewhere now"
    os.utime(program / "steps.c", ns=(1, 1))


def test_missing_source_shows_lines_without_text(program: Path, tmp_path: Path) -> None:
    (program / "steps.c").rename(tmp_path / "steps.c")
    try:
        data = as_json(program / "capture", "multiply")
        assert f"not here: the source file {program}/steps.c (--source-dir DIR" in data["notes"][0]
        assert {line["text"] for line in data["sources"][0]["lines"]} == {None}
        assert as_json(program / "capture", "multiply", "--source-dir", tmp_path)["notes"] == []
        assert as_json(program / "capture", "multiply", "--source-map", f"{program}={tmp_path}")["notes"] == []
    finally:
        (tmp_path / "steps.c").rename(program / "steps.c")


def test_a_replaced_program(program: Path, tmp_path: Path) -> None:
    shutil.copytree(program / "capture", tmp_path / "archived")
    subprocess.run([*TDPROF, "archive", str(tmp_path / "archived")], check=True, capture_output=True)
    (program / "steps").rename(tmp_path / "steps")
    shutil.copy("/bin/true", program / "steps")
    try:
        result = annotate(program / "capture", "multiply")
        assert result.returncode == 2
        assert "no samples in a function 'multiply'" in result.stderr
        result = annotate(program / "capture", "[file replaced]")
        assert "[file replaced]" in result.stdout + result.stderr
        # The names are in the capture, the code is not.
        result = annotate(tmp_path / "archived", "multiply", "--asm")
        assert result.returncode == 0
        assert "another file than the recorded one has the path" in result.stdout
        assert "(code not at hand) in steps" in result.stdout
        assert as_json(tmp_path / "archived", "multiply")["sources"][0]["lines"]
    finally:
        (tmp_path / "steps").rename(program / "steps")


def test_a_stripped_program(program: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program / "steps"], check=True)
    record("--", stripped, 1000, folder=tmp_path / "capture")
    result = annotate(tmp_path / "capture", "multiply")
    assert result.returncode == 2
    name = json.loads(
        subprocess.run([*TDPROF, "report", "--json", str(tmp_path / "capture")], capture_output=True, check=True).stdout
    )["functions"][0]["name"]
    result = annotate(tmp_path / "capture", name, "--asm")
    assert "the file has no symbols" in result.stdout


@pytest.mark.needs_root
def test_the_kernel(tmp_path: Path) -> None:
    record("--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=8000", folder=tmp_path / "capture")
    report = subprocess.run(
        [*TDPROF, "report", "--json", str(tmp_path / "capture")], capture_output=True, check=True
    ).stdout
    kernel = next(each for each in json.loads(report)["functions"] if each["module"] == "[kernel]")
    data = as_json(tmp_path / "capture", f"[kernel]:{kernel['name'].split(' [')[0]}", "--asm")
    assert any("kernel code: a capture has its names" in note for note in data["notes"])
    addresses = [each["address"] for part in data["code"] for each in part["instructions"]]
    assert len(addresses) == len(set(addresses)) > 0


def test_code_made_at_run_time(build: Callable[[str], Path], tmp_path: Path) -> None:
    record("--", build("run_time_code.c"), folder=tmp_path / "capture")
    data = as_json(tmp_path / "capture", "compiled_loop", "--asm")
    assert any("code made at run time" in note for note in data["notes"])


def test_typos_name_the_nearest(program: Path) -> None:
    result = annotate(program / "capture", "multipli")
    assert result.returncode == 2
    assert "did you mean multiply?" in result.stderr
    assert "Traceback" not in result.stderr


def test_csv(program: Path) -> None:
    result = annotate(program / "capture", "multiply", "--asm", "--csv")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("kind,file,line,address,event,samples")
    assert all(line.startswith("instruction,") for line in lines[1:])


def test_perf_data_itself(program: Path, tmp_path: Path) -> None:
    if find_perf() is None:
        pytest.skip(NO_PERF)
    result = run_perf("record", "-q", "-o", "perf.data", "--", program / "steps", "800", cwd=tmp_path)
    if result.returncode:
        pytest.skip(f"perf record: {result.stderr.decode()}")
    assert as_json(tmp_path / "perf.data", "multiply", "--asm")["code"][0]["instructions"]
