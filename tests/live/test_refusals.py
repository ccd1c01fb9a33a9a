"""`tdprof record` asked for the impossible: one clear line, perhaps a hint, a status, nothing left behind."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from live.recording import run_record
from tdprof.recorder.events import parse_event
from tdprof.recorder.permitted import can_open

pytestmark = pytest.mark.beside_others
NO_PID = 2**22 + 1  # above any pid_max


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["-e", "no-such-event", "--", "true"], 2, "unknown event 'no-such-event'"),
        (["-e", "cpu-clok", "--", "true"], 2, "unknown event 'cpu-clok'"),
        (["-e", "cpu-clock:x", "--", "true"], 2, "'cpu-clock:x'"),
        (["-e", "sched:sched_switch", "--", "true"], 2, "tracepoint"),
        (["-e", "no_such_pmu/event/", "--", "true"], 2, "no PMU named 'no_such_pmu'"),
        (["-e", "{cpu-clock,page-faults}", "--", "true"], 2, "braces"),
        (["-e", ",", "--", "true"], 2, "the event list is empty"),
        (["-e", "no-such-event", "-e", "cpu-clock", "--", "true"], 2, "unknown event 'no-such-event'"),
        (["-p", "abc", "-p", "1"], 2, "-p takes process IDs, not 'abc,1'"),
        (["-p", str(NO_PID)], 1, f"no process with PID {NO_PID}"),
        (["-p", "12,abc"], 2, "-p takes process IDs, not '12,abc'"),
        (["--", "/no/such/command"], 127, "command not found: /no/such/command"),
        (["--", "no-such-command-anywhere"], 127, "command not found: no-such-command-anywhere"),
        (["--", "/etc/passwd"], 126, "/etc/passwd is not executable"),
        (["--", "/etc"], 126, "/etc is a directory"),
        ([], 2, "nothing to record"),
        (["-a", "-p", "1"], 2, "-p and -a or --cgroup exclude each other"),
        (["-a", "--", "no-such-command-anywhere"], 127, "command not found: no-such-command-anywhere"),
        (["-F", "99", "-c", "1000", "--", "true"], 2, "-F and -c exclude each other"),
    ],
)
def test_one_line_and_a_status(folder: Path, arguments: list[str], status: int, said: str) -> None:
    result = run_record(*arguments, folder=folder)
    assert result.returncode == status, result.stderr
    lines = result.stderr.splitlines()
    assert lines[0].startswith("tdprof: ")
    assert said in lines[0]
    assert len(lines) <= 2
    assert all(line.startswith("  try: ") for line in lines[1:])
    assert result.stdout == ""
    assert not folder.exists()


@pytest.mark.parametrize(
    "arguments", [["--no-such-option"], ["-F", "0"], ["-F", "fast"], ["-c", "-5"], ["--duration", "-1"], ["-F"]]
)
def test_options_that_make_no_sense(folder: Path, arguments: list[str]) -> None:
    result = run_record(*arguments, "--", "true", folder=folder)
    assert result.returncode == 2
    assert "Error: " in result.stderr or "tdprof: " in result.stderr
    assert "Traceback" not in result.stderr
    assert not folder.exists()


@pytest.mark.needs_perf
@pytest.mark.skipif(can_open(parse_event("cycles:u"), sampling=True), reason="the PMU here can sample cycles")
def test_an_event_that_nothing_here_can_sample(folder: Path) -> None:
    result = run_record("-e", "cycles", "--", "true", folder=folder)
    assert result.returncode == 1
    message, hint = result.stderr.splitlines()
    assert message.startswith("tdprof: this machine cannot sample 'cycles")
    assert "cpu-clock" in hint
    assert not folder.exists()


@pytest.mark.needs_perf
def test_a_rate_above_the_limit_is_the_limit(folder: Path) -> None:
    limit = int(Path("/proc/sys/kernel/perf_event_max_sample_rate").read_text())
    result = run_record("-F", "100000000", "--", "true", folder=folder)
    assert result.returncode == 0
    assert "not 100000000: that is all the kernel admits now" in result.stderr
    [event] = json.loads((folder / "capture.json").read_text())["events"]
    assert 0 < event["frequency_hz"] <= max(limit, 100_000)


@pytest.mark.needs_perf
def test_a_script_whose_interpreter_is_missing(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    result = run_record("--no-bpf", "--", script, folder=folder)
    assert result.returncode == 126
    assert result.stderr.startswith(f"tdprof: cannot execute {script}: ")
    assert not folder.exists()


def test_a_folder_that_exists_stays_as_it_is(folder: Path) -> None:
    folder.mkdir()
    (folder / "mine").write_text("kept")
    result = run_record("--", "true", folder=folder)
    assert result.returncode == 1
    assert result.stderr.startswith(f"tdprof: {folder} exists already\n")
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_a_file_in_the_way(folder: Path) -> None:
    folder.write_text("kept")
    result = run_record("--", "true", folder=folder)
    assert result.returncode == 1
    assert "exists already" in result.stderr
    assert folder.read_text() == "kept"


def test_a_folder_below_nothing(tmp_path: Path) -> None:
    result = run_record("--", "true", folder=tmp_path / "no" / "such" / "capture")
    assert result.returncode == 1
    assert result.stderr.startswith(f"tdprof: cannot create {tmp_path}/no/such/capture: No such file or directory")


@pytest.mark.needs_root
def test_a_file_system_that_is_read_only(tmp_path: Path) -> None:
    point = tmp_path / "read-only"
    point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(point)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        result = run_record("--", "true", folder=point / "capture")
    finally:
        subprocess.run(["umount", str(point)], check=True)
    assert result.returncode == 1
    assert result.stderr.startswith(f"tdprof: cannot create {point}/capture: Read-only file system")


@pytest.mark.needs_perf
def test_a_process_that_is_ending(folder: Path) -> None:
    """A PID that is gone by the time it is looked at, not one that never was."""
    process = subprocess.Popen(["true"])
    process.wait()
    result = run_record("-p", process.pid, folder=folder)
    assert result.returncode == 1
    assert result.stderr.startswith(f"tdprof: no process with PID {process.pid}")
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("ls -l", "  try: sh -c 'ls -l' "),
        ("/no/such/command", "  try: ls /no/such"),
        ("no-such-command-anywhere", "  try: command -v no-such-command-anywhere "),
    ],
)
def test_a_command_that_is_not_found_has_a_hint(folder: Path, command: str, hint: str) -> None:
    said = run_record("--", command, folder=folder).stderr
    assert said.splitlines()[1].startswith(hint)


@pytest.mark.needs_bpf
def test_few_files_that_may_be_open_are_raised_or_named(folder: Path) -> None:
    """What the hard limit allows is used, but not handed down; where that is little, more is the cure and not sudo."""
    limited = ("sh", "-c", 'ulimit -S -n 70; exec "$@"', "limited")
    raised = run_record("--off-cpu", "--", "sh", "-c", "ulimit -n", folder=folder, prefix=limited)
    assert raised.returncode == 0, raised.stderr
    assert raised.stdout == "70\n"
    limited = ("sh", "-c", 'ulimit -n 70; exec "$@"', "limited")
    # Where CAP_SYS_RESOURCE is had the hard limit does not count either.
    result = run_record("--off-cpu", "--", "true", folder=folder.with_name("second"), prefix=limited)
    assert result.returncode == 0 or result.stderr.splitlines()[0] == "tdprof: too many open files", result.stderr
    assert result.returncode == 0 or "ulimit -n" in result.stderr.splitlines()[1]
