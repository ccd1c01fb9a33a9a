"""Copies of stacks that lack pages which could not be read."""

import struct

import numpy as np
import pytest

from tdprof.model.stack_ends import StackEnd
from tdprof.native import unwind_api
from tdprof.unwind.walk import MAPPING, CopiedStacks, MappingKind, Walked, World, walk_stacks

pytestmark = pytest.mark.skipif(not unwind_api.is_available(), reason="the compiled library was not built")

EM_X86_64, PAGE = 62, 4096
CODE = 0x400000
FP, SP, PC = 6, 7, 16
# Some bytes into its page, so that the first one is not whole.
STACK = 0x7FFD00000AA0
FRAMES = (STACK + 0x40, STACK + 30 * PAGE, STACK + 30 * PAGE + 0x60, STACK + 62 * PAGE - 0x20)


def stack() -> bytes:
    """The frames' records: the next one's address and a return address; the last leads out of all code."""
    memory = bytearray(STACK // PAGE * PAGE + 64 * PAGE - STACK)
    for number, (frame, caller) in enumerate(zip(FRAMES, (*FRAMES[1:], 0), strict=True)):
        returns_to = CODE + 0x101 + number if caller else 8
        struct.pack_into("<QQ", memory, frame - STACK, caller, returns_to)
    return bytes(memory)


def page_of(address: int) -> int:
    return address // PAGE - STACK // PAGE


def walked(missing: set[int]) -> Walked:
    """The stack as it is copied without some of its pages, along frame pointers."""
    memory = stack()
    pages = [memory[max(n * PAGE - STACK % PAGE, 0) : (n + 1) * PAGE - STACK % PAGE] for n in range(64)]
    there = [n not in missing for n in range(64)]
    copy = np.frombuffer(b"".join(page for page, is_there in zip(pages, there, strict=True) if is_there), np.uint8)
    registers = np.zeros((1, 17), np.uint64)
    registers[0, [FP, SP, PC]] = FRAMES[0], STACK, CODE + 0x80
    code = np.array([(CODE, CODE + 0x1000, 0, 0, MappingKind.JIT)], MAPPING)
    zero, size = np.zeros(1, np.uint64), np.array([len(copy)], np.uint32)
    bits = np.array([sum(is_there << n for n, is_there in enumerate(there))], np.uint64)
    copied = CopiedStacks(EM_X86_64, registers, zero.astype(np.uint32), zero, size, copy, stack_pages=bits)
    return walk_stacks(copied, World([code], []))


@pytest.mark.parametrize(
    "missing",
    [
        set(),
        set(range(1, page_of(FRAMES[1]))),
        set(range(64)) - {page_of(frame) for frame in FRAMES},
        {page_of(FRAMES[0]) + 1, page_of(FRAMES[3]) - 1, 63},
    ],
)
def test_pages_that_no_frame_needs_may_be_missing(missing: set[int]) -> None:
    found = walked(missing)
    assert found.addresses.tolist() == [CODE + 0x80, *(CODE + 0x101 + number for number in range(3))]
    assert StackEnd(int(found.end[0])) is StackEnd.JIT


def test_a_stack_of_which_nothing_could_be_copied_was_not_too_large() -> None:
    """As of a process that ends, whose memory is gone."""
    found = walked(set(range(64)))
    assert found.addresses.tolist() == [CODE + 0x80]
    assert StackEnd(int(found.end[0])) is StackEnd.UNREADABLE


@pytest.mark.parametrize(("frame", "depth"), [(0, 1), (1, 2), (3, 4)])
def test_a_page_that_a_frame_needs_ends_the_stack_before_its_caller(frame: int, depth: int) -> None:
    found = walked({page_of(FRAMES[frame])})
    assert found.addresses.tolist() == [CODE + 0x80, *(CODE + 0x101 + number for number in range(3))][:depth]
    assert StackEnd(int(found.end[0])) is StackEnd.COPY_ENDED
