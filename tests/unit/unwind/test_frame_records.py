"""Callers of aarch64 code that has frame records and nothing else: where in its frame a record lies, nobody knows."""

import struct

import numpy as np
import pytest

from tdprof.native import unwind_api
from tdprof.unwind import sections
from tdprof.unwind.walk import MAPPING, CopiedStacks, MappingKind, World, walk_stacks

pytestmark = pytest.mark.skipif(not unwind_api.is_available(), reason="the compiled library was not built")

TEXT, SIZE, OFFSET = 0x401000, 0x40, 0x1000
WITHOUT = 0x500000
FRAME_BYTES = 64
RETURNS = (TEXT + 0x21, TEXT + 0x25, 0)


def table() -> bytes:
    """Of one function: CFA = sp + 64, x29 and x30 beside each other at its lower end."""
    cie = b"\0\0\0\0\x01zR\0\x04\x78\x1e\x01\x03\x0c\x1f\0" + b"\x0e\x40\x9d\x08\x9e\x07"
    cie = struct.pack("<I", len(cie) + 2) + cie + b"\0\0"
    rest = struct.pack("<III", len(cie) + 4, TEXT, SIZE) + b"\0\0\0\0"
    eh_frame = cie + struct.pack("<I", len(rest)) + rest + b"\0\0\0\0"
    segment = unwind_api.Segment(TEXT, OFFSET, SIZE, 0)
    built = unwind_api.build_table(
        unwind_api.TableInput(sections.EM_AARCH64, [segment], eh_frame=unwind_api.Section(eh_frame))
    )
    assert built is not None
    return built


@pytest.mark.parametrize("above", [0, 16, 48, 4096])
def test_who_called_code_with_a_frame_record_alone_has_its_own_record(above: int) -> None:
    """``above``: bytes of the leaf's frame above its record, which only the leaf knows of."""
    sp = 0x7FFD00000A00
    records = [sp + 32, sp + 48 + above, sp + 48 + above + FRAME_BYTES]
    stack = bytearray(records[-1] + FRAME_BYTES - sp)
    for record, caller, returns_to in zip(records, (*records[1:], 0), RETURNS, strict=True):
        struct.pack_into("<QQ", stack, record - sp, caller, returns_to)
    code = np.array(
        [
            (TEXT, TEXT + 0x1000, OFFSET, 0, MappingKind.TABLE),
            (WITHOUT, WITHOUT + 0x1000, 0, 0, MappingKind.JIT),
        ],
        MAPPING,
    )
    registers = np.array([[records[0], 0, sp, WITHOUT + 0x80]], np.uint64)
    zero = np.zeros(1, np.uint64)
    copied = CopiedStacks(
        sections.EM_AARCH64,
        registers,
        zero.astype(np.uint32),
        zero,
        np.array([len(stack)], np.uint32),
        np.frombuffer(bytes(stack), np.uint8),
    )
    found = walk_stacks(copied, World([code], [table()]))
    assert found.addresses.tolist() == [WITHOUT + 0x80, *RETURNS[:2]]
    assert found.guessed_from.tolist() == [1]
