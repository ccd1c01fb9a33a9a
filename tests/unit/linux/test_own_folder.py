"""Folders of ours, without an attacker: names, modes, whole files; and the walk to a folder."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tdprof.linux.folder_path import only_ours, open_folder, user_name, whose
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.user_cache import CacheFolder, cache_folder


@pytest.fixture
def parent(tmp_path: Path) -> int:
    return os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)


def test_a_new_folder_and_its_files_are_for_nobody_else(tmp_path: Path, parent: int) -> None:
    before = os.umask(0)
    try:
        with OwnFolder.make("new", parent, tmp_path / "new") as folder:
            with folder.replacing("whole") as file:
                file.write(b"x")
            with folder.append("begun") as file:
                file.write(b"x")
            os.close(folder.create("created"))
            folder.subfolder("inner", make=True).close()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"new": 0o700, "whole": 0o600, "begun": 0o600, "created": 0o600, "inner": 0o700}


@pytest.mark.parametrize("kind", ["folder", "file", "link", "dangling"])
def test_what_is_there_already_is_no_new_folder(tmp_path: Path, parent: int, kind: str) -> None:
    path = tmp_path / "new"
    (tmp_path / "empty").mkdir()
    make: dict[str, Callable[[], None]] = {
        "folder": path.mkdir,
        "file": path.touch,
        "link": lambda: path.symlink_to(tmp_path / "empty"),
        "dangling": lambda: path.symlink_to(tmp_path / "nowhere"),
    }
    make[kind]()
    with pytest.raises(FileExistsError):
        OwnFolder.make("new", parent, path)


def test_the_folder_may_be_moved_while_it_is_written(tmp_path: Path, parent: int) -> None:
    with OwnFolder.make("new", parent, tmp_path / "new") as folder:
        (tmp_path / "new").rename(tmp_path / "moved")
        with folder.replacing("name") as file:
            file.write(b"x")
        assert (folder.path / "name").read_bytes() == b"x"
    assert (tmp_path / "moved" / "name").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with OwnFolder.open(tmp_path) as folder:
        for use in (folder.create, folder.append, folder.open_file, folder.subfolder, folder.stat, folder.remove):
            with pytest.raises(OSError, match="no plain name"):
                use(name)
        with pytest.raises(OSError, match="no plain name"), folder.replacing(name):
            pass


def test_a_file_that_fails_leaves_the_older_one(tmp_path: Path) -> None:
    with OwnFolder.open(tmp_path) as folder:
        with folder.replacing("name") as file:
            file.write(b"old")
        with pytest.raises(TypeError), folder.replacing("name") as file:
            file.write("no bytes")  # type: ignore[call-overload]  # that is the point
        assert folder.names() == ["name"]
        assert folder.read("name", 3) == b"old"
        with pytest.raises(OSError, match="too large"):
            folder.read("name", 2)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "group", "missing"])
def test_only_plain_files_of_ours_are_read_or_appended_to(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "name"
    (tmp_path / "target").touch(mode=0o600)
    if kind == "link":
        path.symlink_to(tmp_path / "target")
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "folder":
        path.mkdir()
    elif kind == "group":
        path.touch()
        path.chmod(0o620)
    with OwnFolder.open(tmp_path) as folder:
        with pytest.raises(OSError, match=r"."):
            folder.open_file("name")
        if kind != "missing":
            with pytest.raises(OSError, match=r"."):
                folder.append("name")


def test_removing_a_tree_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    with OwnFolder.open(tmp_path) as folder:
        folder.remove_tree("tree")
        folder.remove("missing")
        assert folder.names() == ["kept"]
    assert (tmp_path / "kept" / "file").exists()


def test_a_walk_follows_our_links_and_makes_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "up").symlink_to("../a")
    (tmp_path / "whole").symlink_to(tmp_path / "a" / "up" / "b")
    fd = open_folder(tmp_path / "whole" / "c" / "d", only_ours, make=True)
    assert os.path.samestat(os.fstat(fd), os.stat(tmp_path / "a/b/c/d"))
    assert stat.S_IMODE(os.stat(tmp_path / "a/b/c").st_mode) == 0o700
    os.close(fd)
    for missing, error in (("a/none", FileNotFoundError), ("file/x", NotADirectoryError), ("loop/x", OSError)):
        (tmp_path / "file").touch()
        if missing.startswith("loop"):
            (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(error):
            open_folder(tmp_path / missing, only_ours)


def test_why_a_folder_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(OSError, match="Read-only file system"):
        open_folder(tmp_path / "none", only_ours, make=True)


def test_whose_something_is_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert whose(tmp_path / "gone") == ""
    owner = user_name(os.geteuid())
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    assert whose(tmp_path / "gone" / "file") == f"sudo tdprof …: {tmp_path} belongs to {owner}"


def test_a_cache_is_made_when_it_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    cache = cache_folder("unwind")
    with pytest.raises(FileNotFoundError), cache.opened():
        pass
    assert cache.refusal() == ""
    with cache.opened(make=True) as folder, folder.replacing("name") as file:
        file.write(b"x")
    with cache.opened() as folder:
        assert folder.read("name", 10) == b"x"
    assert (tmp_path / "home" / "tdprof" / "unwind" / "name").exists()


def test_a_cache_that_others_can_write_to_says_so(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "home" / "cache")
    with cache.opened(make=True):
        pass
    (tmp_path / "home").chmod(0o770)
    assert cache.refusal() == f"others may write to {tmp_path / 'home'}"
    with pytest.raises(PermissionError), cache.opened(make=True):
        pass
    (tmp_path / "home").chmod(0o700)
    (tmp_path / "home" / "cache").chmod(0o1777)
    assert cache.refusal() == f"others may write to {tmp_path / 'home' / 'cache'}"
