"""Dumps of code made at run time, of which some takes other code's place."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdprof.recorder import code_dumps
from tdprof.recorder.code_dumps import DumpedCode, dumps_mapped

HEADER = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 42, 0, 0)


def load(address: int, size: int, name: bytes) -> bytes:
    body = struct.pack("<IIQQQQ", 42, 42, address, address, size, 1) + name + b"\0" + bytes(size)
    return struct.pack("<IIQ", 0, 16 + len(body), 5) + body


def move(old: int, new: int, size: int) -> bytes:
    return struct.pack("<IIQIIQQQQQ", 1, 64, 5, 42, 42, new, old, new, size, 1)


def mapping(pid: int, path: bytes) -> bytes:
    """PERF_RECORD_MMAP2 of executable memory, without a build-id (linux/perf_event.h)."""
    path += b"\0" * (8 - len(path) % 8)
    body = struct.pack("<IIQQQIIQQII", pid, pid, 0x1000, 0x1000, 0, 8, 1, 2, 3, 5, 2) + path
    return struct.pack("<IHH", 10, 2, 8 + len(body)) + body


class Dump:
    def __init__(self, path: Path) -> None:
        self.path, self.code = path, DumpedCode()
        path.touch()

    def appended(self, data: bytes) -> bool:
        with self.path.open("ab") as file:
            file.write(data)
        fd = os.open(self.path, os.O_RDONLY)
        try:
            return self.code.read_on(fd)
        finally:
            os.close(fd)


def test_code_of_another_name_takes_the_place(tmp_path: Path) -> None:
    dump = Dump(tmp_path / "jit-42.dump")
    assert not dump.appended(HEADER[:7])
    assert not dump.appended(HEADER[7:] + load(0x1000, 0x20, b"f") + load(0x1020, 0x2000, b"g"))
    assert not dump.appended(load(0x1000, 0x20, b"f"))  # the same once more
    assert dump.appended(load(0x101F, 2, b"h"))
    assert not dump.appended(load(0x101F, 2, b"h"))
    half = load(0x1020, 0x20, b"other")
    assert not dump.appended(half[:-1])
    assert not dump.appended(b"")
    assert dump.appended(half[-1:])
    assert not dump.appended(move(0x1020, 0x8000, 0x20))
    assert dump.appended(move(0x8000, 0x1030, 0x20))
    assert not dump.appended(load(0x1000, 0, b"nothing"))
    assert not dump.appended(struct.pack("<IIQ", 0, 3, 0) + load(0x1000, 0x20, b"behind the damage"))


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_to_an_end(tmp_path_factory: pytest.TempPathFactory, noise: bytes, has_header: bool) -> None:
    Dump(tmp_path_factory.mktemp("dump") / "jit-1.dump").appended(HEADER * has_header + noise)


def test_records_tell_of_dumps() -> None:
    records = mapping(7, b"/tmp/jit-7.dump") + mapping(8, b"/tmp/jit-8.dump.so") + mapping(9, b"/x/.debug/jit-9.dump")
    records += mapping(5, b"/tmp/jit-6-5.dump")
    assert list(dumps_mapped(records)) == [
        (7, "/tmp/jit-7.dump"),
        (9, "/x/.debug/jit-9.dump"),
        (5, "/tmp/jit-6-5.dump"),
    ]
    for end in range(len(records)):
        list(dumps_mapped(records[:end]))


def test_a_dump_that_grows_on_and_on_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_dumps, "_MOST_RECORDS", 10)
    dump = Dump(tmp_path / "jit-42.dump")
    assert not dump.appended(HEADER + struct.pack("<IIQ", 9, 16, 0) * 8 + load(0x1000, 8, b"f"))
    assert dump.appended(load(0x1000, 8, b"g"))
    assert not dump.appended(load(0x1000, 8, b"h"))
    assert (dump.code.position, dump.code.records) == (-1, 11)
