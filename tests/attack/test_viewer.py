"""The viewer of root with another user's environment: what it serves beside the profile is root's alone."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from attack.conftest import User
from builders.costly_captures import write_capture
from tdprof.cli import speedscope
from tdprof.errors import TdprofError
from tdprof.linux import user_cache

pytestmark = pytest.mark.beside_others

FORGE = """
import os, sys
os.makedirs(sys.argv[1])
for name in ("index.html", "script.js"):
    with open(os.path.join(sys.argv[1], name), "w") as file:
        file.write("forged")
"""
RELEASE = "tdprof/node_modules/speedscope/dist/release"


@contextlib.contextmanager
def viewer(capture: Path, **environment: str) -> Iterator[list[str]]:
    """The addresses that it prints."""
    # Its own interpreter's speedscope comes first: it shall look further.
    hide = "import sys; sys.prefix = '/nonexistent'; from tdprof.cli.main import main; main()"
    words = [sys.executable, "-c", hide, "view", "--no-browser", capture]
    with subprocess.Popen(
        [*map(str, words)], env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr
            assert process.stdout
            for line in process.stderr:
                if "serving until" in line:
                    break
            process.send_signal(2)
            yield re.findall(r"http\S+", process.stdout.read())
        finally:
            process.kill()


@pytest.mark.parametrize("variable", ["HOME", "XDG_DATA_HOME"])
def test_another_users_speedscope_is_not_served(
    meadow: Path, mallory: User, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A script in it would read the profile of root, which stands beside it."""
    home = mallory.folder(meadow / "home")
    data = home / ".local/share" if variable == "HOME" else home
    mallory.run(FORGE, data / RELEASE)
    (meadow / "capture").mkdir()
    write_capture(meadow / "capture")
    others = {"XDG_DATA_HOME": "", variable: str(home)}
    with viewer(meadow / "capture", **others) as addresses:
        assert [address.rpartition("/")[2] for address in addresses] == ["page.html"]

    monkeypatch.setattr(sys, "prefix", "/nonexistent")
    monkeypatch.setattr(user_cache, "pwd", SimpleNamespace(getpwuid=lambda _: SimpleNamespace(pw_dir=str(meadow))))
    for name, value in others.items():
        monkeypatch.setenv(name, value)
    assert speedscope.find_speedscope() is None
    assert f"--prefix {meadow}/.local/share/tdprof " in speedscope.how_to_install()


@pytest.mark.parametrize("theirs", ["release", "link", "file"])
def test_a_part_of_another_users_in_roots_own_folder_is_not_served(
    meadow: Path, mallory: User, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    release = meadow / "data" / RELEASE
    release.parent.mkdir(parents=True)
    mallory.run(FORGE, mallory.folder(meadow / "his") / "release")
    if theirs == "release":
        os.rename(meadow / "his/release", release)
    elif theirs == "link":
        release.symlink_to(meadow / "his/release")
    else:
        release.mkdir()
        (release / "index.html").write_text("good")
        os.rename(meadow / "his/release/script.js", release / "script.js")
    monkeypatch.setattr(sys, "prefix", "/nonexistent")
    monkeypatch.setenv("XDG_DATA_HOME", str(meadow / "data"))
    with pytest.raises(TdprofError, match="belongs to user 54321"):
        speedscope.find_speedscope()
