"""Where stacks end without call-frame information that says so: contexts, and the entry of a program."""

import struct
from dataclasses import replace

import pytest

from builders.call_frames import frames
from builders.elf import ElfFile, Symbol
from builders.unwind_table import read_table
from tdprof.linux.elf import parse_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT = 0x401000


# __start_context of glibc 2.36 for x86-64, __startcontext for aarch64 with the instruction before it
CONTEXT_STARTS = {
    sections.EM_X86_64: "4889dc488b3c244885ff7408e80ff6feff4889c7e8a7ccfefff4",
    sections.EM_AARCH64: "1f2003d5e00313aac0f9ffb552f5ff17",
}


@pytest.mark.parametrize("machine", CONTEXT_STARTS)
@pytest.mark.parametrize("is_named", [True, False])
def test_where_the_functions_of_contexts_return_to_is_the_bottom(machine, is_named):
    code = bytes.fromhex(CONTEXT_STARTS[machine])
    text = bytearray(b"\x90" * 0x1000 if machine == sections.EM_X86_64 else b"\x1f\x20\x03\xd5" * 0x400)
    text[0x100 : 0x100 + len(code)] = code
    # Called as any function, if the information were believed; the padding before goes on as the function before it.
    information = frames((TEXT, 0xF8, b""), (TEXT + 0x100, len(code), b""), (TEXT + 0x100 + len(code), 0x40, b""))
    names = [Symbol("makecontext" if is_named else "setcontext", TEXT)]
    elf = parse_elf(memoryview(ElfFile(bytes(text), TEXT, dynamic_symbols=names, machine=machine).to_bytes()))
    source = replace(sections.table_input(elf, None, b"x"), eh_frame=binding.Section(information))
    table = read_table(binding.build_table(source))
    # A return address is looked up one byte before it.
    returned_to = TEXT + (0x100 if machine == sections.EM_X86_64 else 0x104)
    assert (table.text_at(returned_to - 1) == "stop") == is_named
    assert (table.text_at(returned_to) == "stop") == is_named
    assert table.text_at(TEXT + 0x100 + len(code)) == table.text_at(TEXT) != "stop"


def test_the_entry_of_a_program_without_information_is_the_bottom():
    data = bytearray(ElfFile().to_bytes())
    struct.pack_into("<Q", data, 24, TEXT + 0x100)
    table = read_table(binding.build_table(sections.table_input(parse_elf(memoryview(data)), None, b"x")))
    assert table.text_at(TEXT + 0x100) == "stop"
    assert table.text_at(TEXT) == "none"
    assert table.text_at(TEXT + 0x200) == "none"  # zeros are no code
