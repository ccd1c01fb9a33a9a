"""Stacks through what CPython puts before each function with ``-X perf``, which keeps no frame pointer."""

import struct

import numpy as np
import pytest

from tdprof.model.stack_ends import StackEnd
from tdprof.native import unwind_api
from tdprof.unwind.walk import MAPPING, CopiedStacks, MappingKind, Walked, World, walk_stacks

pytestmark = pytest.mark.skipif(not unwind_api.is_available(), reason="the compiled library was not built")

EM_X86_64 = 62
FP, SP, PC = 6, 7, 16
CODE, TRAMPOLINES, STACK = 0x400000, 0x7F0000000000, 0x7FFD00000000
RECORD = STACK + 0x60
CALL_RETURNS = 6  # behind the one call of a trampoline


def walked(kind: MappingKind, words: list[int], pc: int, fp: int) -> Walked:
    """A stack of these words, with frame records of generated code at ``fp`` and ``RECORD``, the last in no code."""
    registers = np.zeros((1, 17), np.uint64)
    registers[0, [FP, SP, PC]] = fp, STACK, pc
    code = [(CODE, CODE + 0x1000, 0, 0, MappingKind.JIT), (TRAMPOLINES, TRAMPOLINES + 0x10000, 0, 0, kind)]
    memory = bytearray(struct.pack(f"<{len(words)}Q", *words).ljust(0x100, b"\0"))
    struct.pack_into("<QQ", memory, RECORD - STACK, 0, 8)
    copy, zero = np.frombuffer(bytes(memory), np.uint8), np.zeros(1, np.uint64)
    copied = CopiedStacks(EM_X86_64, registers, zero.astype(np.uint32), zero, np.array([len(copy)], np.uint32), copy)
    return walk_stacks(copied, World([np.array(code, MAPPING)], []))


def test_a_caller_is_found_through_a_trampoline_by_where_its_call_leaves_the_stack() -> None:
    # The record of what it called, the word that it takes, its return address.
    words = [RECORD, TRAMPOLINES + CALL_RETURNS, 0x1234, CODE + 0x201]
    found = walked(MappingKind.TRAMPOLINES, words, CODE + 0x80, STACK)
    assert found.addresses.tolist() == [CODE + 0x80, TRAMPOLINES + CALL_RETURNS, CODE + 0x201]
    lost = walked(MappingKind.JIT, words, CODE + 0x80, STACK)
    assert lost.addresses.tolist() == [CODE + 0x80, TRAMPOLINES + CALL_RETURNS]
    assert StackEnd(int(lost.end[0])) is StackEnd.JIT


def test_what_is_interrupted_in_a_trampoline_may_have_taken_its_word_or_not() -> None:
    found = walked(MappingKind.TRAMPOLINES, [0x1234, CODE + 0x201], TRAMPOLINES + 2, RECORD)
    assert found.addresses.tolist() == [TRAMPOLINES + 2]
    assert StackEnd(int(found.end[0])) is StackEnd.JIT
