"""The new capture of a command and the one file of a result, without an attacker."""

import os
import stat
from pathlib import Path

import pytest

from tdprof.capture.output_folder import OutputFolder
from tdprof.errors import TdprofError
from tdprof.linux.output_file import new_file, replaced_file


def put_capture(path: Path, text: str) -> None:
    path.mkdir()
    (path / "capture.json").write_text(text)


def test_what_is_not_published_is_taken_back(tmp_path: Path) -> None:
    with OutputFolder(tmp_path / "new") as output:
        folder = output.make()
        os.close(folder.create("file"))
        folder.subfolder("inner", make=True).close()
    assert not list(tmp_path.iterdir())


def test_an_older_capture_makes_way_only_once_something_has_come_of_the_new(tmp_path: Path) -> None:
    put_capture(tmp_path / "new", "older")
    put_capture(tmp_path / "new.old", "oldest")
    with OutputFolder(tmp_path / "new", replaces_older=True) as output:
        output.make()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "new.old"]
    assert (tmp_path / "new.old" / "capture.json").read_text() == "oldest"
    with OutputFolder(tmp_path / "new", replaces_older=True) as output:
        os.close(output.make().create("newest"))
        output.publish()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "new.old"]
    assert (tmp_path / "new" / "newest").exists()
    assert (tmp_path / "new.old" / "capture.json").read_text() == "older"


@pytest.mark.parametrize("taken", ["new", "new.old"])
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_no_capture_does_not_make_way(tmp_path: Path, taken: str, kind: str) -> None:
    put_capture(tmp_path / "new", "older")
    if taken == "new":
        (tmp_path / "new").rename(tmp_path / "capture")
    else:
        put_capture(tmp_path / "capture", "another")
    path = tmp_path / taken
    make = {"folder": path.mkdir, "file": path.touch, "link": lambda: path.symlink_to(tmp_path / "capture")}
    make[kind]()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TdprofError, match="exists already"), OutputFolder(tmp_path / "new", replaces_older=True) as out:
        out.make()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", [".", "..", "/", "new/.."])
def test_a_folder_that_has_no_name_of_its_own(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TdprofError), OutputFolder(Path(name)) as output:
        output.make()


def test_a_result_takes_the_place_of_another_and_follows_our_links(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    (tmp_path / "way").symlink_to("there")
    (tmp_path / "link").symlink_to("way/file")
    with replaced_file(tmp_path / "link") as file:
        file.write(b"new")
        file.flush()
        assert (tmp_path / "there" / "file").read_text() == "old"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "new"
    with new_file(tmp_path / "link") as file:
        file.write(b"newer")
    assert (tmp_path / "there" / "file").read_text() == "newer"
    assert stat.S_IMODE((tmp_path / "there" / "file").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["file"]


@pytest.mark.parametrize("way", ["fifo", "descriptor", "link"])
def test_a_pipe_is_written_to_as_it_is(tmp_path: Path, way: str) -> None:
    readable, writable = os.pipe()
    path = Path(f"/dev/fd/{writable}")
    if way == "fifo":
        path = tmp_path / "fifo"
        os.mkfifo(path)
        os.close(readable)
        readable = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    elif way == "link":
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    with replaced_file(path) as file:
        file.write(b"one")
    with new_file(path) as file:
        file.write(b"two")
    assert os.read(readable, 100) == b"onetwo"
    os.close(readable)
    os.close(writable)


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    for use in (new_file, lambda path: replaced_file(path).__enter__()):
        with pytest.raises(OSError, match="Too many levels"):
            use(tmp_path / "link")


def test_a_result_that_fails_leaves_the_older_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(TypeError), replaced_file(tmp_path / "file") as file:
        file.write("no bytes")
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
