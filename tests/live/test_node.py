"""Functions of Node programs have names where the program was told to write them down."""

import itertools
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from live.recording import TDPROF, Capture, run_record

pytestmark = [
    pytest.mark.needs_bpf,
    pytest.mark.skipif(not shutil.which("node"), reason="no Node (apt-get install nodejs)"),
]

JS_FUNCTION = re.compile(r"JS:(f_\w*) .*")

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


# Each function has one possible caller, whose name is its own without the last letter.
CALLS = """
const spin = (n) => { let t = 0; for (let i = 0; i < n; i++) t = (t + i % 7 * (i ^ t)) | 0; return t }
function f_(n) { return f_a(n) + f_b(n) + f_c(n) + spin(20) }
function f_a(n) { try { return f_aa(n) } catch (e) { return 1 } }
function f_aa(n) { if (spin(300) !== 42.5) throw new Error('x'); return 1 }
function f_b(n) { return [3, 1, 2, n % 5].sort(function f_ba(a, b) { return a - b + f_baa(40) })[0] }
function f_baa(n) { return spin(n) & 0 }
function f_c(n) { return 'a1b2c3'.replace(/\\d/g, function f_ca(m) { return String(f_caa(100)) }).length + f_cb(n) }
function f_caa(n) { return spin(n) & 1 }
function f_cb(n) { return JSON.stringify({ get x() { return f_cbx(n) } }).length }
function f_cbx(n) { return spin(250) }
const began = process.cpuUsage().user
let total = 0
while (process.cpuUsage().user - began < 2e6) for (let i = 0; i < 20; i++) total += f_(i)
"""


@pytest.mark.parametrize("option", ["--opt", pytest.param("--always-sparkplug", marks=pytest.mark.thorough)])
def test_callers_in_compiled_code_are_known(option: str, folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "calls.js"
    script.write_text(CALLS)
    node = ("node", "--max-inlined-bytecode-size=0", option, script)
    assert run_record("--perf-maps", "-F", "1999", "--", *node, folder=folder).returncode == 0
    pairs: Counter[tuple[bool, bool]] = Counter()
    for sample in Capture(folder).samples:
        found = [match for frame in sample.frames if (match := JS_FUNCTION.match(frame))]
        for callee, caller in itertools.pairwise(found):
            is_right = callee[1][:-1] == caller[1] or (callee[1], caller[1]) == ("f_cbx", "f_cb")
            pairs[is_right, "[guessed]" in caller[0]] += sample.count
    # Others stood where an old return address was on top, or were taken before the recorder had seen what is mapped.
    assert pairs[True, False] >= 100
    assert pairs[False, False] == 0


# What is inlined into a function is of another file, all of it in a line that the function does not have.
APART = """
module.exports = (n) => { let t = 0; for (let i = 0; i < n; i++) t = (t + i % 7 * (i ^ t)) | 0; return t }
""".strip()
WITH_LIBRARY = """
const apart = require('./apart.js')
function outer(n) {
  let total = 0
  for (let i = 0; i < n; i++) {
    total += apart(10)
    for (let k = 0; k < 20; k++) total = (total + k % 13 * (i ^ total)) | 0
  }
  return total
}
let total = 0
const began = process.cpuUsage().user
while (process.cpuUsage().user - began < 1e6) for (let i = 0; i < 50; i++) total += outer(3000)
console.log(total)
"""


def places(folder: Path, name: str) -> set[tuple[str | None, int | None]]:
    """Where functions were sampled whose names begin so."""
    report = subprocess.run(
        [*TDPROF, "report", "--json", "--lines", "--limit", "0", folder], capture_output=True, check=True
    )
    rows = json.loads(report.stdout)["functions"]
    return {(row["file"], row["line"]) for row in rows if row["name"].startswith(name)}


def test_lines_of_a_dump_are_the_functions_own(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "apart.js").write_text(APART)
    script = tmp_path / "main.js"
    script.write_text(WITH_LIBRARY)
    assert run_record("-F", "1999", "--", "node", "--perf-prof", script, folder=folder, cwd=tmp_path).returncode == 0
    found = places(folder, "JS:outer ")
    assert (str(script), 7) in found
    assert found <= {(str(script), line) for line in (None, *range(3, 10))}


def test_three_to_one(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "split.js"
    script.write_text(PROGRAM)
    result = run_record("--perf-maps", "--", "node", "--max-inlined-bytecode-size=0", script, folder=folder)
    assert result.returncode == 0
    assert not list(Path().glob("isolate-*"))
    assert "--perf-maps: set in the command's environment: " in result.stderr
    capture = Capture(folder)
    found = capture.count(
        lambda sample: next((each for each in ("heavy", "light") if f"JS:{each} " in sample.frames[0]), None)
    )
    heavy, light = found["heavy"], found["light"]
    assert places(folder, "JS:heavy ") == {(str(script), 2)}
    assert places(folder, "JS:light ") == {(str(script), 7)}
    assert heavy + light >= 100
    # Five standard errors of the share, and a twentieth for rounds that are not all alike.
    assert abs(heavy / (heavy + light) - 0.75) <= 0.05 + 5 * (0.75 * 0.25 / (heavy + light)) ** 0.5
