"""`tools/demo`: the whole path on a program with a known answer."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
README = PROJECT / "README.md"


@pytest.mark.thorough
@pytest.mark.needs_perf
def test_the_demo_leaves_what_it_says_and_finds_the_known_split(tmp_path: Path) -> None:
    if not Path("/proc/sys/kernel/perf_event_paranoid").exists():
        pytest.skip("this kernel has no perf events")
    for needed in ("cc", "apt-get"):
        if not shutil.which(needed):
            pytest.skip(f"tools/demo needs {needed}")
    result = subprocess.run(
        [PROJECT / "tools/demo"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    folder = tmp_path / "tdprof-demo"
    assert {"tdprof.capture", "report.txt", "demo.html", "demo.speedscope.json", "demo.pb.gz"} <= set(
        os.listdir(folder)
    )
    assert (folder / "report.txt").read_text() in result.stdout
    report = subprocess.run(
        [sys.executable, "-m", "tdprof", "report", folder / "tdprof.capture", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(report.stdout)
    for words in re.findall(
        r"^\| `tdprof ((?:report|annotate|export|archive)\b.*?)` \|", README.read_text(), re.MULTILINE
    ):
        example = [sys.executable, "-m", "tdprof", *words.split()]
        tried = subprocess.run(example, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        assert tried.returncode == 0, f"{words}: {tried.stderr}"
    # Inclusive, because `mix` is inlined into both and stands on its own.
    total = {function["name"]: next(iter(function["total"].values())) for function in found["functions"]}
    share = total["smooth"] / (total["smooth"] + total["count_levels"])
    # Three standard deviations of a share sampled that often, and two points for what else runs on the machine.
    assert abs(share - 0.75) < 3 * math.sqrt(0.75 * 0.25 / found["events"][0]["samples"]) + 0.02
