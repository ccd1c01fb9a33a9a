"""Temporary files of root: not where another user could exchange them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attack.conftest import User

pytestmark = pytest.mark.beside_others

# The first temporary folder, as a report of perf.data makes it, and the variable that a recorded command gets.
MAKE_ONE = """
import os, sys, tempfile
from tdprof.cli import main
sys.argv = ["tdprof", "--version"]
try:
    main.main()
except SystemExit:
    print(tempfile.gettempdir(), os.environ["TMPDIR"])
"""


def temporary_folder(asked: Path) -> tuple[str, str]:
    result = subprocess.run(
        [sys.executable, "-c", MAKE_ONE],
        env=os.environ | {"TMPDIR": str(asked)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    used, handed_on = result.stdout.splitlines()[-1].split()
    assert handed_on == str(asked)
    return used, result.stderr


def test_another_users_folder_is_not_used(meadow: Path, mallory: User) -> None:
    theirs = mallory.folder(meadow / "theirs", 0o777)
    (meadow / "ours").mkdir()
    (theirs / "inner").mkdir()
    (meadow / "link").symlink_to(theirs)
    os.lchown(meadow / "link", mallory.uid, mallory.uid)
    for asked in (theirs, theirs / "inner", meadow / "link"):
        used, said = temporary_folder(asked)
        assert used == "/tmp"
        assert "temporary files go to /tmp" in said
        assert "belongs to user 54321" in said
    assert temporary_folder(meadow / "ours") == (str(meadow / "ours"), "")
