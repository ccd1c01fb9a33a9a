"""What attacks need: to be root, another user, and folders where both meet.

The users are spare numbers without entries in /etc/passwd, so nothing of the machine changes.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

MALLORY, ALICE = 54321, 54322


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if os.geteuid() != 0:
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs root: it plays two users"))


@dataclass(frozen=True)
class User:
    """Somebody who runs Python programs."""

    uid: int

    def start(self, program: str, *arguments: object) -> subprocess.Popen[str]:
        """Start a program; its arguments are ``sys.argv[1:]``."""
        words = [sys.executable, "-I", "-c", program, *map(str, arguments)]
        return subprocess.Popen(
            words, user=self.uid, group=self.uid, extra_groups=[], cwd="/", stdout=subprocess.PIPE, text=True
        )

    def run(self, program: str, *arguments: object) -> str:
        """Run a program that must succeed; returns what it printed."""
        with self.start(program, *arguments) as process:
            output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        return output

    @contextlib.contextmanager
    def busy(self, program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """Run a program while the ``with`` block does; begins when it has printed its first line."""
        process = self.start(program, *arguments)
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the attacker did not start"
            yield process
            assert process.poll() is None, "the attacker gave up"
        finally:
            process.kill()
            process.communicate()

    def folder(self, path: Path, mode: int = 0o755) -> Path:
        """A new folder of this user."""
        path.mkdir()
        os.chown(path, self.uid, self.uid)
        path.chmod(mode)
        return path


@pytest.fixture
def mallory() -> User:
    """The attacker."""
    return User(MALLORY)


@pytest.fixture
def alice() -> User:
    """Who has nothing to do with the attack, or is allowed to use sudo."""
    return User(ALICE)


@pytest.fixture
def meadow() -> Iterator[Path]:
    """A folder of root that every user may enter, for what the users of a test have."""
    with tempfile.TemporaryDirectory(prefix="tdprof-attack-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def treasure(meadow: Path) -> Path:
    """A folder where only root may write, as /etc is: attacks try to have root write here."""
    folder = meadow / "treasure"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def untouched(treasure: Path) -> Iterator[Callable[[], None]]:
    """Asserts that nothing was written where only root may write; at the end of the test in any case."""

    def check() -> None:
        assert not list(treasure.iterdir())

    yield check
    check()
