"""Whether records in a ring say that AUX data was lost."""

import ctypes
import struct

import pytest

from tdprof.linux.perf_abi import RecordType
from tdprof.native.library import load_native

TRUNCATED, COLLISION = 1, 8


def record(kind: RecordType, body: bytes) -> bytes:
    return struct.pack("<IHH", kind, 0, 8 + len(body)) + body


def aux(flags: int) -> bytes:
    return record(RecordType.AUX, struct.pack("<QQQ", 0, 64, flags) + bytes(32))


SWITCH = record(RecordType.SWITCH, bytes(32))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (b"", False),
        (SWITCH + aux(0) + aux(COLLISION), False),
        (SWITCH + aux(0) + aux(TRUNCATED | COLLISION), True),
        # Of what was lost, any may have been one.
        (aux(0) + record(RecordType.LOST, bytes(16)), True),
        # Nothing is read beyond what is no record: cut, too short for its kind, or of no size.
        (aux(TRUNCATED)[:-1], False),
        (record(RecordType.AUX, bytes(8)) + SWITCH, False),
        (bytes(8) + aux(TRUNCATED), False),
    ],
)
def test_a_stopped_event_is_noticed(records: bytes, expected: bool) -> None:
    native = load_native()
    if native is None:
        pytest.skip("the compiled code is not built")
    exact = (ctypes.c_char * max(len(records), 1)).from_buffer_copy(records or b"\0")
    assert bool(native.tdprof_has_aux_flags(exact, len(records), TRUNCATED)) is expected
