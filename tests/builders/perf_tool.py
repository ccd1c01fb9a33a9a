"""The perf tool, where it works."""

import functools
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

NO_PERF = "no perf that works is installed"


@functools.cache
def find_perf() -> str | None:
    """Path of perf; None without one. Ubuntu's is a script that fails unless it finds one for the running kernel."""
    path = shutil.which("perf")
    works = path is not None and subprocess.run([path, "version"], capture_output=True, check=False).returncode == 0
    return path if works else None


def run_perf(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[Any]:
    """As ``subprocess.run`` of perf, and again where it ended itself ("stack smashing detected"): Debian 12's does so
    while another recording has Linux mark mappings as if they had build-ids. Then there is nothing to compare with.
    """
    for _ in range(9):
        result = subprocess.run(["perf", *words], capture_output=True, check=False, timeout=300, **options)
        if result.returncode >= 0:
            return result
    pytest.skip(f"perf ended itself: {str(result.stderr)[-200:]}")


def perf_shares(path: Path, key: str) -> Counter[str]:
    """Sum of the periods by ``comm``, ``dso`` or ``cgroup``, as perf report has it."""
    command = f"report --stdio --no-children -g none --percent-limit 0 -F period,{key} -w 20,64 -t ; -i".split()
    result = run_perf(*command, path, text=True)
    assert result.returncode == 0, result.stderr
    shares: Counter[str] = Counter()
    for line in result.stdout.splitlines():
        if line.strip() and not line.startswith("#"):
            period, name = line.split(";")
            shares[name.strip()] += int(period)
    return shares
