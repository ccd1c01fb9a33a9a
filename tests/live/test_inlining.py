"""C++ whose work is inlined: the inlined calls stand in the stacks, with their lines."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from live.recording import TDPROF, record

pytestmark = [pytest.mark.needs_perf, pytest.mark.beside_others]


def test_inlined_calls_are_frames(build: Callable[[str], Path], folder: Path) -> None:
    capture = record("-F", "1999", "--", build("inlined.cpp"), "0.4", folder=folder)
    work = capture.count(lambda sample: sample.frames if "shapes::total(int)" in sample.frames else None)
    assert work.total() >= 0.95 * capture.user_samples().total() >= 300
    deepest = [frames for frames in work if "shapes::area(unsigned long)" in frames]
    for frames in deepest:
        at = frames.index("shapes::area(unsigned long)")
        assert frames[at : at + 4] == (
            "shapes::area(unsigned long)",
            "shapes::Sum<int>::add(unsigned long)",
            "shapes::total(int)",
            "main",
        )
    # All but the function's entry and its addition of `value`.
    assert sum(work[frames] for frames in deepest) >= 0.95 * work.total()


def test_the_hottest_line_is_the_loop(build: Callable[[str], Path], folder: Path) -> None:
    record("-F", "1999", "--", build("inlined.cpp"), "0.3", folder=folder)
    report = subprocess.run([*TDPROF, "report", "--json", "--lines", folder], capture_output=True, check=True)
    hottest = json.loads(report.stdout)["functions"][0]
    source = (Path(__file__).parent / "workloads" / "inlined.cpp").read_text().splitlines()
    assert hottest["name"] == "shapes::area(unsigned long)"
    assert Path(hottest["file"]).name == "inlined.cpp"
    assert "SPIN(n)" in source[hottest["line"] - 1]
