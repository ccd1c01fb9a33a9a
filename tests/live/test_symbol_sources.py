"""Symbols that do not come from the mapped file itself: carried by the capture, fetched by path, made at run time."""

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.waiting import PATIENCE_S, wait_until
from live.interpreters import interpreters
from live.recording import EACH_RUNG, TDPROF, assert_share, has_spooled, record, start_record, user_function

pytestmark = [pytest.mark.needs_perf, pytest.mark.beside_others]
RUNGS = [[], pytest.param(["--no-bpf"], marks=pytest.mark.thorough)]


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
    assert "is another file than the recorded one" in said
    assert "replaced since, or its process had another root" in said
    assert "shapes::" not in said


# $2 and $3: a file that is not empty once the recording has begun, which the program waits for; or none.
NAMESPACE = (
    'exec unshare -m sh -c \'mount -t tmpfs none "$1" && cp "$0" "$1/app" && until [ -s "$2" ]; do sleep 0.02; done'
    ' && exec "$1/app" 60\' "$@"'
)
CHROOT = 'cp "$1" "$2/app" && until [ -s "$3" ]; do sleep 0.02; done && exec chroot "$2" /app 60'


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("script", "runs_before"),
    [
        pytest.param(NAMESPACE, True, id="running in another namespace"),
        pytest.param(NAMESPACE, False, id="started in another namespace", marks=pytest.mark.thorough),
        # Of one that runs already /proc tells the path that we see.
        pytest.param(CHROOT, False, id="started in a chroot"),
    ],
)
def test_a_containers_program_is_kept(
    program: Path, folder: Path, tmp_path: Path, script: str, runs_before: bool
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    if script == CHROOT:
        libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"/\S+", libraries):
            (root / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library.lstrip("/"))
    begun = program if runs_before else folder / "spool/initial.jsonl"  # written once the events count
    inside = subprocess.Popen(["sh", "-c", script, "sh", program, root, begun], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        wanted = "app" if runs_before else "sleep"
        while wanted not in _names_below(inside.pid) and time.monotonic() < deadline:
            if inside.poll() is not None:
                assert inside.stderr
                pytest.skip(f"not possible here: {inside.stderr.read().strip()}")
            time.sleep(0.01)
        record("-F", "1999", "-p", inside.pid, "--duration", "0.4" if runs_before else "2", folder=folder)
    finally:
        inside.kill()
        inside.wait()
    program.unlink()
    shutil.rmtree(root)
    said = report(folder, "--lines", "--no-symbol-cache")
    assert "shapes::area(unsigned long)" in said
    kept = subprocess.run(["readelf", "-n", *(folder / "files").iterdir()], capture_output=True, text=True, check=True)
    names = {file.name for file in (folder / "files").iterdir()}
    assert set(re.findall("Build ID: ([0-9a-f]+)", kept.stdout)) == names


DELETES_ITSELF = (
    'cp "$0" "$1/app"; "$1/app" 3 & until [ "$(readlink /proc/$!/exe)" = "$1/app" ]; do sleep 0.02; done; sleep 0.3;'
    ' rm "$1/app"; wait'
)
ENDED_NAMESPACE = 'exec unshare -m sh -c \'mount -t tmpfs none "$1" && cp "$0" "$1/app" && "$1/app" 3\' "$0" "$1"'


@pytest.mark.needs_root
@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("script", [DELETES_ITSELF, ENDED_NAMESPACE])
def test_a_program_that_is_gone_when_recording_ends_is_kept(
    program: Path, folder: Path, tmp_path: Path, script: str, rung: list[str]
) -> None:
    (tmp_path / "root").mkdir()
    record("-F", "1999", *rung, "--", "sh", "-c", script, program, tmp_path / "root", folder=folder)
    program.unlink()
    assert "shapes::area(unsigned long)" in report(folder, "--lines", "--no-symbol-cache")


@pytest.mark.needs_root
@pytest.mark.parametrize("rung", RUNGS)
def test_a_program_in_memory_is_kept(build: Callable[[str], Path], folder: Path, rung: list[str]) -> None:
    """No path ever led to it."""
    capture = record("-F", "1999", *rung, "--", build("in_memory.c"), build("split.c"), "0.5", folder=folder)
    samples = capture.user_samples()
    assert_share(samples["heavy"], samples["heavy"] + samples["light"], 0.75)
    path = capture.count(lambda sample: sample.frames[-1] if user_function(sample) == "heavy" else None)
    assert set(path) <= {"_start", "[incomplete: no-table]"}  # the first ones may come before its table
    assert path["_start"] >= path.total() / 2


@pytest.mark.needs_root
def test_a_deleted_program_that_runs_is_kept(program: Path, folder: Path) -> None:
    running = subprocess.Popen([program, "60"])
    try:
        time.sleep(0.2)
        program.unlink()
        record("-F", "1999", "-p", running.pid, "--duration", "0.4", folder=folder)
    finally:
        running.kill()
        running.wait()
    assert "shapes::area(unsigned long)" in report(folder, "--lines", "--no-symbol-cache")


@pytest.mark.needs_root
@pytest.mark.parametrize("rung", RUNGS)
def test_a_program_deleted_before_the_recording_and_ended_within_it_is_kept(
    program: Path, folder: Path, rung: list[str]
) -> None:
    running = subprocess.Popen([program, "600"])
    try:
        wait_until(lambda: os.readlink(f"/proc/{running.pid}/exe") == str(program), running)
        program.unlink()
        recorder = start_record("-F", "1999", *rung, "-p", running.pid, folder=folder)
        wait_until(lambda: has_spooled(folder), recorder)
    finally:
        running.kill()
        running.wait()
    recorder.communicate()
    assert recorder.returncode == 0
    assert "shapes::area(unsigned long)" in report(folder, "--lines", "--no-symbol-cache")


def _names_below(pid: int) -> set[str]:
    """Of a process and its children."""
    names = set()
    for one in [pid, *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]:
        with contextlib.suppress(OSError):  # a child may end at any time
            names.add(Path(f"/proc/{one}/comm").read_text().strip())
    return names


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


def test_python_names_its_functions_and_their_callers_are_found(folder: Path, tmp_path: Path) -> None:
    """Without BPF, where of the interpreter's frames those alone are walked that it makes for perf."""
    new = [path for version, path in interpreters().items() if int(version.split(".")[1]) >= 12]
    if not new:
        pytest.skip("no CPython 3.12 or later")
    script = tmp_path / "spin.py"
    script.write_text(
        "import time\n"
        "def hot_function(n):\n    s = 0\n    for i in range(n): s = s * 31 + i & 0xFFFF\n    return s\n"
        "while time.process_time() < 0.7: hot_function(20000)\n"
    )
    capture = record("--no-bpf", "-F", "1999", "--", new[-1], "-X", "perf", script, folder=folder)
    names = [f"py::{name}:{script}" for name in ("hot_function", "<module>")]
    found = capture.count(lambda sample: tuple(frame for frame in sample.frames if frame in {*names, "_start"}))
    assert found[*names, "_start"] > 0.7 * found.total()
    assert found[*names, "_start"] > 0.97 * sum(count for frames, count in found.items() if names[0] in frames)


@pytest.mark.parametrize("options", EACH_RUNG)
def test_a_program_whose_path_is_no_utf8_keeps_its_names(
    build: Callable[[str], Path], folder: Path, tmp_path: Path, options: list[str]
) -> None:
    elsewhere = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(elsewhere)
    program = shutil.copy(os.fsencode(build("split.c")), elsewhere)
    samples = record("-F", "1999", *options, "--", os.fsdecode(program), "0.4", folder=folder).user_samples()
    assert_share(samples["heavy"], samples["heavy"] + samples["light"], 0.75)
