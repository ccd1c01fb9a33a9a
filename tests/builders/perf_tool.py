"""The perf tool, where it works."""

import functools
import shutil
import subprocess
from collections import Counter
from pathlib import Path

NO_PERF = "no perf that works is installed"


@functools.cache
def find_perf() -> str | None:
    """Path of perf; None without one. Ubuntu's is a script that fails unless it finds one for the running kernel."""
    path = shutil.which("perf")
    works = path is not None and subprocess.run([path, "version"], capture_output=True, check=False).returncode == 0
    return path if works else None


def perf_shares(path: Path, key: str) -> Counter[str]:
    """Sum of the periods by ``comm``, ``dso`` or ``cgroup``, as perf report has it."""
    command = f"perf report --stdio --no-children -g none --percent-limit 0 -F period,{key} -w 20,64 -t ; -i".split()
    output = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True).stdout
    shares: Counter[str] = Counter()
    for line in output.splitlines():
        if line.strip() and not line.startswith("#"):
            period, name = line.split(";")
            shares[name.strip()] += int(period)
    return shares
