"""Callers in copies of stacks, by the rules of tables."""

import struct

import numpy as np
import pytest

from tdprof.model.stack_ends import StackEnd
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections
from tdprof.unwind.walk import MAPPING, CopiedStacks, MappingKind, Walked, World, walk_stacks

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT, SIZE = 0x401000, 0x1000
STACK = 0x7FFD00000A00
AX, FP, SP, PC = 0, 6, 7, 16
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
        sections.EM_X86_64,
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
    table = binding.build_table(binding.TableInput(sections.EM_X86_64, [segment], stretches=rules))
    assert table
    saved = {SIGNAL_FP: 0, SIGNAL_SP: STACK + 512, SIGNAL_PC: interrupted}
    found = walked(table, {PC: TEXT + 0x100}, saved)
    assert StackEnd(int(found.end[0])) is end
    assert found.addresses.tolist() == [TEXT + 0x100] + [interrupted + 1] * (end is StackEnd.COMPLETE)
