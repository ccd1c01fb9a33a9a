"""How far something is: on a terminal, once it takes long, and nowhere else."""

import os
import pty
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import tdprof.cli.output as output
after_s, quiet = sys.argv[1:]
output._BAR_AFTER_S = float(after_s)
with output.progress_bar("importing", quiet=quiet == "quiet") as show:
    show(5_000_000, 10_000_000)
print("rich" in sys.modules)
"""


def run(*arguments: str, on_terminal: bool = True) -> tuple[str, bool]:
    """What standard error gets, and whether rich was loaded."""
    controller, terminal = pty.openpty()
    reader, writer = os.pipe()
    command = [sys.executable, "-c", SCRIPT, *arguments]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    stderr = terminal if on_terminal else writer
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, env=environment, check=True, text=True)
    os.write(stderr, b".")  # so that there is something to read
    text = os.read(controller if on_terminal else reader, 1 << 16).decode().removesuffix(".")
    for end in (controller, terminal, reader, writer):
        os.close(end)
    return text, done.stdout == "True\n"


def test_a_terminal_shows_it() -> None:
    text, is_loaded = run("0", "loud")
    assert "importing" in text
    assert "5.0/10.0 MB" in text
    assert is_loaded


@pytest.mark.parametrize(
    ("after_s", "quiet", "on_terminal"), [("60", "loud", True), ("0", "quiet", True), ("0", "loud", False)]
)
def test_what_is_short_or_unseen_shows_and_loads_nothing(after_s: str, quiet: str, on_terminal: bool) -> None:
    assert run(after_s, quiet, on_terminal=on_terminal) == ("", False)
