"""Functions of Python programs in call stacks: what share of the time each of two has, and who calls whom."""

import csv
import io
import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from builders.call_paths import read_folded
from live.test_python_frames import BEGINNING_S, check_split
from live.workloads import python_calls
from live_aarch64.machine import run_tdprof

pytestmark = pytest.mark.needs_bpf

WORKLOADS = Path(python_calls.__file__).parent
PERIOD = 1_000_003
_LINE = re.compile(r":\d+$")  # behind the names of functions that only their lines tell apart


def stacks_of(folder: Path, program: str) -> Counter[tuple[str, ...]]:
    """Python functions of a recording's samples, leaf first; those without any are left out."""
    script = WORKLOADS / program
    run_tdprof("record", "-e", "cycles:u", "-c", PERIOD, "-o", folder, "--", "python3", script, BEGINNING_S + 1)
    found: Counter[tuple[str, ...]] = Counter()
    for stack, weight in read_folded(run_tdprof("export", "--to", "folded", "--no-native", folder).stdout):
        if stack[0] == "<module>":
            found[tuple(_LINE.sub("", name) for name in reversed(stack))] += weight // PERIOD
    return found


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("python_split.py", ("heavy", "main", "<module>")),
        ("python_throws.py", ("heavy", "handle", "pass_on", "main", "<module>")),
    ],
)
def test_three_to_one(program: str, heavy: tuple[str, ...], tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    stacks = stacks_of(capture, program)
    check_split(stacks)
    assert {functions for functions in stacks if functions[0] in ("heavy", "light")} == {
        heavy,
        ("light", "main", "<module>"),
    }
    shown = run_tdprof("report", "--lines", "--csv", capture).stdout
    source = (WORKLOADS / program).read_text().splitlines()
    lines = {
        (row["file"], source[int(row["line"]) - 1].strip())
        for row in csv.DictReader(io.StringIO(shown))
        if row["function"] == "light"
    }
    assert {file for file, _ in lines} == {str(WORKLOADS / program)}
    assert {"for number in range(rounds):", "total += number * number"} <= {line for _, line in lines}


def test_every_caller_is_a_true_one(tmp_path: Path) -> None:
    called: Counter[str] = Counter()
    for functions, count in stacks_of(tmp_path / "capture", "python_calls.py").items():
        for function, caller in itertools.pairwise(name.rpartition(".")[2] for name in functions):
            if function in python_calls.EDGES:
                called[function] += count
                assert caller in python_calls.EDGES[function], functions
    assert called["spin"] >= 200
    assert called["call_everything"] >= 200
