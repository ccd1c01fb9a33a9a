"""The one way in which tdprof writes folders, against a user who owns the folder around them."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from attack.conftest import User
from attack.races import PLANT_LINKS, SWAP_FOLDER_FOR_LINK
from tdprof.linux.folder_path import only_ours, open_folder
from tdprof.linux.own_folder import OwnFolder

pytestmark = pytest.mark.beside_others

ROUNDS = 1000


def make(path: Path) -> OwnFolder:
    parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        return OwnFolder.make(path.name, parent, path)
    finally:
        os.close(parent)


def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(
    meadow: Path, treasure: Path, mallory: User, untouched: Callable[[], None]
) -> None:
    """A thousand folders, each swapped for a link to where only root may write, while files are written into it."""
    place = mallory.folder(meadow / "place")
    made = 0
    with mallory.busy(SWAP_FOLDER_FOR_LINK, place, "out", treasure):
        for _ in range(ROUNDS):
            with contextlib.suppress(OSError), make(place / "out") as folder:
                made += 1
                with folder.replacing("capture.json") as file:
                    file.write(b"{}")
                with folder.subfolder("spool", make=True) as spool:
                    os.close(spool.create("ring.0.perf"))
                assert sorted(folder.names()) == ["capture.json", "spool"]
            for name in ("out", "aside"):
                with contextlib.suppress(OSError):
                    (place / name).unlink()
                with contextlib.suppress(OSError):
                    os.rename(place / name, meadow / f"taken-{name}-{made}")
    assert made
    untouched()


def test_links_that_wait_in_a_folder_are_not_written_through(
    meadow: Path, treasure: Path, mallory: User, untouched: Callable[[], None]
) -> None:
    """Also where the attacker may write into the folder itself: root's, but open to all."""
    open_to_all = meadow / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    names = ("new", "begun", "whole")
    written = 0
    with mallory.busy(PLANT_LINKS, open_to_all, treasure, *names), OwnFolder.open(open_to_all) as folder:
        for _ in range(ROUNDS):
            with contextlib.suppress(OSError):
                os.close(folder.create("new"))
            with contextlib.suppress(OSError), folder.append("begun") as file:
                file.write(b"x")
            with contextlib.suppress(OSError), folder.replacing("whole") as file:
                file.write(b"x")
                written += 1
            with contextlib.suppress(OSError):
                folder.read("whole", 100)
            for name in names:
                folder.remove(name)
    assert written
    untouched()


def test_a_folder_of_others_is_not_ours(meadow: Path, mallory: User) -> None:
    with pytest.raises(PermissionError):
        OwnFolder.open(mallory.folder(meadow / "theirs"))


def test_a_file_of_others_in_a_folder_of_ours_is_not_read(meadow: Path, mallory: User) -> None:
    (meadow / "ours").mkdir()
    (meadow / "ours").chmod(0o777)
    mallory.run("import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('forged')", meadow / "ours" / "known")
    with OwnFolder.open(meadow / "ours") as folder, pytest.raises(PermissionError):
        folder.read("known", 100)


def test_the_way_to_a_folder_leads_over_nothing_of_others(meadow: Path, treasure: Path, mallory: User) -> None:
    """Neither a folder of another user, nor his link to a folder of ours, nor a folder that all may write to."""
    theirs = mallory.folder(meadow / "theirs")
    mallory.run("import os, sys; os.symlink(sys.argv[1], sys.argv[2])", treasure, theirs / "link")
    (theirs / "inner").mkdir()
    (meadow / "open").mkdir()
    (meadow / "open").chmod(0o777)
    (meadow / "open" / "inner").mkdir()
    (meadow / "link").symlink_to(theirs)
    os.lchown(meadow / "link", mallory.uid, mallory.uid)
    for path in (theirs / "inner", theirs / "link", meadow / "open" / "inner", meadow / "link", meadow / "link/inner"):
        with pytest.raises(PermissionError, match=str(meadow)):
            open_folder(path, only_ours)
    os.close(open_folder(treasure, only_ours))
    os.lchown(meadow / "link", 0, 0)
    with pytest.raises(PermissionError, match="belongs to user 54321"):
        open_folder(meadow / "link" / "inner", only_ours)
