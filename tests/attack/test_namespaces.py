"""User and mount namespaces: users that are not mapped there, and mounts over the places that tdprof writes to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attack.conftest import User

pytestmark = pytest.mark.beside_others

OUTPUT = """
import os, sys
from pathlib import Path
from tdprof.capture.output_folder import OutputFolder
with OutputFolder(Path(sys.argv[1])) as output:
    os.close(output.make().create("capture.json"))
    output.publish()
print("stays root's" if output.stays_roots else "given")
"""
CACHE = """
import sys
from pathlib import Path
from tdprof.linux.user_cache import CacheFolder
print(CacheFolder(Path(sys.argv[1])).refusal() or "believed")
"""


def run_in(namespaces: list[str], program: str, path: Path, mount: str = "true", **environment: str) -> str:
    """What a program of ours says of a path, within new namespaces, after a mount."""
    words = ["unshare", *namespaces, "sh", "-c", f'{mount}; exec "$@"', "sh", sys.executable, "-c", program, str(path)]
    result = subprocess.run(
        words, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=300
    )
    if "unshare failed" in result.stderr:
        pytest.skip("no user namespaces here (user.max_user_namespaces)")
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_a_capture_that_cannot_be_given_away_is_said_to_stay_roots(meadow: Path, alice: User) -> None:
    """Who called sudo has no number in this namespace, so the kernel refuses to give him anything."""
    place = meadow / "place"
    place.mkdir()
    place.chmod(0o777)
    sudo = {"SUDO_UID": str(alice.uid), "SUDO_GID": str(alice.uid)}
    assert run_in(["-r"], OUTPUT, place / "out", **sudo) == "stays root's"
    assert (place / "out").stat().st_uid == 0
    assert run_in(["-m"], OUTPUT, place / "given", **sudo) == "given"
    assert (place / "given" / "capture.json").stat().st_uid == alice.uid


def test_a_cache_of_a_user_without_a_number_is_not_believed(meadow: Path, mallory: User) -> None:
    """Such users all look like one, which is neither root nor anybody else whom a cache may belong to."""
    mallory.folder(meadow / "theirs")
    assert "belongs to" in run_in(["-r"], CACHE, meadow / "theirs")
    (meadow / "ours").mkdir()
    assert run_in(["-r"], CACHE, meadow / "ours") == "believed"


def test_what_is_mounted_over_a_cache_or_an_output_counts(meadow: Path, mallory: User) -> None:
    """Not the folder below the mount, which was good."""
    theirs = mallory.folder(meadow / "theirs")
    for name in ("cache", "out"):
        (meadow / name).mkdir(mode=0o700)
    cover = f"mount --bind {theirs} {meadow}"
    assert run_in(["-m"], CACHE, meadow / "cache") == "believed"
    assert "belongs to user 54321" in run_in(["-m"], CACHE, meadow / "cache", mount=f"{cover}/cache")
    with pytest.raises(AssertionError, match="exists already"):
        run_in(["-m"], OUTPUT, meadow / "out", mount=f"{cover}/out")
    assert not list(theirs.iterdir())
