"""Debug data that is read in parts: the same answers as of the whole, and what its file lost meanwhile is counted."""

import mmap
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from builders.programs import compile_program
from tdprof.linux.elf import Elf, open_elf
from tdprof.linux.file_bytes import FileBytes, UnreadBytes
from tdprof.native.library import load_native
from tdprof.symbolize.debug_sections import read_debug_sections, reserve_debug_sections
from tdprof.symbolize.dwarf import DwarfResult, Section, build_code_index
from tdprof.symbolize.elf_symbols import text_bounds

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")


def in_parts(elf: Elf) -> dict[str, Section]:
    """All sections unread, however small."""
    assert isinstance(elf.content, FileBytes)
    parts: dict[str, Section] = {}
    for name in read_debug_sections(elf):
        section = elf.section(f".debug_{name}")
        assert section is not None
        area = memoryview(mmap.mmap(-1, max(section.size, 1)))[: section.size]
        parts[name] = UnreadBytes(area, elf.content, section.offset)
    whole = {name: section for name, section in read_debug_sections(elf).items() if name not in ("info", "line", "str")}
    return parts | whole


def columns(result: DwarfResult) -> dict[str, bytes]:
    assert not result.bad_units
    return {field.name: bytes(getattr(result.index, field.name)) for field in fields(result.index)}


@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
@pytest.mark.parametrize("compiler", ["gcc", "g++", "clang++"])
def test_what_is_read_in_parts_says_the_same(tmp_path: Path, compiler: str, version: str) -> None:
    elf = open_elf(compile_program(tmp_path, compiler, "-O2", "-g", version))
    text = text_bounds(elf)
    for wanted in (None, np.arange(text[0], text[1], 97, dtype=np.uint64)):
        whole = build_code_index(read_debug_sections(elf), text, wanted=wanted)
        assert len(whole.index.range_start) > 10
        assert columns(build_code_index(in_parts(elf), text, wanted=wanted)) == columns(whole)


@pytest.mark.parametrize("lost", ["info", "line"])
def test_what_a_file_loses_meanwhile_is_counted(tmp_path: Path, lost: str) -> None:
    path = compile_program(tmp_path, "gcc", "-O2", "-g")
    elf = open_elf(path)
    section = elf.section(f".debug_{lost}")
    assert section is not None
    sections = in_parts(elf)
    with path.open("r+b") as file:
        file.truncate(section.offset + section.size // 2)
    assert build_code_index(sections, text_bounds(elf)).bad_units


def test_small_sections_are_read_at_once(tmp_path: Path) -> None:
    elf = open_elf(compile_program(tmp_path, "gcc", "-O2", "-g"))
    assert {name: bytes(section) for name, section in reserve_debug_sections(elf).items()} == {  # type: ignore[arg-type]
        name: bytes(section) for name, section in read_debug_sections(elf).items()
    }


def test_a_large_piece_is_left_unread_unless_it_has_holes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (8 << 10))
    with path.open("rb") as file:
        content = FileBytes(os.dup(file.fileno()))
        piece = content.reserve(4096, 2 << 20)
        assert isinstance(piece, UnreadBytes)
        assert (len(piece.area), piece.offset) == ((2 << 20) - 4096, 4096)
        assert content.reserve(4096, 256) == bytes(range(256))
