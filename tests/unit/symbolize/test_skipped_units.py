"""What a first look at a unit skips is read where an address falls into it."""

import struct

import numpy as np
import pytest

from builders.costly_debug_data import (
    ADDR,
    DATA4,
    END_SEQUENCE,
    FUNCTION,
    HIGH,
    LOW,
    NAME,
    NAMESPACE,
    SEC_OFFSET,
    STMT_LIST,
    UNIT,
    abbreviation,
    line_program,
    set_address,
    unit,
)
from tdprof.native.library import load_native
from tdprof.symbolize.dwarf import build_code_index

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")

SIBLING, STRING, REF4 = 0x01, 0x08, 0x13
TEXT = 0x1000
ADVANCE_16 = b"\x02\x10"
ROW = b"\x01"
UNIT_HEADER_BYTES = 11


def function(name: bytes, start: int) -> bytes:
    return b"\x03" + name + b"\0" + struct.pack("<QI", start, 16)


def sections() -> dict[str, bytes]:
    """Two functions of 16 bytes, the first inside a namespace: no compiler's way that tells where one ends."""
    abbrev = (
        abbreviation(1, UNIT, True, (STMT_LIST, SEC_OFFSET))
        + abbreviation(2, NAMESPACE, True, (NAME, STRING), (SIBLING, REF4))
        + abbreviation(3, FUNCTION, False, (NAME, STRING), (LOW, ADDR), (HIGH, DATA4))
        + b"\0"
    )
    root = b"\x01" + struct.pack("<I", 0)
    inside = function(b"inner", TEXT) + b"\0"
    space = b"\x02space\0"
    sibling = UNIT_HEADER_BYTES + len(root) + len(space) + 4 + len(inside)
    dies = root + space + struct.pack("<I", sibling) + inside + function(b"outer", TEXT + 16) + b"\0"
    lines = line_program(set_address(TEXT) + ROW + ADVANCE_16 + ROW + ADVANCE_16 + END_SEQUENCE)
    return {"info": unit(dies), "abbrev": abbrev, "line": lines}


@pytest.mark.parametrize("asked", [["space::inner"], ["outer"], ["space::inner", "outer"]])
def test_a_function_in_a_namespace_is_found(asked: list[str]) -> None:
    places = {"space::inner": TEXT + 4, "outer": TEXT + 20}
    wanted = np.array([places[name] for name in asked], np.uint64)
    index = build_code_index(sections(), (TEXT, TEXT + 32), wanted=wanted).index
    nodes = index.range_node[index.lookup(wanted)]
    names = [index.function_name[index.node_function[node]] for node in nodes.tolist()]
    assert [bytes(index.function_text)[at:].partition(b"\0")[0].decode() for at in names] == asked
