"""Tables of .debug_frame, which may be compressed, of a file itself or of its separate debug file."""

import struct
import zlib

import pytest
import zstandard

from builders.call_frames import entry, uleb
from builders.elf import ElfFile
from builders.unwind_table import read_table
from tdprof.linux.elf import SHF_COMPRESSED, parse_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

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
