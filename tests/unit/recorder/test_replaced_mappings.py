"""Records of mappings, of which one takes another's place."""

import struct

from tdprof.recorder.replaced_mappings import ReplacedMappings


def mapping(pid: int, address: int, length: int, build_id: bytes) -> bytes:
    """PERF_RECORD_MMAP2 of executable memory, with a build-id (linux/perf_event.h)."""
    body = struct.pack("<IIQQQ", pid, pid, address, length, 0)
    body += struct.pack("<B3x20sII", len(build_id), build_id, 5, 2) + b"/lib/some.so\0\0\0\0"
    return struct.pack("<IHH", 10, 2 | 1 << 14, 8 + len(body)) + body


ONE, OTHER = b"\1" * 20, b"\2" * 20


def test_what_covers_another_file_of_the_same_process_is_noticed() -> None:
    mapped = ReplacedMappings()
    assert mapped.look(mapping(7, 0x1000, 0x1000, ONE) + mapping(8, 0x1000, 0x1000, OTHER)) == set()
    assert mapped.look(mapping(7, 0x2000, 0x1000, OTHER) + mapping(7, 0x1000, 0x1000, ONE)) == set()
    assert mapped.look(mapping(7, 0x1800, 0x100, OTHER)) == {7}
    # It is known where it is now.
    assert mapped.look(mapping(7, 0x1800, 0x100, OTHER)) == set()
    assert mapped.look(mapping(7, 0x1000, 0x2000, ONE) + mapping(8, 0x1FFF, 1, ONE)) == {7, 8}
