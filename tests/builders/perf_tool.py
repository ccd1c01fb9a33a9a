"""The perf tool, where it works."""

import functools
import shutil
import subprocess

NO_PERF = "no perf that works is installed"


@functools.cache
def find_perf() -> str | None:
    """Path of perf; None without one. Ubuntu's is a script that fails unless it finds one for the running kernel."""
    path = shutil.which("perf")
    works = path is not None and subprocess.run([path, "version"], capture_output=True, check=False).returncode == 0
    return path if works else None
