"""Tables of .debug_frame, which may be compressed, of a file itself or of its separate debug file."""

import os
import struct
import zlib
from pathlib import Path

import pytest
import zstandard

from builders.call_frames import entry, frames, uleb
from builders.elf import ElfFile
from builders.unwind_table import read_table
from tdprof.linux.elf import SHF_COMPRESSED, parse_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections
from tdprof.unwind.tables import build_file_table

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT = 0x401000
CIE = entry(b"\xff\xff\xff\xff\x01\0" + uleb(1) + b"\x78" + uleb(16) + b"\x0c\x07\x08\x90\x01")
PUSH_RBP = b"\x41\x0e\x10\x86\x02"  # after 1 byte: CFA = sp + 16, rbp at CFA - 16
FRAMES = CIE + entry(struct.pack("<IQQ", 0, TEXT, 0x20) + PUSH_RBP)
PACKED = {
    "plain": (".debug_frame", 0, FRAMES),
    "zlib": (".debug_frame", SHF_COMPRESSED, struct.pack("<IIQQ", 1, 0, len(FRAMES), 1) + zlib.compress(FRAMES)),
    "zstd": (
        ".debug_frame",
        SHF_COMPRESSED,
        struct.pack("<IIQQ", 2, 0, len(FRAMES), 1) + zstandard.ZstdCompressor().compress(FRAMES),
    ),
    "old": (".zdebug_frame", 0, b"ZLIB" + struct.pack(">Q", len(FRAMES)) + zlib.compress(FRAMES)),
}


@pytest.mark.parametrize("is_separate", [False, True], ids=["in the file", "in its debug file"])
@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_debug_frames_may_be_compressed(packed: tuple[str, int, bytes], is_separate: bool) -> None:
    name, flags, data = packed
    whole = ElfFile(b"\xc3" * 0x20, TEXT, sections={name: data}, section_flags={name: flags})
    elf, debug = parse_elf(memoryview(whole.to_bytes())), None
    if is_separate:
        elf, debug = parse_elf(memoryview(ElfFile(b"\xc3" * 0x20, TEXT).to_bytes())), elf
    built = binding.build_table(sections.table_input(elf, debug, b"x"))
    assert built is not None
    table = read_table(built)
    assert (table.text_at(TEXT), table.text_at(TEXT + 1)) == ("sp+8 ra=cfa-8", "sp+16 fp=cfa-16 ra=cfa-8")
    assert table.sources == 2


BUILD_ID = b"\1" * 20
# What the start files bring: a CIE, an FDE of other code.
START_FILES = frames((TEXT + 0x40, 0x20, b""))


@pytest.mark.parametrize("place", ["program.debug", ".debug/program.debug"])
@pytest.mark.parametrize(
    ("build_id", "debug_id", "is_right_crc", "is_found"),
    [
        (BUILD_ID, BUILD_ID, False, True),
        (BUILD_ID, b"\2" * 20, True, False),
        (b"", b"", True, True),
        (b"", b"", False, False),
    ],
    ids=["its", "another's", "no build-id", "no build-id, another"],
)
def test_a_debug_file_that_the_link_names_serves_beside_the_information_of_the_start_files(
    place: str, build_id: bytes, debug_id: bytes, is_right_crc: bool, is_found: bool, tmp_path: Path
) -> None:
    text = b"\xc3" * 0x80
    debug = ElfFile(text, TEXT, build_id=debug_id, sections={".debug_frame": FRAMES}).to_bytes()
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_bytes(debug)
    link = b"program.debug\0\0\0" + struct.pack("<I", zlib.crc32(debug) ^ (not is_right_crc))
    own = {".eh_frame": START_FILES, ".gnu_debuglink": link}
    (tmp_path / "program").write_bytes(ElfFile(text, TEXT, build_id=build_id, sections=own).to_bytes())
    built = build_file_table(tmp_path / "program")
    assert built is not None
    table = read_table(built)
    assert (table.text_at(TEXT + 1) == "sp+16 fp=cfa-16 ra=cfa-8") == is_found
    assert table.text_at(TEXT + 0x40) == "sp+8 ra=cfa-8"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_debug_file_of_somebody_else_does_not_serve(tmp_path: Path) -> None:
    debug = ElfFile(b"\xc3" * 0x80, TEXT, build_id=BUILD_ID, sections={".debug_frame": FRAMES}).to_bytes()
    own = {".gnu_debuglink": b"program.debug\0\0\0" + bytes(4)}
    program = tmp_path / "program"
    program.write_bytes(ElfFile(b"\xc3" * 0x80, TEXT, build_id=BUILD_ID, sections=own).to_bytes())
    (tmp_path / "program.debug").write_bytes(debug)
    os.chown(tmp_path / "program.debug", 65534, 65534)
    table = build_file_table(program)
    assert table is not None
    assert read_table(table).sources != 2
    os.chown(program, 65534, 65534)  # his own program's
    table = build_file_table(program)
    assert table is not None
    assert read_table(table).sources == 2
