"""Unwind tables of Go's programs: by their function table, and where functions change stacks."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from builders.call_frames import entry, uleb
from builders.go_table import GoCode, GoFunction, go_program
from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import open_elf, parse_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT = 0x401000


def test_go(tmp_path):
    go = Path("/usr/lib/go/bin/gofmt")
    if not go.exists():
        pytest.skip("no Go program at hand")
    table = read_table(binding.build_table(sections.table_input(open_elf(go), None, b"x")))
    assert table.sources & 4
    assert table.counts[0] > 1000
    assert table.counts[1] == 0
    # What ends Go's signal handlers: mov $15, %rax; syscall. No call leads there, so its first address is returned to.
    text = open_elf(go).section(".text")
    at = bytes(open_elf(go).section_data(text)).find(bytes.fromhex("48c7c00f0000000f05"))
    assert at > 0
    assert table.text_at(text.address + at - 1) == "signal"
    # runtime.systemstack, from its call to where it has gone back: call *%rdi; the goroutine; its stack pointer.
    code = bytes(open_elf(go).section_data(text))
    back = code.find(bytes.fromhex("488b5830488b83c0000000"))
    call, end = code.rfind(bytes.fromhex("ffd7"), 0, back), code.find(bytes.fromhex("488b6038"), back)
    assert table.text_at(text.address + call) == table.text_at(text.address + end) == SWITCH
    assert table.text_at(text.address + end + 4) == table.text_at(text.address + code.rfind(b"\xcc", 0, call) + 1)
    assert table.text_at(text.address + end + 4) == "sp+8 ra=cfa-8"


SWITCH = "switch+12582920 fp=cfa+192 ra=cfa-8"  # 192, of struct m, where that says what goroutine it runs, and sp + 8


def go_with_debug_frame(code: bytes, name: str) -> UnwindTable:
    """A program of one function of eight bytes before it and of this one, of which .debug_frame says nothing else."""
    functions = [GoFunction("main.main", 0, [GoCode(8, 0, 1)]), GoFunction(name, 8, [GoCode(len(code), 0, 1)])]
    program = go_program(functions, ["main.go"], "1.18", text=TEXT)
    elf = parse_elf(memoryview(program))
    cie = entry(b"\xff\xff\xff\xff\x04\0\x08\0" + uleb(1) + b"\x78" + uleb(16) + b"\x0c\x07\x08\x90\x01")
    counted = entry(struct.pack("<IQQ", 0, TEXT + 8, len(code)))

    def read_code(address: int, size: int) -> bytes:
        return (bytes(8) + code)[address - TEXT :][:size]

    source = replace(
        sections.table_input(elf, None, b"x"), debug_frame=binding.Section(cie + counted), read_code=read_code
    )
    return read_table(binding.build_table(source))


@pytest.mark.parametrize(
    "name", ["runtime.systemstack", "runtime.asmcgocall", "runtime.cgocallback", "runtime.morestack"]
)
def test_a_go_function_that_changes_stacks_in_an_unknown_way_is_not_followed(name: str) -> None:
    table = go_with_debug_frame(b"\x90" * 64, name)
    assert table.text_at(TEXT + 8) == table.text_at(TEXT + 40) == "unsupported"
    assert table.text_at(TEXT + 4) == "sp+8 ra=cfa-8"


def test_where_go_calls_c_the_goroutine_is_on_the_stack() -> None:
    to_the_thread = bytes.fromhex("488b66384883ec4048897c2430488b7f084829d748897c2428")
    back = bytes.fromhex("ffd04889f4c3")
    on_it_already = bytes.fromhex("4883ec404889542428ffd04889f4c3")
    table = go_with_debug_frame(to_the_thread + back + on_it_already, "runtime.asmcgocall")
    start = TEXT + 8
    assert table.text_at(start) == table.text_at(start + 3) == "sp+8 ra=cfa-8"
    assert table.text_at(start + 4) == "unsupported"
    called = start + len(to_the_thread)
    assert table.text_at(called + 1) == f"call of C+{0x30 << 8 | 0x28} ra=cfa-8"
    assert table.text_at(called + 5) == "sp+8 ra=cfa-8"
    again = called + len(back)
    assert table.text_at(again + 4) == "unsupported"
    assert table.text_at(again + 10) == "[sp+40]+8 ra=cfa-8"


def test_go_code_behind_c_code_is_counted_from_where_it_begins() -> None:
    """A program that C's linker made, to be loaded anywhere: its table does not say where, and .text begins before."""
    function = GoFunction("main.main", 0, [GoCode(0x40, 0, 1)])
    program = go_program([function], ["main.go"], "1.18", text=TEXT + 0x100, is_pie=True, before=bytes(64))
    source = sections.table_input(parse_elf(memoryview(program)), None, b"x")
    assert source.text_address == TEXT + 0x100
    table = read_table(binding.build_table(source))
    assert table.text_at(TEXT + 0x110) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x90) != table.text_at(TEXT + 0x110)
