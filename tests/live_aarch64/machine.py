"""Runs tdprof on this machine and reads back what it found."""

import contextlib
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tdprof.cli import main as tdprof_main

# `tools/guest/run` counts instructions as time unless told otherwise; only then are counts exact and repeatable.
IS_COUNTED = os.environ.get("GUEST_COUNTS_INSTRUCTIONS") == "1"

# A round of the workload's `hot` and `cold` takes 200,000 cycles. It and this period come into step only after
# thousands of rounds, so that samples are spread evenly over a round.
OUT_OF_STEP = 23_209


def run_tdprof(
    *words: object, user: str | None = None, check: bool = True, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The real command in its own process, as root or as another user; ``before``: what runs it."""
    command = [*before, "setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user else list(before)
    done = subprocess.run(
        [*command, "tdprof", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


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
