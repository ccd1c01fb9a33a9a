"""A process that ends without taking its modules apart has still done all that others see of its end."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = "import atexit, sys, threading, time; from tdprof.cli.process_end import leave\n"


def run(code: str, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-c", PRELUDE + code], text=True, check=False, stderr=subprocess.PIPE, **options
    )


def test_what_was_to_be_done_at_the_end_is_done_and_all_is_written() -> None:
    done = run("atexit.register(print, 'at exit'); print('before'); leave(3)", stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (3, "before\nat exit\n")


def test_threads_that_python_waits_for_are_waited_for() -> None:
    code = "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start(); leave(0)"
    done = run(code, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, "late\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_not_passed_over() -> None:
    with Path("/dev/full").open("w") as full:
        done = run("print('lost'); leave(0)", stdout=full)
    assert done.returncode != 0
    assert "No space left" in done.stderr


@pytest.mark.parametrize("before", ["", "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"])
def test_modules_are_not_taken_apart(before: str) -> None:
    """Nor where a thread is left behind, which may not answer."""
    code = f"class Late:\n def __del__(self): print('taken apart')\nlate = Late()\n{before}\nleave(0)"
    assert run(code, stdout=subprocess.PIPE).stdout == ""


def test_the_command_ends_so_with_its_status() -> None:
    command = [sys.executable, "-m", "tdprof", "report", "/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "/nowhere" in done.stderr
    code = "import sys; sys.argv = ['tdprof', '--version']\nfrom tdprof.cli.main import run_process\nrun_process()"
    done = run(code, stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert done.stdout.startswith("tdprof, version")


CTRL_C_AS_IT_LOADS = """
import builtins, os, signal, sys
load = builtins.__import__
def interrupted(name, *arguments):
    if name == "click":
        os.kill(os.getpid(), signal.SIGINT)
    return load(name, *arguments)
builtins.__import__ = interrupted
sys.argv = ["tdprof", "--version"]
from tdprof.__main__ import start
start()
"""


def test_ctrl_c_while_the_program_loads_is_no_traceback() -> None:
    result = subprocess.run([sys.executable, "-c", CTRL_C_AS_IT_LOADS], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (-signal.SIGINT, b"")
