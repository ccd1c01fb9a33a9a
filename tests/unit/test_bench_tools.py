"""The benchmarks say what they lack."""

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def test_fetching_without_the_tools_names_their_packages() -> None:
    result = subprocess.run(
        [sys.executable, TOOLS / "bench/symbols", "--fetch"],
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 1
    assert "needs eu-unstrip" in result.stderr
    assert "sudo apt-get install elfutils" in result.stderr
