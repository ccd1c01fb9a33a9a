"""The new capture of a command, without an attacker."""

import os
from pathlib import Path

import pytest

from tdprof.capture.output_folder import OutputFolder
from tdprof.errors import TdprofError


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
    if kind == "link":
        path.symlink_to(tmp_path / "capture")
    else:
        path.touch() if kind == "file" else path.mkdir()
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
