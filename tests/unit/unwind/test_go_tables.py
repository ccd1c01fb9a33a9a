"""Unwind tables of Go's programs: by their function table, and where functions change stacks."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders.call_frames import entry, uleb
from builders.go_table import GoCode, GoFunction, go_program
from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import open_elf, parse_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections, walk

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


def go_with_debug_frame(code: bytes, name: str, *, writes_sp: bool = True) -> UnwindTable:
    """A program of one function of eight bytes before it and of this one, of which .debug_frame says nothing else."""
    functions = [
        GoFunction("main.main", 0, [GoCode(8, 0, 1)]),
        GoFunction(name, 8, [GoCode(len(code), 0, 1)], writes_sp=writes_sp),
    ]
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
    "name",
    ["runtime.systemstack", "runtime.asmcgocall", "runtime.cgocallback", "runtime.morestack", "time.now"],
)
def test_a_go_function_that_changes_stacks_in_an_unknown_way_is_not_followed(name: str) -> None:
    table = go_with_debug_frame(b"\x90" * 64, name)
    assert table.text_at(TEXT + 8) == table.text_at(TEXT + 40) == "unsupported"
    assert table.text_at(TEXT + 4) == "sp+8 ra=cfa-8"


@pytest.mark.parametrize(
    ("begin", "finish"),
    [
        ("4883ec18 48896c2410 488d6c2410", "488b6c2410 4883c418 c3"),  # Go 1.19
        ("55 4889e5 4883ec10", "4883c410 5d c3"),  # 1.27
    ],
)
def test_what_reads_clocks_has_its_frame_where_the_frame_pointer_is(begin: str, finish: str) -> None:
    kept = bytes.fromhex(begin)
    to_the_thread, calls, back = (bytes.fromhex(text) for text in ("488b6238", "ffd0", "4c89e4"))
    without_vdso = bytes.fromhex("0f05ebf0")
    code = kept + to_the_thread + calls + back + bytes.fromhex(finish)
    table = go_with_debug_frame(code + without_vdso, "time.now")
    start, caller = TEXT + 8, "left fp+16 fp=cfa-16 ra=cfa-8"
    assert table.text_at(start) == "sp+8 ra=cfa-8"
    since = start + (len(kept) if kept[0] == 0x48 else 4)
    assert table.text_at(since - 1) == "sp+8 ra=cfa-8"
    restored = start + len(code) - (5 if kept[0] == 0x48 else 1)
    assert {table.text_at(place) for place in range(since, restored)} == {caller}
    assert {table.text_at(place) for place in range(restored, start + len(code))} == {"sp+8 ra=cfa-8"}
    assert table.text_at(start + len(code)) == table.text_at(start + len(code) + 3) == caller
    stays = go_with_debug_frame(code + without_vdso, "time.now", writes_sp=False)
    assert {stays.text_at(place) for place in range(start, start + len(code))} == {"sp+8 ra=cfa-8"}


def test_where_go_calls_c_the_goroutine_is_on_the_stack() -> None:
    to_the_thread = bytes.fromhex("488b66384883ec4048897c2430488b7f084829d748897c2428")
    back = bytes.fromhex("ffd04889f4c3")
    on_it_already = bytes.fromhex("4883ec404889542428ffd04889f4c3")
    table = go_with_debug_frame(to_the_thread + back + on_it_already, "runtime.asmcgocall")
    start = TEXT + 8
    assert table.text_at(start) == table.text_at(start + 3) == "sp+8 ra=cfa-8"
    assert table.text_at(start + 4) == "unsupported"
    called = start + len(to_the_thread)
    assert table.text_at(called + 1) == f"call of C+{0x30 << 8 | 0x28} fp=cfa+8 ra=cfa-8"
    assert table.text_at(called + 5) == "sp+8 ra=cfa-8"
    again = called + len(back)
    assert table.text_at(again + 4) == "unsupported"
    assert table.text_at(again + 10) == "[sp+40]+8 ra=cfa-8"


# Go 1.27: push %rbp; mov %rsp,%rbp; mov 0x38(%rsi),%rsp; mov %rdi,8(%rsp); mov 8(%rdi),%rdi; sub %rdx,%rdi;
# mov %rdi,(%rsp); call *%rax; mov %rsi,%rsp; ret; and on that stack already: sub $0x10,%rsp; mov %rdx,(%rsp); call …
FRAMED_ASMCGOCALL = bytes.fromhex("55 4889e5 488b6638 48897c2408 488b7f08 4829d7 48893c24 ffd0 4889f4 c3")
FRAMED_ASMCGOCALL += bytes.fromhex("4883ec10 48891424 ffd0 4889f4 c3")
CALL_OF_C = 29  # behind its call
# push %rbp; mov current(%rbx),%rsi; mov %rdi,%rsp; call *%rdx; mov 0x38(%rsi),%rsp; ret
CGOCALLBACK = bytes.fromhex("55 488bb3c0000000 4889fc ffd2 488b6638 c3")
CALL_OF_GO = 13


def test_what_calls_it_for_another_calling_convention_has_its_name_and_stays_on_its_stack() -> None:
    table = go_with_debug_frame(bytes.fromhex("55 4889e5 e8aaffffff 5d c3"), "runtime.asmcgocall", writes_sp=False)
    assert {table.text_at(TEXT + 8 + at) for at in range(11)} == {"sp+8 ra=cfa-8"}


def test_where_it_has_a_frame_the_return_address_is_above_it() -> None:
    table = go_with_debug_frame(FRAMED_ASMCGOCALL, "runtime.asmcgocall")
    start = TEXT + 8
    assert table.text_at(start + CALL_OF_C - 1) == f"call of C+{8 << 8} fp=cfa+16 ra=cfa-8"
    assert table.text_at(start + len(FRAMED_ASMCGOCALL) - 5) == "[sp+0]+16 ra=cfa-8"


def callbacks_table() -> tuple[bytes, int, int]:
    """Of main.main, eight bytes; and where the code of the two functions begins that lead from Go to C and back."""
    to_c, to_go = 8, 8 + len(FRAMED_ASMCGOCALL)
    code = bytes(8) + FRAMED_ASMCGOCALL + CGOCALLBACK
    functions = [
        GoFunction("main.main", 0, [GoCode(8, 0, 1)]),
        GoFunction("runtime.asmcgocall", to_c, [GoCode(len(FRAMED_ASMCGOCALL), 0, 1)], writes_sp=True, frame=8),
        GoFunction("runtime.cgocallback", to_go, [GoCode(len(CGOCALLBACK), 0, 1)], writes_sp=True, frame=8),
    ]
    program = go_program(functions, ["main.go"], "1.18", text=TEXT)
    source = sections.table_input(parse_elf(memoryview(program)), None, b"x")
    table = binding.build_table(replace(source, read_code=lambda address, size: code[address - TEXT :][:size]))
    assert table
    return table, TEXT + to_c, TEXT + to_go


@pytest.mark.parametrize("at", ["goroutine's stack", "C's stack"])
def test_each_callback_leads_to_the_c_code_that_made_it(at: str) -> None:
    """Go calls C calls Go calls C calls Go; sampled there, or before the stack is changed for it, but noted already."""
    table, to_c, to_go = callbacks_table()
    bottom, is_on_goroutine = 0x7000, at == "goroutine's stack"
    stack = bottom if is_on_goroutine else bottom + 0x240
    inner, outer, g, m, g0 = (bottom + place for place in (0x40, 0x80, 0xC0, 0x100, 0x200))
    behind_c, behind_go = to_c + CALL_OF_C, to_go + CALL_OF_GO
    depth, stack_end = 0x28, stack + 0x30
    words = {
        inner: outer,  # where the callback around it has left C's stack
        inner + 8: behind_c,
        inner + 16: depth,
        inner + 24: g,
        outer: bottom + 0x1000,
        outer + 8: TEXT + 4,
        g + 8: stack_end,
        g + 48: m,
        m: g0,
        m + 0xC0: g,
        g0 + 56: inner,
        stack: behind_go,
        stack_end - depth + 8: behind_go,
    }
    memory = np.zeros(0x60, np.uint64)  # copied from SP on
    sp = stack if is_on_goroutine else inner
    for address, word in words.items():
        memory[(address - sp) // 8] = word
    registers = np.zeros((1, 17), np.uint64)
    registers[0, 7] = sp
    registers[0, 14] = g if is_on_goroutine else 0x1234  # C's code may have any value there
    registers[0, 16] = TEXT + 2 if is_on_goroutine else to_go + 3
    zero = np.zeros(1, np.uint64)
    copied = walk.CopiedStacks(
        sections.EM_X86_64, registers, zero.astype(np.uint32), zero, np.array([0x300], np.uint32), memory.view(np.uint8)
    )
    mapping = np.array([(TEXT, TEXT + 0x1000, 0x1000, 0, walk.MappingKind.TABLE)], walk.MAPPING)
    walked = walk.walk_stacks(copied, walk.World([mapping], [table]))
    leaf = [TEXT + 2, behind_go] if is_on_goroutine else [to_go + 3]
    assert walked.addresses.tolist()[: len(leaf) + 3] == [*leaf, behind_c, behind_go, TEXT + 4]


CROSSCALL_1_19 = "4883ec30 48896c2428 488d6c2428 ffd0 488b6c2428 4883c430 c3"
CROSSCALL_1_27 = "55 4889e5 4883ec30 48896c2428 488d6c2428 ffd0 488b6c2428 4883c430 5d c3"


@pytest.mark.parametrize(("code", "saved", "restored"), [(CROSSCALL_1_19, 14, 21), (CROSSCALL_1_27, 4, 30)])
def test_c_that_calls_go_has_its_frame_pointer_back(code: str, saved: int, restored: int) -> None:
    table = go_with_debug_frame(bytes.fromhex(code), "crosscall2", writes_sp=False)
    start = TEXT + 8
    rules = [table.text_at(start + at) for at in range(len(bytes.fromhex(code)))]
    assert set(rules[:saved]) == {"sp+8 ra=cfa-8"} == set(rules[restored:])
    assert set(rules[saved:restored]) == {"sp+8 fp=cfa-16 ra=cfa-8"}


def test_c_that_calls_go_in_another_way_is_counted_as_it_was() -> None:
    table = go_with_debug_frame(bytes.fromhex("4883ec30 48896c2420 488d6c2428 ffd0 c3"), "crosscall2", writes_sp=False)
    assert {table.text_at(TEXT + 8 + at) for at in range(16)} == {"sp+8 ra=cfa-8"}


def test_go_code_behind_c_code_is_counted_from_where_it_begins() -> None:
    """A program that C's linker made, to be loaded anywhere: its table does not say where, and .text begins before."""
    function = GoFunction("main.main", 0, [GoCode(0x40, 0, 1)])
    program = go_program([function], ["main.go"], "1.18", text=TEXT + 0x100, is_pie=True, before=bytes(64))
    source = sections.table_input(parse_elf(memoryview(program)), None, b"x")
    assert source.text_address == TEXT + 0x100
    table = read_table(binding.build_table(source))
    assert table.text_at(TEXT + 0x110) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x90) != table.text_at(TEXT + 0x110)


PUSH_LR = "fe0f1ff8"  # str x30, [sp, #-16]!


def arm_table(words: str, name: str, begin: str = PUSH_LR, *, frame: int = 0, before: str = "") -> bytes:
    """Of a function of aarch64 at ``TEXT`` + 8 that begins and goes on so; ``before``: runtime.systemstack's code."""
    code, systemstack = bytes.fromhex(begin + words), bytes.fromhex(before)
    functions = [
        GoFunction("main.main", 0, [GoCode(8, 0, 1)]),
        GoFunction(name, 8, [GoCode(len(code), 0, 1)], writes_sp=name != "runtime.sigpanic", frame=frame),
    ]
    if systemstack:
        functions.insert(1, GoFunction("runtime.systemstack", 8, [GoCode(len(systemstack), 0, 1)], writes_sp=True))
        functions[2] = replace(functions[2], start=8 + len(systemstack))
        code = systemstack + code
    program = go_program(functions, ["main.go"], "1.18", text=TEXT)
    source = replace(
        sections.table_input(parse_elf(memoryview(program)), None, b"x"),
        machine=sections.EM_AARCH64,
        read_code=lambda address, size: (bytes(8) + code)[address - TEXT :][:size],
    )
    table = binding.build_table(source)
    assert table
    return table


def arm_rules(words: str, name: str, begin: str = PUSH_LR, *, frame: int = 0) -> list[str]:
    """Of each of these instructions."""
    table = read_table(arm_table(words, name, begin, frame=frame))
    return [table.text_at(TEXT + 8 + len(begin) // 2 + at) for at in range(0, len(words) // 2, 4)]


# ldr x3, [x28, #56]; mov sp, x3; ldr x3, [x26]; blr x3; ldr x3, [x28, #48]; ldr x28, [x3, #192]
# ldr x0, [x28, #56]; mov sp, x0; ldr x29, [x28, #104]
SYSTEMSTACK = "831f40f97f000091430340f960003fd6831b40f97c6040f9801f40f91f0000919d3740f9"


def test_systemstack_of_aarch64_leads_back_to_the_goroutine() -> None:
    switch = f"switch+{192 << 16 | 16} fp=cfa+192 ra=cfa-8"
    counted = "sp+0 ra=lr"  # as the table says of the whole function
    assert arm_rules(SYSTEMSTACK, "runtime.systemstack") == [counted, counted, *[switch] * 6, counted]


# str x30, [sp, #-48]!; stur x29, [sp, #-8]; sub x29, sp, #8
PUSH_BOTH = "fe0f1df8fd831ff8fd2300d1"
# mov x20, sp; mov sp, x1; blr x2; mov sp, x20; ldp x29, x30, [sp, #-8]; add sp, sp, #48; ret
CLOCK = "f40300913f00009140003fd69f020091fdfb7fa9ffc30091c0035fd6"


def test_what_reads_clocks_on_aarch64_has_its_frame_where_the_frame_pointer_is() -> None:
    counted, left = "sp+48 ra=cfa-48", "left fp+56 fp=cfa-56 ra=cfa-48"
    rules = arm_rules(CLOCK, "runtime.nanotime1", PUSH_BOTH, frame=48)
    assert rules == [counted, counted, left, left, counted, counted, counted]


@pytest.mark.parametrize("begin", ["fe0f1df8 1f2003d5 fd2300d1", "fe0f1df8 fd831ff8 1f2003d5"])
def test_what_reads_clocks_on_aarch64_and_keeps_no_frame_pointer_is_not_followed(begin: str) -> None:
    assert set(arm_rules(CLOCK, "runtime.nanotime1", begin.replace(" ", ""), frame=48)) == {"unsupported"}


# ldr x8, [x28, #48]; ldr x3, [x8]; ldr x4, [x3, #56]; str x4, [sp, #16]; mov x0, sp; str x0, [x3, #56];
# ldr x28, [x8, #192]; ldr x4, [x28, #56]; sub x0, x4, #48; mov sp, x0; blr x1; ldr x0, [x28, #56]; mov sp, x0;
# ldr x4, [sp, #16]; str x4, [x28, #56]; ret
ARM_CGOCALLBACK = "881b40f9030140f9641c40f9e40b00f9e0030091601c00f91c6140f9841f40f980c000d11f00009120003fd6"
ARM_CGOCALLBACK += "801f40f91f000091e40b40f9841f00f9c0035fd6"


def test_where_c_calls_go_on_aarch64_the_thread_keeps_where_it_was() -> None:
    counted, switch = "sp+48 ra=cfa-48", "switch+48 fp=cfa+192 ra=cfa-8"
    rules = arm_rules(ARM_CGOCALLBACK, "runtime.cgocallback", PUSH_BOTH, frame=48)
    assert rules == [*[counted] * 10, *[switch] * 3, *[counted] * 3]
    elsewhere = ARM_CGOCALLBACK.replace("e40b00f9", "e40f00f9")  # where the callback around left C is at sp + 24
    assert set(arm_rules(elsewhere, "runtime.cgocallback", PUSH_BOTH, frame=48)) == {"unsupported"}


def test_c_that_calls_go_on_aarch64_has_its_frame_pointer_back() -> None:
    # sub sp, sp, #192; stp x0, x1, [sp, #8]; stp x29, x30, [sp, #176]; bl; ldp x29, x30, [sp, #176];
    # add sp, sp, #192; ret
    code = "ff0303d1e08700a9fd7b0ba900000094fd7b4ba9ff030391c0035fd6"
    assert arm_rules(code[8:], "crosscall2", code[:8], frame=192)[:5] == [
        *["sp+192 ra=lr"] * 2,
        *["sp+192 fp=cfa-16 ra=cfa-8"] * 2,
        "sp+192 ra=lr",
    ]
    assert set(arm_rules("1f2003d5" * 8, "crosscall2", frame=192)) == {"unsupported"}


# str x30, [x28, #64]; str x3, [x28, #96]; ldr x28, [x8]; ldr x0, [x28, #56]; mov sp, x0; str xzr, [sp, #-16]!; bl
MORESTACK = "9e2300f9833300f91c0140f9801f40f91f000091ff0f1ff800000094"


def test_who_makes_its_stack_larger_on_aarch64_has_its_caller_in_the_goroutine() -> None:
    table = read_table(arm_table(MORESTACK, "runtime.morestack", "", before=PUSH_LR + SYSTEMSTACK))
    start = TEXT + 8 + len(PUSH_LR + SYSTEMSTACK) // 2
    switch = f"switch+{192 << 16 | 96} ra=cfa+192 interrupted"
    assert [table.text_at(start + at) for at in range(0, 28, 4)] == [*["sp+0 ra=lr"] * 5, *[switch] * 2]
    assert set(arm_rules(MORESTACK, "runtime.morestack", "")) == {"unsupported"}  # where the goroutine is is not known


def test_what_a_signal_handler_has_put_in_on_aarch64_is_counted_from_the_interrupted_frame() -> None:
    assert set(arm_rules("1f2003d5" * 8, "runtime.sigpanic", frame=64)) == {"sp+80 ra=cfa-80 interrupted"}
    before_it_has_its_frame = arm_rules("1f2003d5" * 8, "runtime.sigpanic")
    assert set(before_it_has_its_frame) == {"sp+16 ra=lr interrupted"}
    on_x86_64 = go_with_debug_frame(b"\x90" * 16, "runtime.sigpanic", writes_sp=False)
    assert on_x86_64.text_at(TEXT + 8) == "sp+8 ra=cfa-8"


# mov sp, x0; mov x13, sp; mov sp, x13; str x4, [sp]; ldr x4, [x4, #8]; sub x4, x4, x2; str x4, [sp, #8]; blr x1;
# mov sp, x5; ret; and on that stack already: mov sp, x13; str x4, [sp]; str x2, [sp, #8]; blr x1; mov sp, x2; ret
ASMCGOCALL = "1f000091ed030091bf010091e40300f9840440f9840002cbe40700f920003fd6bf000091c0035fd6"
ASMCGOCALL += "bf010091e40300f9e20700f920003fd65f000091c0035fd6"


def test_asmcgocall_of_aarch64_has_the_goroutine_on_the_stack() -> None:
    counted, called = "sp+0 ra=lr", "call of C+8 fp=cfa+16 ra=cfa-8"
    assert arm_rules(ASMCGOCALL, "runtime.asmcgocall") == [
        counted,
        *["unsupported"] * 6,
        called,
        called,
        counted,
        counted,
        *["unsupported"] * 2,
        *["[sp+8]+16 ra=cfa-16"] * 2,
        counted,
    ]


def arm_callers(table: bytes, registers: list[int], words: list[int]) -> list[int]:
    """Of a stack that holds ``words`` from SP on; ``registers``: x29, x30, SP, PC."""
    copied = walk.CopiedStacks(
        sections.EM_AARCH64,
        np.array([registers], np.uint64),
        np.zeros(1, np.uint32),
        np.zeros(1, np.uint64),
        np.array([8 * len(words)], np.uint32),
        np.array(words, np.uint64).view(np.uint8),
    )
    mapping = np.array([(TEXT, TEXT + 0x1000, 0x1000, 0, walk.MappingKind.TABLE)], walk.MAPPING)
    addresses: list[int] = walk.walk_stacks(copied, walk.World([mapping], [table])).addresses.tolist()
    return addresses


def test_the_walk_from_c_back_to_the_goroutine() -> None:
    """C's code stands at the call of asmcgocall; the thread's stack, the goroutine and its stack are one copy."""
    bottom, caller = 0x7000, TEXT + 4
    goroutine, stack_end, depth = bottom + 64, bottom + 256, 80
    words = [0] * 40
    words[0], words[1] = goroutine, depth
    words[(64 + 8) // 8] = stack_end
    words[(256 - depth) // 8] = caller
    called = TEXT + 8 + 8 * 4
    found = arm_callers(arm_table(ASMCGOCALL, "runtime.asmcgocall"), [0, 0, bottom, called], words)
    assert found[:2] == [called, caller]


def test_the_walk_from_a_clock_back_to_the_goroutine() -> None:
    """On the thread's stack, where its frame would be another one."""
    bottom, caller = 0x7000, TEXT + 4
    words = [TEXT + 0x10] * 40
    words[20], words[21] = bottom + 8 * 39, caller  # its frame, of 48 bytes, on the goroutine's stack
    called = TEXT + 8 + 5 * 4
    table = arm_table(CLOCK, "runtime.nanotime1", PUSH_BOTH, frame=48)
    assert arm_callers(table, [bottom + 8 * 20, 0, bottom, called], words)[:2] == [called, caller]


@pytest.mark.parametrize("frame", [0, 64])
def test_the_walk_through_a_call_that_a_signal_handler_has_put_in(frame: int) -> None:
    """main.main has no frame: it returns to what x30 was, which lies in 16 bytes below its stack pointer."""
    bottom, interrupted, caller = 0x7000, TEXT + 4, TEXT + 8 + 4
    words = [TEXT + 0x10] * 40
    words[0], words[frame // 8] = interrupted, caller
    table = arm_table("1f2003d5" * 8, "runtime.sigpanic", frame=frame)
    leaf = TEXT + 8 + 8
    # A caller's address is behind its call: that of one that made none, behind where it stands.
    found = arm_callers(table, [0, interrupted, bottom, leaf], words)
    assert found[:3] == [leaf, interrupted + 1, caller]


@pytest.mark.parametrize(
    "name",
    ["runtime.systemstack", "runtime.asmcgocall", "runtime.morestack", "runtime.cgocallback", "runtime.walltime"],
)
def test_what_is_not_known_of_aarch64_is_not_followed(name: str) -> None:
    assert set(arm_rules("1f2003d5" * 16, name)) == {"unsupported"}
