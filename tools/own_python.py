# SPDX-License-Identifier: Apache-2.0
"""Imported first, it has a tool run by the project's own Python, whichever started it."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv" / "bin" / "python"

if not importlib.util.find_spec("tdprof"):
    if not PYTHON.exists():
        sys.exit(f"{sys.argv[0]}: first run {ROOT / 'tools' / 'setup'} test, which makes the environment that it needs")
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
