"""Callers in copies of stacks, by the rules of tables."""

import ctypes
import struct
import zlib

import numpy as np
import pytest

from builders.unwind_table import read_table
from tdprof.linux.elf import EM_X86_64
from tdprof.model.stack_ends import StackEnd
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections
from tdprof.unwind.walk import MAPPING, CopiedStacks, MappingKind, Walked, World, walk_stacks

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT, SIZE = 0x401000, 0x1000
STACK = 0x7FFD00000A00
AX, FP, SP, PC = 0, 6, 7, 16
CFA_FP, RA_KEPT = 1, 3  # bpf/unwind.h
SIGNAL_FP, SIGNAL_SP, SIGNAL_PC = 120, 160, 168  # of struct ucontext


def walked(table: bytes, registers: dict[int, int], words: dict[int, int], size: int = 1024) -> Walked:
    """One stack of x86-64, in a program with one table; ``words`` by their distance from SP."""
    stack = bytearray(size)
    for at, word in words.items():
        struct.pack_into("<Q", stack, at, word)
    row = np.zeros((1, 17), np.uint64)
    for number, value in {SP: STACK, **registers}.items():
        row[0, number] = value
    zero = np.zeros(1, np.uint64)
    copied = CopiedStacks(
        EM_X86_64,
        row,
        zero.astype(np.uint32),
        zero,
        np.array([size], np.uint32),
        np.frombuffer(bytes(stack), np.uint8),
    )
    code = np.array([(TEXT, TEXT + SIZE, TEXT, 0, MappingKind.TABLE)], MAPPING)
    return walk_stacks(copied, World([code], [table]))


@pytest.mark.parametrize(
    ("interrupted", "end"),
    [(TEXT + 0x800, StackEnd.COMPLETE), (0, StackEnd.NO_MAPPING), (0x1000, StackEnd.NO_MAPPING)],
)
def test_who_called_a_function_at_address_0_is_missing_behind_the_handler_of_its_fault(
    interrupted: int, end: StackEnd
) -> None:
    rules = [
        binding.Stretch(TEXT + 0x100, TEXT + 0x110, binding.Rule(sections.SIGNAL), binding.PLAIN),
        binding.Stretch(TEXT + 0x800, TEXT + 0x810, binding.Rule(sections.STOP), binding.PLAIN),
    ]
    segment = binding.Segment(TEXT, TEXT, SIZE, 0)
    table = binding.build_table(binding.TableInput(EM_X86_64, [segment], stretches=rules))
    assert table
    saved = {SIGNAL_FP: 0, SIGNAL_SP: STACK + 512, SIGNAL_PC: interrupted}
    found = walked(table, {PC: TEXT + 0x100}, saved)
    assert StackEnd(int(found.end[0])) is end
    assert found.addresses.tolist() == [TEXT + 0x100] + [interrupted + 1] * (end is StackEnd.COMPLETE)


@pytest.mark.parametrize(
    ("fp", "end"), [(STACK + 640, StackEnd.COMPLETE), (STACK + 800, StackEnd.BAD_SP)], ids=["saved", "written over"]
)
def test_a_frame_that_is_written_over_has_the_caller_that_is_kept(fp: int, end: StackEnd) -> None:
    """Its FP is the caller's while it is not that of the handler's function."""
    rules = [
        binding.Stretch(TEXT + 0x100, TEXT + 0x110, binding.Rule(CFA_FP, RA_KEPT, -408, 16), binding.PLAIN),
        binding.Stretch(TEXT + 0x200, TEXT + 0x210, binding.Rule(CFA_FP, 0, -16, 16), binding.PLAIN),
        binding.Stretch(TEXT + 0x800, TEXT + 0x810, binding.Rule(sections.STOP), binding.PLAIN),
    ]
    segment = binding.Segment(TEXT, TEXT, SIZE, 0)
    table = binding.build_table(binding.TableInput(EM_X86_64, [segment], stretches=rules))
    assert table
    kept = 528 - 408
    frame = {512: fp, 520: TEXT + 0x301, kept: TEXT + 0x201, kept + 136: STACK + 560, 560: STACK + 800}
    callers = {640: 0, 648: TEXT + 0x801, 800: 0, 808: TEXT + 0x801}
    found = walked(table, {PC: TEXT + 0x100, FP: STACK + 512}, frame | callers)
    assert StackEnd(int(found.end[0])) is end
    expected = [TEXT + 0x100, TEXT + 0x201, TEXT + 0x801]
    assert found.addresses.tolist() == expected[: 3 if end is StackEnd.COMPLETE else 2]


CALLEE, CALLER, RETURNS_TO = TEXT + 0x300, TEXT + 0x200, TEXT + 0x808
BY_AX = 32  # UNWIND_CFA_REGISTER + the number of rax


def register_table(code: bytes | None, cfa: int = BY_AX) -> bytes:
    """Of a leaf, a caller whose CFA is rax + 8, and what calls that, with ``code`` before what it returns to."""
    text = bytearray(b"\x90" * SIZE)
    text[CALLER - TEXT : CALLER - TEXT + 5] = bytes.fromhex("e8fb000000")  # the call of the leaf
    if code:
        text[RETURNS_TO - TEXT - len(code) : RETURNS_TO - TEXT] = code
    rules = [
        binding.Stretch(CALLER, CALLER + 0x40, binding.Rule(cfa, 0, sections.FP_SAME, 8), binding.PLAIN),
        binding.Stretch(CALLEE, CALLEE + 0x40, binding.Rule(sections.CFA_SP, 0, sections.FP_SAME, 8), binding.PLAIN),
        binding.Stretch(TEXT + 0x800, TEXT + 0x840, binding.Rule(sections.STOP), binding.PLAIN),
    ]
    source = binding.TableInput(
        EM_X86_64,
        [binding.Segment(TEXT, TEXT, SIZE, 0)],
        stretches=rules,
        read_code=None if code is None else lambda address, size: bytes(text[address - TEXT : address - TEXT + size]),
    )
    table = binding.build_table(source)
    assert table
    return table


@pytest.mark.parametrize(
    ("code", "is_call"),
    [
        ("e810000000", True),
        ("ffd0", True),  # call *%rax
        ("41ffd4", True),  # call *%r12
        ("ff10", True),  # call *(%rax)
        ("ff5020", True),  # call *32(%rax)
        ("ff1424", True),  # call *(%rsp)
        ("ff542408", True),
        ("ff9000010000", True),
        ("ff1500010000", True),  # call *256(%rip)
        ("ff942400010000", True),
        ("", False),
        ("e9e8000000", False),  # jmp
        ("ffe0", False),
        ("ff7020", False),  # push
        ("e81000000090", False),  # amid what follows the call
    ],
)
def test_a_caller_by_an_old_register_is_believed_in_a_copy_where_a_call_returns_to(code: str, is_call: bool) -> None:
    table = register_table(bytes.fromhex(code))
    found = walked(table, {AX: STACK + 64, PC: CALLEE}, {0: CALLER + 5, 64: RETURNS_TO})
    assert StackEnd(int(found.end[0])) is (StackEnd.COMPLETE if is_call else StackEnd.UNSUPPORTED_RULE)
    assert found.addresses.tolist() == [CALLEE, CALLER + 5] + [RETURNS_TO] * is_call
    assert found.guessed_from.tolist() == [2 if is_call else 0]


@pytest.mark.parametrize("returns_to", [0, 7, TEXT, TEXT + SIZE + 1, 0x500000, 2**48 - 1])
def test_a_caller_of_which_no_code_is_known_is_not_believed(returns_to: int) -> None:
    words = {0: CALLER + 5, 64: returns_to}
    for table in (register_table(None), register_table(bytes.fromhex("e810000000"))):
        found = walked(table, {AX: STACK + 64, PC: CALLEE}, words)
        assert StackEnd(int(found.end[0])) is StackEnd.UNSUPPORTED_RULE
        assert found.addresses.tolist() == [CALLEE, CALLER + 5]


def test_a_call_may_be_the_last_of_its_segment_and_signal_handlers_return_without_one() -> None:
    text = bytearray(b"\x90" * SIZE)
    text[-5:] = bytes.fromhex("e800000000")
    text[0x400:0x409] = bytes.fromhex("48c7c00f0000000f05")
    text[0x500:0x507] = bytes.fromhex("b80f0000000f05")
    source = binding.TableInput(
        EM_X86_64,
        [binding.Segment(TEXT, TEXT, SIZE, 0)],
        stretches=[binding.Stretch(CALLER, CALLER + 0x40, binding.Rule(BY_AX, 0, sections.FP_SAME, 8), binding.PLAIN)],
        read_code=lambda address, size: bytes(text[address - TEXT : address - TEXT + size]),
    )
    built = binding.build_table(source)
    assert built
    table = read_table(built)
    returned_to = [address for address in range(TEXT, TEXT + SIZE + 1) if table.is_returned_to(address)]
    assert returned_to == [TEXT + 0x400, TEXT + 0x500, TEXT + SIZE]


def test_tables_without_such_rules_or_without_their_code_do_not_say_where_calls_return_to() -> None:
    call = bytes.fromhex("e810000000")
    assert read_table(register_table(call)).calls.tolist() == [CALLER + 5 - TEXT, RETURNS_TO - TEXT]
    assert len(read_table(register_table(call, sections.CFA_SP)).calls) == 0
    assert len(read_table(register_table(None)).calls) == 0


@pytest.mark.parametrize(
    ("calls", "count", "is_whole"),
    [
        ([5, 6, 2**32 - 1], 3, True),
        ([], 0, True),
        ([5, 6], 3, False),
        ([5, 6], 1, False),
        ([5, 6], 2**32 - 1, False),
        ([5, 5], 2, False),
        ([5, 6, 1], 3, False),
    ],
)
def test_calls_of_a_table_are_as_many_as_it_says_and_ascend(calls: list[int], count: int, is_whole: bool) -> None:
    table = register_table(bytes.fromhex("e810000000"))
    header = binding.read_header(table)
    assert header.calls == 2
    changed = bytearray(table[:-8]) + struct.pack(f"<{len(calls)}I", *calls)
    struct.pack_into("<I", changed, binding.Header.calls.offset, count)
    struct.pack_into("<I", changed, binding.Header.crc.offset, 0)
    struct.pack_into("<I", changed, binding.Header.crc.offset, zlib.crc32(changed[: ctypes.sizeof(header)]))
    assert binding.is_table(bytes(changed)) == is_whole
