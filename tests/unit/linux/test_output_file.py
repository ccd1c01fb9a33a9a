"""The one file of a result, without an attacker."""

import os
import stat
from pathlib import Path

import pytest

from tdprof.linux.output_file import new_file, replaced_file


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
        file.write("no bytes")  # type: ignore[call-overload]
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
