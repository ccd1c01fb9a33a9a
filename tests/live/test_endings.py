"""However a recording ends, the command's status is passed on and what was recorded is kept."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.waiting import PATIENCE_S, wait_until
from live.recording import Capture, assert_share, has_spooled, record, run_record, start_record

pytestmark = [pytest.mark.needs_perf, pytest.mark.beside_others]

Build = Callable[[str], Path]


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 7", 7), ("exit 0", 0), ("kill -TERM $$", 143), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)],
)
def test_exit_status_is_passed_on(folder: Path, script: str, status: int) -> None:
    capture = record("--no-bpf", "--", "sh", "-c", script, folder=folder, status=status)
    assert capture.manifest["exit_status"] == status
    assert capture.manifest["state"] == "complete"


def test_the_command_has_our_standard_streams(folder: Path) -> None:
    result = run_record("-q", "--no-bpf", "--", "sh", "-c", "cat; echo error >&2", folder=folder, input="text")
    assert (result.stdout, result.stderr) == ("text", "error\n")


@pytest.fixture
def running(build: Build, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A recording of a program that would work for long, with its first second spooled."""
    recorder = start_record("-F", "1999", "--", build("split.c"), str(PATIENCE_S), folder=folder)
    try:
        wait_until(lambda: has_spooled(folder), recorder)
        yield recorder
    finally:
        # The program outlives a killed recorder; they share a process group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(recorder.pid, signal.SIGKILL)
        recorder.communicate()


def assert_kept(folder: Path) -> Capture:
    capture = Capture(folder)
    samples = capture.user_samples()
    assert_share(samples["heavy"], samples["heavy"] + samples["light"], 0.75)
    return capture


@pytest.mark.needs_bpf
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_stops_both_and_keeps_everything(
    running: subprocess.Popen[str], folder: Path, number: signal.Signals
) -> None:
    running.send_signal(number)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 128 + signal.SIGTERM, said  # how the command ended
    capture = assert_kept(folder)
    assert capture.manifest["state"] == "complete"
    assert not capture.losses()


@pytest.mark.needs_bpf
def test_control_c_reaches_the_command_too(running: subprocess.Popen[str], folder: Path) -> None:
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 128 + signal.SIGINT
    assert assert_kept(folder).manifest["state"] == "complete"


@pytest.mark.needs_perf
def test_impatience_at_the_end_leaves_a_recording_and_says_so(folder: Path) -> None:
    """Ctrl-C five times while the tables are made: the first ends that, the others do not end what it says."""
    program = """
import os, signal
from tdprof.cli import record_end
from tdprof.cli.main import main

def impatient(*_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        for _ in range(4):
            os.kill(os.getpid(), signal.SIGINT)

record_end.RecordEnd.finish = impatient
main()
"""
    words = ["record", "--no-bpf", "-o", str(folder), "true"]
    result = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert result.returncode == 128 + signal.SIGINT, result.stderr
    assert f"{folder} has the whole recording, but not its tables yet" in result.stderr
    assert f"tdprof report {folder}" in result.stderr
    assert "Traceback" not in result.stderr
    assert Capture(folder).manifest["state"] == "recording"
    assert Capture(folder).profile.command == ["true"]


@pytest.mark.needs_bpf
def test_a_killed_recorder_leaves_a_readable_capture(running: subprocess.Popen[str], folder: Path) -> None:
    running.kill()
    running.wait(timeout=PATIENCE_S)
    capture = assert_kept(folder)
    assert capture.manifest["state"] == "recording"


@pytest.mark.needs_bpf
def test_duration_ends_the_recording_not_the_command(build: Build, folder: Path) -> None:
    result = run_record("--duration", "0.3", "--", "sh", "-c", f'"{build("split.c")}" 3; echo finished', folder=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("finished\n")
    assert "recording has ended, waiting for the command to end" in result.stderr
    capture = Capture(folder)
    assert capture.total() < 2.8e9  # of the command's 3 s, on a machine that has other work, too
    assert sum(sample.weight for sample in capture.samples) < 2.8e9


@pytest.mark.needs_bpf
def test_a_program_that_never_stops_remapping_does_not_end_it(build: Build, folder: Path) -> None:
    capture = record("--duration", "1", "--", build("remap.c"), "1.5", sys.executable, folder=folder)
    assert capture.profile.duration_ns >= 0.95e9


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    point = tmp_path / "small"
    point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with (disk / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(512)):
            pass


@pytest.mark.needs_root
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--interval=2s"], marks=pytest.mark.needs_bpf),
        # Copies would fill it at once.
        pytest.param(["--no-bpf", "--call-graph", "fp"], marks=pytest.mark.thorough),
    ],
    ids=["bpf", "ring"],
)
def test_disk_full_while_recording(build: Build, small_disk: Path, options: list[str]) -> None:
    folder = small_disk / "capture"
    recorder = start_record("-F", "1999", *options, "--", build("split.c"), "6", folder=folder)
    try:
        wait_until(lambda: has_spooled(folder), recorder)
        fill(small_disk)  # with BPF what is drained two seconds later has no room
        _out, said = recorder.communicate(timeout=PATIENCE_S)
    finally:
        recorder.kill()
        recorder.communicate()
    assert recorder.returncode != 0
    lines = [line for line in said.splitlines() if line.startswith("tdprof: ")]
    # The command goes on meanwhile, if it has not ended yet.
    assert [line for line in lines if "waiting for the command" not in line] == [
        f"tdprof: recording stopped early: cannot write into {folder}: the disk is full"
    ]
    assert "Traceback" not in said
    capture = assert_kept(folder)
    # The command was left to finish, and the manifest says what happened.
    assert capture.manifest["exit_status"] == 0
    assert any("the disk is full" in note for note in capture.manifest["notes"])
    # It is as long as its only thread was counted, also where the last samples of that are lost.
    assert capture.profile.duration_ns >= capture.manifest["events"][0]["enabled_ns"] - 0.5e9
    assert capture.weight() <= 1.001 * capture.total()


@pytest.mark.needs_root
def test_disk_full_before_recording(small_disk: Path) -> None:
    fill(small_disk)
    result = run_record("--no-bpf", "--", "true", folder=small_disk / "capture")
    assert result.returncode != 0
    assert result.stderr.startswith("tdprof: ")
    assert "disk is full" in result.stderr or "No space left" in result.stderr
    assert "Traceback" not in result.stderr
