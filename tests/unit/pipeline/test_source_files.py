"""Where source files are looked for, and what is said of those that are not as they were."""

import os
from pathlib import Path

import pytest

from tdprof.errors import TdprofError
from tdprof.pipeline.annotate.source_files import SourceFiles, parse_source_map


def write(path: Path, text: str = "one\ntwo\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_path_that_debug_data_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.c")
    files = SourceFiles()
    assert files.read(str(path), None) == ["one", "two", ""]
    assert files.notes == []


@pytest.mark.parametrize("place", ["build/app/src/a.c", "app/src/a.c", "src/a.c", "a.c"])
def test_below_a_folder_by_ever_shorter_ends(tmp_path: Path, place: str) -> None:
    write(tmp_path / place, place)
    assert SourceFiles([tmp_path]).read("/build/app/src/a.c", None) == [place]
    assert SourceFiles([tmp_path]).read("/build/app/../app/src/a.c", None) is not None


def test_the_longest_end_wins(tmp_path: Path) -> None:
    write(tmp_path / "a.c", "other")
    write(tmp_path / "src/a.c", "mine")
    assert SourceFiles([tmp_path]).read("/build/src/a.c", None) == ["mine"]


def test_prefixes_are_replaced(tmp_path: Path) -> None:
    write(tmp_path / "src/a.c")
    files = SourceFiles(maps=[parse_source_map(f"/build/x={tmp_path}")])
    assert files.read("/build/x/src/a.c", None) is not None
    assert files.read("/build/y/src/a.c", None) is None


def test_symfs_holds_sources_too(tmp_path: Path) -> None:
    write(tmp_path / "usr/src/a.c")
    assert SourceFiles(symfs=tmp_path).read("/usr/src/a.c", None) is not None
    here = write(tmp_path / "here.c")
    assert SourceFiles(symfs=tmp_path / "usr").read(str(here), None) is None  # nothing outside of it


def test_a_missing_file_is_said_once(tmp_path: Path) -> None:
    files = SourceFiles()
    assert files.read(f"{tmp_path}/no.c", None) is files.read(f"{tmp_path}/no.c", None) is None
    assert files.notes == [
        f"not here: the source file {tmp_path}/no.c (--source-dir DIR to look below, or --source-map FROM=TO)"
    ]
    files.read("/other.c", None)
    assert files.notes[0].startswith(f"not here: the source file {tmp_path}/no.c, and 1 more (")


def test_a_file_that_changed_since_is_said_to_have(tmp_path: Path) -> None:
    path = write(tmp_path / "a.c")
    os.utime(path, ns=(2_000, 2_000))
    for built_ns, is_told in ((1_000, True), (2_000, False), (None, False)):
        files = SourceFiles()
        assert files.read(str(path), built_ns) is not None
        assert bool(files.notes) == is_told


def test_anything_may_stand_at_the_path(tmp_path: Path) -> None:
    (tmp_path / "a.c").mkdir()
    assert SourceFiles().read(str(tmp_path / "a.c"), None) is None
    assert SourceFiles().read("/dev/zero", None) is None
    (tmp_path / "b.c").write_bytes(b"\tx\xff\x1b[31m\r\nlast")
    assert SourceFiles().read(str(tmp_path / "b.c"), None) == ["        x\ufffd\ufffd[31m", "last"]


@pytest.mark.parametrize("text", ["", "a", "=b"])
def test_a_map_needs_both_sides(text: str) -> None:
    with pytest.raises(TdprofError, match="FROM=TO"):
        parse_source_map(text)
