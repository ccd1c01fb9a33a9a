"""What a command inherits is as without tdprof: signals that were ignored when it was started, and its niceness."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders.waiting import PATIENCE_S
from live.recording import TDPROF

pytestmark = [pytest.mark.needs_perf, pytest.mark.beside_others]

TELL = ("grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status")


def ignoring(signals: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    started = ["sh", "-c", f'trap "" {signals}; exec "$@"', "sh", *command] if signals else list(command)
    return subprocess.run(started, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def recording(folder: Path, *command: str) -> list[str]:
    return [*TDPROF, "record", "-q", "--no-bpf", "-o", str(folder), "--", *command]


def counting(*command: str) -> list[str]:
    return [*TDPROF, "stat", "-e", "task-clock", "--", *command]


@pytest.mark.parametrize("signals", ["", "HUP", "INT QUIT", "TERM", "CHLD", "HUP INT TERM CHLD USR1"])
def test_the_command_ignores_what_it_would_have_without_us(folder: Path, signals: str) -> None:
    expected = ignoring(signals, TELL).stdout
    assert expected
    for command in (recording(folder, *TELL), counting(*TELL)):
        result = ignoring(signals, command)
        assert result.returncode == 0, result.stderr
        assert expected in result.stdout


@pytest.mark.parametrize("signal", ["HUP", "INT", "TERM"])
def test_an_ignored_signal_ends_nothing(folder: Path, signal: str) -> None:
    script = f"kill -{signal} $PPID; sleep 0.2; echo went on"
    for command in (recording(folder, "sh", "-c", script), counting("sh", "-c", script)):
        result = ignoring(signal, command)
        assert (result.returncode, result.stdout.split("\n")[0]) == (0, "went on"), result.stderr


def test_nohup(folder: Path) -> None:
    result = ignoring("", ["nohup", *recording(folder, "sh", "-c", "kill -HUP $PPID; sleep 0.2; echo went on")])
    assert (result.returncode, result.stdout) == (0, "went on\n"), result.stderr


@pytest.mark.parametrize("more", [0, 5])
def test_the_command_is_as_nice_as_without_us(folder: Path, more: int) -> None:
    """Though the recorder runs before it, if it may."""
    tell = ["nice", "-n", str(more)]
    expected = ignoring("", [*tell, "nice"]).stdout
    assert expected
    for command in (recording(folder, "nice"), counting("nice")):
        assert ignoring("", [*tell, *command]).stdout.startswith(expected)
