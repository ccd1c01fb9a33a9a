import os
import re
import subprocess
import sys

import pytest

from builders.elf import ElfFile
from tdprof.linux.elf import ElfError, open_elf, parse_elf, read_build_id


def test_build_id_is_what_readelf_prints():
    notes = subprocess.run(["readelf", "-n", sys.executable], capture_output=True, text=True, check=True).stdout
    expected = re.search(r"Build ID: ([0-9a-f]+)", notes)
    assert expected is not None
    assert read_build_id(sys.executable) == expected.group(1)


def test_sections_and_segments(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(ElfFile(build_id=bytes(range(20)), sections={".comment": b"hello"}).to_bytes())
    elf = open_elf(path)
    assert elf.build_id == bytes(range(20)).hex()
    comment = elf.section(".comment")
    assert comment is not None
    assert bytes(elf.section_data(comment)) == b"hello"
    assert (elf.segments[0].type, elf.segments[0].offset, elf.segments[0].address) == (1, 0x1000, 0x401000)
    assert elf.damage == ""


def test_build_id_survives_lost_section_headers():
    data = ElfFile(build_id=b"\xab" * 20).to_bytes()
    elf = parse_elf(memoryview(data[: -64 * 3]))
    assert elf.build_id == "ab" * 20
    assert "section headers" in elf.damage


def test_every_truncation_is_read_or_named():
    data = ElfFile(text=b"\x90" * 16, build_id=b"\xab" * 20).to_bytes()
    for length in range(0, len(data), 7):
        if length < 64:
            with pytest.raises(ElfError, match="too short"):
                parse_elf(memoryview(data[:length]))
        else:
            elf = parse_elf(memoryview(data[:length]))
            assert elf.damage
            assert elf.build_id in ("", "ab" * 20)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "too short"),
        (b"#!/bin/sh\n" * 20, "not an ELF file"),
        (b"\x7fELF\x01\x01" + bytes(100), "64-bit"),
        (b"\x7fELF\x02\x02" + bytes(100), "little-endian"),
    ],
)
def test_other_files_are_refused_with_a_reason(tmp_path, content, reason):
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(ElfError, match=reason):
        open_elf(path)
    assert read_build_id(path) == ""


def test_a_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ElfError, match="regular"):
        open_elf(tmp_path / "pipe")


def test_missing_file_has_no_build_id(tmp_path):
    assert read_build_id(tmp_path / "none") == ""
