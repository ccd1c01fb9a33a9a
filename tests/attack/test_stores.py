"""Stores of a fleet: root writes them where nobody else can lead it elsewhere, and for nobody else to read."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attack.conftest import User
from builders.fleet import make_host_capture

pytestmark = pytest.mark.beside_others

# Puts links to another folder in place of each folder that a store has, as soon as its name is there.
SWAP = """
import os, sys, time
folder, target = sys.argv[1:]
print("ready", flush=True)
while True:
    for name in ("store", "store/rollup", "store/rejected"):
        try:
            os.rename(f"{folder}/{name}", f"{folder}/gone-{time.monotonic_ns()}")
            os.symlink(target, f"{folder}/{name}")
        except OSError:
            pass
"""


def tdprof(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tdprof", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, cwd="/")


@pytest.fixture
def capture(meadow: Path) -> Path:
    return make_host_capture(meadow / "a.capture", "a", {"work": 60})


@pytest.mark.parametrize("what", ["an empty folder", "a store with links", "a link", "a folder in a folder"])
def test_root_adds_to_no_store_of_another_user(
    meadow: Path, mallory: User, treasure: Path, untouched: Callable[[], None], capture: Path, what: str
) -> None:
    theirs = mallory.folder(meadow / "theirs")
    store = theirs
    if what == "a store with links":
        (theirs / "tdprof-store.json").write_text('{"store_version": 1}')
        for name in ("rollup", "rejected", "sums"):
            (theirs / name).symlink_to(treasure)
    elif what == "a link":
        store = theirs / "store"
        store.symlink_to(treasure)
        os.lchown(store, mallory.uid, mallory.uid)
    elif what == "a folder in a folder":
        store = theirs / "new" / "store"
    ran = tdprof("fleet", "add", store, capture)
    assert ran.returncode
    assert "belongs to user 54321" in ran.stderr
    untouched()


def test_names_that_change_meanwhile_lead_root_nowhere(
    meadow: Path, mallory: User, treasure: Path, untouched: Callable[[], None], capture: Path
) -> None:
    theirs = mallory.folder(meadow / "theirs")
    with mallory.busy(SWAP, theirs, treasure):
        for _ in range(3):
            tdprof("fleet", "add", theirs / "store", capture)
    untouched()


def test_what_root_adds_is_for_root_alone(meadow: Path, alice: User, capture: Path) -> None:
    assert not tdprof("fleet", "add", meadow / "store", capture).returncode
    assert (meadow / "store" / "rollup").is_dir()
    told = alice.run(
        "import os, sys\ntry:\n    print(os.listdir(sys.argv[1]))\nexcept PermissionError:\n    print('refused')",
        meadow / "store",
    )
    assert told.strip() == "refused"
