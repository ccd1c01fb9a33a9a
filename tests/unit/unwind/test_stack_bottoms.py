"""Where stacks end without call-frame information that says so: contexts, and the entry of a program."""

import struct
from dataclasses import replace

import pytest

from builders.call_frames import entry, fde, frames
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
@pytest.mark.parametrize(
    ("dynamic_names", "has_contexts"),
    [(["makecontext", "libc.so.6"], True), (["setcontext", "libc.so.6"], False), (["setcontext"], True)],
    ids=["C library", "other library", "static-pie"],
)
def test_where_the_functions_of_contexts_return_to_is_the_bottom(machine, dynamic_names, has_contexts):
    code = bytes.fromhex(CONTEXT_STARTS[machine])
    text = bytearray(b"\x90" * 0x1000 if machine == sections.EM_X86_64 else b"\x1f\x20\x03\xd5" * 0x400)
    text[0x100 : 0x100 + len(code)] = code
    # Called as any function, if the information were believed; the padding before goes on as the function before it.
    information = frames((TEXT, 0xF8, b""), (TEXT + 0x100, len(code), b""), (TEXT + 0x100 + len(code), 0x40, b""))
    names = [Symbol(name, TEXT) for name in dynamic_names]
    elf = parse_elf(memoryview(ElfFile(bytes(text), TEXT, dynamic_symbols=names, machine=machine).to_bytes()))
    source = replace(sections.table_input(elf, None, b"x"), eh_frame=binding.Section(information))
    table = read_table(binding.build_table(source))
    # A return address is looked up one byte before it.
    returned_to = TEXT + (0x100 if machine == sections.EM_X86_64 else 0x104)
    assert (table.text_at(returned_to - 1) == "stop") == has_contexts
    assert (table.text_at(returned_to) == "stop") == has_contexts
    assert table.text_at(TEXT + 0x100 + len(code)) == table.text_at(TEXT) != "stop"


# swapcontext of glibc 2.36: for x86-64 from where it loads the stack pointer on, for aarch64 from where it saves x30 on
CONTEXT_SWITCH = (
    "488ba2a0000000488b9a80000000488b6a784c8b62484c8b6a504c8b72584c8b7a60488b8aa800000051488b7a68488b7270"
    "488b8a980000004c8b42284c8b4a30488b928800000031c0c3"
)


def test_where_a_context_is_left_for_another_has_no_caller():
    """Neither's: the return address is not on the new stack yet, or is where the context's function begins."""
    text = bytearray(b"\x90" * 0x1000)
    for at, part in ((0x100, CONTEXT_STARTS[sections.EM_X86_64]), (0x220, CONTEXT_SWITCH)):
        text[at : at + len(part) // 2] = bytes.fromhex(part)
    loaded, left = TEXT + 0x227, TEXT + 0x220 + len(CONTEXT_SWITCH) // 2
    information = frames((TEXT + 0x200, 0x100, b""), (TEXT + 0x300, 0x100, b""))
    names = [Symbol(name, TEXT) for name in ("makecontext", "libc.so.6")]
    elf = parse_elf(memoryview(ElfFile(bytes(text), TEXT, dynamic_symbols=names).to_bytes()))
    table = read_table(
        binding.build_table(replace(sections.table_input(elf, None, b"x"), eh_frame=binding.Section(information)))
    )
    assert {table.text_at(address) for address in range(loaded, left)} == {"unsupported"}
    of_function = {*range(TEXT + 0x200, loaded), *range(left, TEXT + 0x400)}
    assert {table.text_at(address) for address in of_function} == {"sp+8 ra=cfa-8"}


ARM_CONTEXT_SWITCH = (
    "1ff80ba99e05001012cc14a914d415a916dc16a918e417a91aec18a91cf419a91ed400f91edc00f9e203009102d800f902400791"
    "2300905203caa872430000b903428052430400b943400291682481ac6a2c81ac6c3481ac6e3c81ac4320009124443bd5640000b9"
    "04443bd5640400b9424008915f0000f95f4000f8f50301aa02a00091000080d2010080d2030180d2e81080d2010000d4c00000b5"
    "f6031eaae00315aa66d8ff97fe0316aac0035fd67b78ff171f2003d5fe0301aac0035fd6"
)


def test_on_aarch64_a_context_has_no_caller_once_x30_is_where_it_goes_on():
    text = bytearray(b"\x1f\x20\x03\xd5" * 0x400)
    for at, part in ((0x100, CONTEXT_STARTS[sections.EM_AARCH64]), (0x220, ARM_CONTEXT_SWITCH)):
        text[at : at + len(part) // 2] = bytes.fromhex(part)
    changed, given_back = TEXT + 0x228, TEXT + 0x220 + len(ARM_CONTEXT_SWITCH) // 2 - 4
    cie = entry(b"\0\0\0\0\x01zR\0\x04\x78\x1e\x01\x03\x0c\x1f\0")  # CFA = sp, as where a function begins
    information = cie + fde(len(cie), TEXT + 0x200, 0x200, b"") + b"\0\0\0\0"
    names = [Symbol(name, TEXT) for name in ("makecontext", "libc.so.6")]
    file = ElfFile(bytes(text), TEXT, dynamic_symbols=names, machine=sections.EM_AARCH64)
    source = sections.table_input(parse_elf(memoryview(file.to_bytes())), None, b"x")
    table = read_table(binding.build_table(replace(source, eh_frame=binding.Section(information))))
    assert {table.text_at(address) for address in range(changed, given_back)} == {"unsupported"}
    of_function = {*range(TEXT + 0x200, changed), *range(given_back, TEXT + 0x400)}
    assert {table.text_at(address) for address in of_function} == {"sp+0 ra=lr"}


# __morestack of gcc 12's libgcc, to where it returns
MORE_STACK = (
    "554889e54981c2000e000041525057565251415041514153e874f6ffff488d7df8488d75185a4883ec08e8f2f0ffff4c8b55f848"
    "89c44c29d04805000e0000644889042570000000e8a4f6ffff488b7de8488b75e0488b55d8488b4dd04c8b45c84c8b4dc04c8b55"
    "0849ffc2488b45f041ffd25052e817f6ffff6a006a00488d3c24e87af5ffff482b04244805000e00006448890425700000004883"
    "c4105a584889ec4883ec085052e843f6ffff5a584883c4085dc3"
)
CHANGED, GIVEN_BACK = 54, 180  # where RSP is on the new piece, where RBP is popped


@pytest.mark.parametrize("name", ["__morestack", "other"])
def test_who_runs_on_a_new_piece_of_a_split_stack_has_its_caller_on_the_older(name):
    text = bytearray(b"\x90" * 0x1000)
    text[0x100 : 0x100 + len(MORE_STACK) // 2] = bytes.fromhex(MORE_STACK)
    # push %rbp; mov %rsp, %rbp, as for any function; then no more rows
    information = frames((TEXT + 0x100, 0x100, bytes.fromhex("410e108602430d06")))
    data = ElfFile(bytes(text), TEXT, symbols=[Symbol(name, TEXT + 0x100)]).to_bytes()
    source = sections.table_input(parse_elf(memoryview(data)), None, b"x")
    table = read_table(binding.build_table(replace(source, eh_frame=binding.Section(information))))
    within = {table.text_at(TEXT + 0x100 + at) for at in range(CHANGED, GIVEN_BACK)}
    usual = "fp+16 fp=cfa-16 ra=cfa-8"
    assert within == {"left fp+24 fp=cfa-24 ra=cfa-8" if name == "__morestack" else usual}
    assert {table.text_at(TEXT + 0x100 + at) for at in (*range(4, CHANGED), GIVEN_BACK)} == {usual}


# make_fcontext's end of Boost.Context 1.74 for x86-64, and as its source has it for CET and for aarch64
FIBER_STARTS = {
    "x86-64": (sections.EM_X86_64, "c355ffe3", "4831ffe849fefffff4"),
    "x86-64, CET": (sections.EM_X86_64, "c3f30f1efa55ffe3", "f30f1efa4831ffe849fefffff4"),
    "aarch64": (sections.EM_AARCH64, "014c00f9c0035fd6", "000080d2e0ffff97"),
}


@pytest.mark.parametrize(("machine", "before", "behind"), FIBER_STARTS.values(), ids=FIBER_STARTS)
@pytest.mark.parametrize("name", ["make_fcontext", "libboost_context.so.1.83.0", "other"])
def test_where_the_functions_of_fibers_return_to_is_the_bottom(machine, before, behind, name):
    text = bytearray(b"\x90" * 0x1000 if machine == sections.EM_X86_64 else b"\x1f\x20\x03\xd5" * 0x400)
    returned_to = 0x100 + len(before) // 2
    text[0x100:returned_to] = bytes.fromhex(before)
    text[returned_to : returned_to + len(behind) // 2] = bytes.fromhex(behind)
    elf = parse_elf(
        memoryview(ElfFile(bytes(text), TEXT, dynamic_symbols=[Symbol(name, TEXT)], machine=machine).to_bytes())
    )
    table = read_table(binding.build_table(sections.table_input(elf, None, b"x")))
    is_known = name != "other"
    assert (table.text_at(TEXT + returned_to - 1) == "stop") == is_known
    assert (table.text_at(TEXT + returned_to) == "stop") == is_known
    assert table.text_at(TEXT + returned_to - 2) != "stop"


def test_the_entry_of_a_program_without_information_is_the_bottom():
    data = bytearray(ElfFile().to_bytes())
    struct.pack_into("<Q", data, 24, TEXT + 0x100)
    table = read_table(binding.build_table(sections.table_input(parse_elf(memoryview(data)), None, b"x")))
    assert table.text_at(TEXT + 0x100) == "stop"
    assert table.text_at(TEXT) == "none"
    assert table.text_at(TEXT + 0x200) == "none"  # zeros are no code


# _start and _dl_start_user of glibc 2.36's dynamic linker for x86-64
LOADER_START = (
    "4889e7e8f80b00004989c4488b14244889d64989e54883e4f0488b3d90840100498d4cd510498d550831ede8f09efeff"
    "488d15299bfeff4c89ec41ffe4"
)


@pytest.mark.parametrize("before", ["", "f30f1efa"])
def test_the_entry_of_the_dynamic_linker_is_the_bottom_to_its_end(before):
    """Behind the call there of what initialises libraries, too."""
    code = bytes.fromhex(before + LOADER_START)
    text = bytearray(0x1000)
    text[0x100 : 0x100 + len(code)] = code
    data = bytearray(ElfFile(bytes(text), TEXT).to_bytes())
    struct.pack_into("<Q", data, 24, TEXT + 0x100)
    table = read_table(binding.build_table(sections.table_input(parse_elf(memoryview(data)), None, b"x")))
    assert {table.text_at(TEXT + at) for at in range(0x100, 0x100 + len(code))} == {"stop"}
    assert table.text_at(TEXT + 0xFF) == table.text_at(TEXT + 0x100 + len(code)) == "none"
