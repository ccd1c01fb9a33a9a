"""Running one of this folder's scripts, which drive Chromium, and why it may not run here."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SCREENSHOTS = HERE.parents[1] / ".cache/screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

NEEDS = [
    pytest.mark.skipif(CHROMIUM is None or shutil.which("node") is None, reason="needs Chromium and Node.js"),
    pytest.mark.skipif(
        not (HERE / "node_modules/.setup").exists(), reason="playwright-core is not installed: tools/setup test"
    ),
]


def drive(script: str, *arguments: str | Path) -> Any:
    """What a script prints as JSON; it is given Chromium and the folder for screenshots first."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    command = ["node", HERE / script, str(CHROMIUM), SCREENSHOTS, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
