"""Objects that come with the package: taken only if they are of its own sources."""

import json
from pathlib import Path

import pytest

from tdprof.recorder.bpf.object_file import BpfObject, Compiler, Program
from tdprof.recorder.bpf.sources import checksums, folder_of_sources, program_text, shipped_object

OBJECT = BpfObject([], [Program("f", bytes.fromhex("9500000000000000"))], Compiler("bcc.py", "0.26.0", 0, 0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sources with an object made of them."""
    (tmp_path / "stand-in").mkdir()
    for name in ("sample.bpf.c", "sample.h", "stand-in/types.h", "stand-in/README.md"):
        (tmp_path / name).write_text(name)
    (tmp_path / "objects").mkdir()
    content = {"machine": "aarch64", "sources": checksums(tmp_path), "object": OBJECT.to_json()}
    (tmp_path / "objects" / "aarch64.json").write_text(json.dumps(content))
    return tmp_path


def test_an_object_of_these_sources_is_taken(folder: Path) -> None:
    assert list(checksums(folder)) == ["sample.bpf.c", "sample.h", "stand-in/types.h"]
    assert shipped_object(folder, "aarch64") == OBJECT
    assert shipped_object(folder, "x86_64") is None


@pytest.mark.parametrize("name", ["sample.bpf.c", "sample.h", "stand-in/types.h", "another.h"])
def test_one_of_other_sources_is_not(folder: Path, name: str) -> None:
    (folder / name).write_text("changed")
    assert shipped_object(folder, "aarch64") is None


def test_one_of_another_machine_is_not(folder: Path) -> None:
    (folder / "objects" / "aarch64.json").rename(folder / "objects" / "x86_64.json")
    assert shipped_object(folder, "x86_64") is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"machine": "aarch64"}', b"\xff", b"{}"])
def test_what_is_no_object_is_not(folder: Path, content: bytes) -> None:
    (folder / "objects" / "aarch64.json").write_bytes(content)
    assert shipped_object(folder, "aarch64") is None


def test_parts_stand_where_they_are_included_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "sample.bpf.c").write_text('#include "plain.h"\n#include "part.bpf.h"\nlast\n')
    (tmp_path / "part.bpf.h").write_text("first\n")
    assert program_text(tmp_path) == ('#include "plain.h"\n#line 1 "part.bpf.h"\nfirst\n#line 3 "sample.bpf.c"\nlast\n')


def test_every_part_is_in_the_text_once() -> None:
    folder = folder_of_sources()
    text = program_text(folder)
    parts = [path.name for path in folder.glob("*.bpf.h")]
    assert parts
    assert [text.count(f'#line 1 "{name}"') for name in parts] == [1] * len(parts)
