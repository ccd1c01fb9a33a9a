"""Runs tdprof on this machine and reads back what it found."""

import contextlib
import functools
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from builders import waiting
from tdprof.cli import main as tdprof_main

# `tools/guest/run` counts instructions as time unless told otherwise; only then are counts exact and repeatable.
IS_COUNTED = os.environ.get("GUEST_COUNTS_INSTRUCTIONS") == "1"

# A round of the workload's `hot` and `cold` takes 200,000 cycles. It and this period come into step only after
# thousands of rounds, so that samples are spread evenly over a round.
OUT_OF_STEP = 23_209
# With counted instructions QEMU's clock is one for both CPUs: whatever the recorder does on another than the measured
# program's is counted for that program, too. So both share one, where amounts matter and not their ratios.
ALONE = ("taskset", "-c", "0")
# Only what hangs takes so long, on whatever machine, and then the whole lane need not wait.
HANGS_S = 900
wait_until = functools.partial(waiting.wait_until, patience_s=HANGS_S)


def run_tdprof(
    *words: object, user: str | None = None, check: bool = True, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The real command in its own process, as root or as another user; ``before``: what runs it."""
    command = [*before, "setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user else list(before)
    done = subprocess.run(
        [*command, "tdprof", *map(str, words)], capture_output=True, text=True, check=False, timeout=HANGS_S
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def wait_for_cpu_time(pid: int, seconds: float, process: subprocess.Popen[Any] | None = None) -> None:
    """Until a process has had so much time of a CPU; ``process``: what must not end before."""
    told = Path(f"/proc/{pid}/schedstat")
    wait_until(lambda: int(told.read_text().split()[0]) >= seconds * 1e9, process)


def wait_for_child(process: subprocess.Popen[Any], command: str) -> int:
    """Until a process has a child that executes this command; the child."""
    told = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found: list[str] = []

    def is_there() -> list[str]:
        children = told.read_text().split()
        found[:] = [child for child in children if Path(f"/proc/{child}/comm").read_text().strip() == command]
        return found

    wait_until(is_there, process)
    return int(found[0])


def report(capture: Path) -> dict[str, Any]:
    """What `tdprof report --json` prints; in this process, because starting Python costs seconds in an emulator."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        tdprof_main.cli.main(["report", str(capture), "--json", "--limit", "1000"], standalone_mode=False)
    found: dict[str, Any] = json.loads(text.getvalue())
    return found


def self_counts(found: dict[str, Any], event: str) -> dict[str, float]:
    """Function to its own events."""
    return {row["name"]: row["self"].get(event, 0) for row in found["functions"]}
