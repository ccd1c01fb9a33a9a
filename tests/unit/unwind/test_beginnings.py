"""Coroutines that return to where a function begins: what stands before that has not called them."""

import struct

import numpy as np
import pytest

from builders.call_frames import entry, fde, frames, uleb
from builders.unwind_table import read_table
from tdprof.linux.elf import EM_AARCH64, EM_X86_64
from tdprof.model.stack_ends import StackEnd
from tdprof.native import unwind_api as binding
from tdprof.unwind.walk import MAPPING, CopiedStacks, MappingKind, Walked, World, walk_stacks

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT, SIZE, STACK = 0x401000, 0x1000, 0x7FFD00000A00
SMALL = 0x200  # as code is where functions lie without padding
BEGINNING = TEXT + 0x100
ARM_CIE = entry(b"\0\0\0\0\x01zR\0" + uleb(4) + b"\x78" + uleb(30) + b"\x01\x03\x0c\x1f\x00")
# Behind the first instruction the CFA is sp + 16; x29 and x30 are saved right below it.
STORES_PAIR = b"\x41\x0e\x10\x9d\x02\x9e\x01"


def table_of(machine: int, ends: int, code: bytes, size: int = SIZE) -> bytes:
    """Of two functions, the first ``ends`` bytes before the second and with ``code`` as its last."""
    text = bytearray(size)
    text[BEGINNING - ends - len(code) - TEXT : BEGINNING - ends - TEXT] = code
    first, second = (TEXT, 0x100 - ends), (BEGINNING, 0x100)
    if machine == EM_X86_64:
        information = frames((*first, b""), (*second, b""))
    else:
        information = ARM_CIE + fde(len(ARM_CIE), *first, STORES_PAIR)
        information += fde(len(information), *second, STORES_PAIR) + b"\0\0\0\0"
    table = binding.build_table(
        binding.TableInput(
            machine,
            [binding.Segment(TEXT, TEXT, size, 0)],
            eh_frame=binding.Section(information),
            read_code=lambda address, size: bytes(text[address - TEXT : address - TEXT + size]),
        )
    )
    assert table
    return table


def walked(machine: int, table: bytes) -> Walked:
    """A stack of one function, which is in the second of a table's and returns to its own beginning; then nothing."""
    words = (BEGINNING, 0) if machine == EM_X86_64 else (0, BEGINNING, 0, 0)
    registers = np.zeros((1, 17 if machine == EM_X86_64 else 4), np.uint64)
    registers[0, 7 if machine == EM_X86_64 else 2] = STACK
    registers[0, 16 if machine == EM_X86_64 else 3] = BEGINNING + 0x20
    stack = struct.pack(f"<{len(words)}Q", *words)
    zero = np.zeros(1, np.uint64)
    size = np.array([len(stack)], np.uint32)
    copied = CopiedStacks(machine, registers, zero.astype(np.uint32), zero, size, np.frombuffer(stack, np.uint8))
    return walk_stacks(copied, World([np.array([(TEXT, TEXT + SIZE, TEXT, 0, MappingKind.TABLE)], MAPPING)], [table]))


RET, BRANCH_AND_LINK, BRANCH_WITH_LINK_TO_REGISTER = "c0035fd6", "01000094", "20003fd6"


@pytest.mark.parametrize(
    ("machine", "ends", "code", "is_caller"),
    [
        pytest.param(EM_X86_64, 3, "c3", False, id="x86-64, padding"),
        pytest.param(EM_X86_64, 3, "e800000000", False, id="x86-64, a call and padding"),
        pytest.param(EM_X86_64, 0, "e800000000", True, id="x86-64, a call"),
        pytest.param(EM_X86_64, 32, "e800000000", True, id="x86-64, code of which nothing is known"),
        pytest.param(EM_AARCH64, 8, RET, False, id="aarch64, padding"),
        pytest.param(EM_AARCH64, 0, RET, False, id="aarch64"),
        pytest.param(EM_AARCH64, 0, BRANCH_AND_LINK, True, id="aarch64, a call that does not return"),
        pytest.param(EM_AARCH64, 0, BRANCH_WITH_LINK_TO_REGISTER, True, id="aarch64, such a call of a register's"),
    ],
)
def test_what_stands_before_the_function_that_is_returned_to_is_a_caller_only_if_it_ends_with_a_call(
    machine: int, ends: int, code: str, is_caller: bool
) -> None:
    table = table_of(machine, ends, bytes.fromhex(code))
    place = BEGINNING - TEXT
    assert (place in read_table(table).beginnings) == (not is_caller)
    found = walked(machine, table)
    assert found.addresses.tolist() == [BEGINNING + 0x20, *[BEGINNING] * is_caller]
    # Nobody that is left out was found by a rule.
    assert found.methods.sum() == is_caller
    if not is_caller and machine == EM_X86_64:
        assert StackEnd(int(found.end[0])) is StackEnd.COMPLETE


@pytest.mark.parametrize(
    ("code", "is_caller"),
    [
        pytest.param("c3", False, id="return"),
        pytest.param("e800000000c3", False, id="a call and more"),
        pytest.param("e800000000", True, id="a call that does not return"),
        pytest.param("ff1500000000", True, id="such a call of a pointer's"),
    ],
)
def test_where_code_is_small_functions_of_x86_need_no_padding_to_be_told_from_callers(
    code: str, is_caller: bool
) -> None:
    table = table_of(EM_X86_64, 0, bytes.fromhex(code), SMALL)
    assert walked(EM_X86_64, table).addresses.tolist() == [BEGINNING + 0x20, *[BEGINNING] * is_caller]
    assert walked(EM_X86_64, table_of(EM_X86_64, 0, bytes.fromhex(code))).addresses.tolist()[1:] == [BEGINNING]


def test_beginnings_ascend_and_are_as_many_as_a_table_says() -> None:
    table = table_of(EM_AARCH64, 0, bytes.fromhex(RET))
    assert binding.is_table(table)
    # Nothing is known of what is before the segment.
    assert read_table(table).beginnings.tolist() == [BEGINNING - TEXT]
    assert not binding.is_table(table[:-4])
    assert not binding.is_table(table + table[-4:])
