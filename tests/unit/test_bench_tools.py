"""The benchmarks say what they lack."""

import subprocess
import sys
from pathlib import Path

import pytest

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


HOLD = """
import sys
from goals import Goals
goals = Goals()
goals.hold("ratio", {over}, [1.0, 2.0, 1.0], {wanted})
goals.end()
"""


@pytest.mark.parametrize(
    ("over", "wanted", "word", "status"),
    [
        ([8.0, 18.0, 8.5], "least=8", "reached", 0),
        ([7.0, 18.0, 7.5], "least=8", "within", 0),  # one round of three shows 9
        ([7.0, 15.8, 7.5], "least=8", "MISSED", 1),
        ([1.4, 3.2, 1.3], "most=1.5", "reached", 0),
        ([1.6, 3.2, 1.3], "most=1.5", "within", 0),
        ([1.6, 3.4, 1.7], "most=1.5", "MISSED", 1),
    ],
)
def test_a_goal_is_missed_if_no_round_reaches_it(over: list[float], wanted: str, word: str, status: int) -> None:
    program = HOLD.format(over=over, wanted=wanted)
    result = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(TOOLS / "bench")}, capture_output=True, text=True
    )
    assert word in result.stdout
    assert result.returncode == status
    assert ("missed by more than noise" in result.stderr) == bool(status)


ACCOUNT = """Stack (most recent call first):
  File "/a.py", line 3 in inner
  File "/a.py", line ??? in <lambda>
  File "<string>", line 0 in <interpreter trampoline>
{more}  File "/a.py", line 9 in <module>
"""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", "(('inner', '/a.py', 3), ('<lambda>', '/a.py', 0), ('<module>', '/a.py', 9))"),
        ("  <invalid frame>\n", "None"),
        ("  File ???, line 0 in \n", "None"),
    ],
)
def test_where_cpython_breaks_off_it_says_nothing_of_callers(more: str, told: str) -> None:
    program = f"from python_accounts import own_account; print(own_account({ACCOUNT.format(more=more)!r}))"
    result = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(TOOLS / "bench")}, capture_output=True, text=True
    )
    assert result.stdout.strip() == told, result.stderr
