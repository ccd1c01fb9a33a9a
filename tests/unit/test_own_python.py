"""Tools find the project's own Python."""

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"


def test_a_tool_is_run_by_the_projects_python_whichever_started_it(tmp_path: Path) -> None:
    without_packages = [sys.executable, "-E", "-S"]
    command = [*without_packages, str(TOOLS / "bench" / "schedule"), "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    if (TOOLS.parent / ".venv").exists():
        assert found.stdout.startswith("usage: schedule"), found.stderr
    else:
        assert found.stderr.endswith("tools/setup test, which makes the environment that it needs\n")
