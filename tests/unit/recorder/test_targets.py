"""Which tasks a recording of running processes is of."""

import os
import subprocess

import pytest

from tdprof.errors import TdprofError
from tdprof.recorder import targets


def ended_pid() -> int:
    """Of a process that has ended, and been waited for."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_child_that_has_ended_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own, gone = os.getpid(), ended_pid()
    monkeypatch.setattr(targets, "processes_of", lambda pids: [*dict.fromkeys(pids), gone])
    processes, tasks = targets.tasks_of([own, own])
    assert processes == [own, gone]
    assert sorted(tasks) == sorted(targets.threads_of([own]))


def test_one_that_was_named_has_to_be_there() -> None:
    with pytest.raises(TdprofError, match="no process with PID"):
        targets.tasks_of([ended_pid()])
