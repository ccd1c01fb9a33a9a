"""Functions of Node programs have names where the program was told to write them down."""

import shutil
from pathlib import Path

import pytest

from live.recording import Capture, run_record

pytestmark = [
    pytest.mark.needs_bpf,
    pytest.mark.skipif(not shutil.which("node"), reason="no Node (apt-get install nodejs)"),
]

# Of a function that is inlined nothing could be counted; what has a loop that is interrupted is compiled on the way.
PROGRAM = """
function heavy(rounds) {
  let total = 0
  for (let i = 0; i < rounds; i++) total = (total + i % 7 * (i ^ total)) | 0
  return total
}
function light(rounds) {
  let total = 0
  for (let i = 0; i < rounds; i++) total = (total + i % 7 * (i ^ total)) | 0
  return total
}
let total = 0
const began = process.cpuUsage().user
while (process.cpuUsage().user - began < 1e6) for (let i = 0; i < 50; i++) total += heavy(30000) + light(10000)
console.log(total)
"""


def test_three_to_one(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "split.js"
    script.write_text(PROGRAM)
    result = run_record("--perf-maps", "--", "node", "--max-inlined-bytecode-size=0", script, folder=folder)
    assert result.returncode == 0
    assert not list(Path().glob("isolate-*"))
    assert "--perf-maps: set in the command's environment: " in result.stderr
    capture = Capture(folder)
    found = capture.count(
        lambda sample: next((each for each in ("heavy", "light") if f"*{each} " in sample.frames[0]), None)
    )
    heavy, light = found["heavy"], found["light"]
    assert heavy + light >= 100
    # Five standard errors of the share, and a twentieth for rounds that are not all alike.
    assert abs(heavy / (heavy + light) - 0.75) <= 0.05 + 5 * (0.75 * 0.25 / (heavy + light)) ** 0.5
