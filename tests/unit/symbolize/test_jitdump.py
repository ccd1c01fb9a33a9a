import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.llvm_symbolizer import stacks_with_scopes
from tdprof.capture.spool import SpoolWriter
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.recorder.artefacts import save_run_time_code
from tdprof.symbolize.jitdump import parse_jitdump
from tdprof.symbolize.symbolizer import Symbolizer

HEADER = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 42, 0, 0)


def record(kind: int, body: bytes, time_ns: int = 0) -> bytes:
    return struct.pack("<IIQ", kind, 16 + len(body), time_ns) + body


def load(address: int, size: int, name: str, number: int, time_ns: int = 0) -> bytes:
    body = struct.pack("<IIQQQQ", 42, 42, address, address, size, number) + name.encode() + b"\0" + bytes(size)
    return record(0, body, time_ns)


def move(old: int, new: int, size: int, number: int, time_ns: int = 0) -> bytes:
    return record(1, struct.pack("<IIQQQQQ", 42, 42, new, old, new, size, number), time_ns)


def debug(address: int, *lines: tuple[int, int, bytes]) -> bytes:
    body = struct.pack("<QQ", address, len(lines))
    return record(2, body + b"".join(struct.pack("<QII", at, line, 0) + name + b"\0" for at, line, name in lines))


DUMP = (
    HEADER
    + debug(0x1000, (0x1000, 10, b"app.py"), (0x1010, 11, b"\xff"))
    + load(0x1000, 0x20, "py::main", 1)
    + load(0x2000, 0x20, "py::no_lines", 2)
    + record(3, b"unwinding information")
    + debug(0x3000, (0x3000, 5, b"lib.py"))
    + load(0x3000, 0x10, "py::moving", 3)
    + move(0x3000, 0x4000, 0x10, 3)
    + load(0x2010, 0x10, "py::over_it", 4)
)


def stacks_at(folder, *addresses: int):
    with Symbolizer(perf_map_dir=folder) as symbolizer:
        file = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=42)
        return [stack[0] for stack in stacks_with_scopes(symbolizer.locate(file, np.array(addresses, np.uint64)))]


def test_a_map_beside_a_dump_in_which_nothing_is(tmp_path):
    (tmp_path / "jit-42.dump").write_bytes(HEADER)
    (tmp_path / "perf-42.map").write_text("1000 20 main\n")
    assert stacks_at(tmp_path, 0x1000) == [("main", "??:0")]


def test_names_and_lines(tmp_path):
    (tmp_path / "jit-42.dump").write_bytes(DUMP)
    found = stacks_at(tmp_path, 0x1000, 0x100F, 0x1010, 0x101F, 0x1020, 0x2000, 0x2010, 0x3000, 0x4008)
    assert found == [
        ("py::main", "app.py:10"),
        ("py::main", "app.py:10"),
        ("py::main", "app.py:11"),
        ("py::main", "app.py:11"),
        ("??", "??:0"),
        ("py::no_lines", "??:0"),
        ("py::over_it [or what it replaced: py::no_lines]", "??:0"),
        ("py::moving", "lib.py:5"),
        ("py::moving", "lib.py:5"),
    ]


TIMED = (
    HEADER
    + debug(0x1000, (0x1000, 10, b"app.py"), (0x1010, 11, b"app.py"))
    + load(0x1000, 0x20, "first", 1, 100)
    + load(0x3000, 0x20, "moving", 2, 150)
    + debug(0x1000, (0x1000, 20, b"lib.py"))
    + load(0x1000, 0x20, "second", 3, 200)
    + move(0x3000, 0x1000, 0x20, 2, 300)
)


def at_times(folder: Path, address: int, *intervals: tuple[int, int]) -> list[tuple[str, str]]:
    """What stands at an address where it was sampled within each interval."""
    with Symbolizer(perf_map_dir=folder) as symbolizer:
        versions = symbolizer.code_versions(1000)[42]
    since, until = np.array(intervals, np.uint64).T
    return stacks_at(folder, *versions.places_of(np.full(len(intervals), address, np.uint64), since, until).tolist())


def test_of_what_was_replaced_each_has_its_name_and_lines(tmp_path: Path) -> None:
    (tmp_path / "jit-42.dump").write_bytes(TIMED)
    assert at_times(tmp_path, 0x1010, (150, 150), (250, 250), (350, 350), (150, 250), (110, 199)) == [
        ("first", "app.py:11"),
        ("second", "lib.py:20"),
        ("moving", "??:0"),
        ("second [or what it replaced: first]", "lib.py:20"),
        ("first", "app.py:11"),
    ]


def test_a_function_is_in_one_file(tmp_path: Path) -> None:
    lines = (0x1008, 10, b"app.py"), (0x1010, 99, b"lib.py"), (0x1018, 11, b"app.py")
    (tmp_path / "jit-42.dump").write_bytes(HEADER + debug(0x1000, *lines) + load(0x1000, 0x20, "f", 1))
    assert stacks_at(tmp_path, 0x1000, 0x1008, 0x1010, 0x1018) == [
        ("f", "app.py:0"),
        ("f", "app.py:10"),
        ("f", "app.py:0"),
        ("f", "app.py:11"),
    ]


def v8(address: int, size: int, name: str, number: int, *positions: tuple[int, int, int]) -> bytes:
    """A function and its positions (offset, line, column) as V8 writes them."""
    freed = b"\0\xff/\0" * 4 + b".js"
    entries = [struct.pack("<QII", address + 64 + at, line, column) + freed + b"\0" for at, line, column in positions]
    body = struct.pack("<QQ", address, len(positions)) + b"".join(entries)
    return record(2, body + bytes(-len(body) % 8)) + load(address, size, name, number)


APP, LIB = "/srv/app.js:2:15", "/srv/lib.js:1:27"
# What is at (4, 3) is in both files; nothing but optimized code has (7, 7); Maglev's (5, 5) may be lib.js's.
OF_V8 = (
    HEADER
    + v8(0x1000, 0x20, f"JS:^f {APP}", 1, (0, 3, 5), (2, 4, 3), (4, 5, 5))
    + v8(0x2000, 0x20, f"JS:~g {LIB}", 2, (0, 1, 41), (2, 4, 3))
    + v8(0x3000, 0x80, f"JS:*f {APP}", 3, (0, 3, 5), (16, 1, 41), (32, 5, 5), (48, 4, 3), (64, 7, 7))
    + v8(0x4000, 0x20, f"JS:+f {APP}", 4, (0, 5, 5))
    + debug(0x5000, (0x5040, 1, b"module.wasm"))
    + load(0x5000, 0x20, "wasm-function[0]", 5)
    + load(0x6000, 0x20, f"JS:*f {APP}", 6)
    + v8(0x7000, 0x20, f"JS:h {LIB}", 7, (0, 3, 5))
)


def test_of_v8s_lines_those_are_taken_that_can_be_of_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "jit-42.dump").write_bytes(OF_V8)
    places = stacks_at(tmp_path, 0x1002, 0x3000, 0x300F, 0x3010, 0x3020, 0x3030, 0x3040, 0x307F, 0x4000, 0x6000)
    assert {name for name, _ in places} == {f"JS:f {APP}"}
    assert [place.removeprefix("/srv/app.js:") for _, place in places] == [*"0330500000"]
    assert stacks_at(tmp_path, 0x5000) == [("wasm-function[0]", "??:0")]


@settings(deadline=None)
@given(at=st.integers(len(HEADER), len(OF_V8) - 1), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_damaged_dumps_of_v8_are_no_error(at: int, byte: int, cut: int) -> None:
    data = bytearray(OF_V8)
    data[at] = byte
    parse_jitdump(bytes(data[: len(data) - cut]))


def test_times_of_another_clock_tell_nothing(tmp_path: Path) -> None:
    arch_timestamp = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 42, 0, 1)
    since_1970 = load(0x1000, 0x20, "first", 1, 1 << 60) + load(0x1000, 0x20, "second", 2, 1 << 61)
    for dump in (arch_timestamp + TIMED[len(HEADER) :], HEADER + since_1970):
        (tmp_path / "jit-42.dump").write_bytes(dump)
        with Symbolizer(perf_map_dir=tmp_path) as symbolizer:
            assert symbolizer.code_versions(1000) == {}


def test_a_dump_that_is_cut_off_keeps_what_stands_before(tmp_path):
    for length in range(len(HEADER), len(DUMP)):
        parse_jitdump(DUMP[:length])
    (tmp_path / "jit-42.dump").write_bytes(DUMP[:-5])
    assert stacks_at(tmp_path, 0x2010) == [("py::no_lines", "??:0")]


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, len(DUMP)))
def test_any_bytes_are_read_or_refused(noise, position):
    parse_jitdump(DUMP[:position] + noise if position >= len(HEADER) else HEADER + noise)


def test_only_what_looks_like_a_dump_is_copied(tmp_path):
    dump = tmp_path / "jit-7.dump"
    dump.write_bytes(DUMP)
    other = tmp_path / "secret"
    other.write_bytes(b"x")
    (tmp_path / "jit-8.dump").symlink_to(other)
    target = tmp_path / "capture"
    target.mkdir()
    mapped = [(7, str(dump)), (7, str(dump)), (8, str(tmp_path / "jit-8.dump")), (9, str(other))]
    with OwnFolder.open(target) as folder:
        assert save_run_time_code(folder, [], mapped) == [
            f"{tmp_path}/jit-8.dump of process 8 is not used: not a regular file"
        ]
    assert [path.name for path in target.rglob("*.*")] == ["jit-7.dump"]


def test_a_dump_whose_name_has_a_thread_too_is_the_process_s(tmp_path: Path) -> None:
    dump, target = tmp_path / "jit-6-7.dump", tmp_path / "capture"
    dump.write_bytes(DUMP)
    target.mkdir()
    with OwnFolder.open(target) as folder:
        assert save_run_time_code(folder, [], [(7, str(dump))]) == []
    assert [path.name for path in target.rglob("*.*")] == ["jit-7.dump"]


def test_a_dump_for_which_a_segment_has_no_room_is_not_copied(tmp_path: Path) -> None:
    dump, target = tmp_path / "jit-7.dump", tmp_path / "capture"
    dump.write_bytes(DUMP)
    target.mkdir()
    with OwnFolder.open(target) as folder, SpoolWriter(folder, len(DUMP) - 1):
        assert save_run_time_code(folder, [], [(7, str(dump))]) == [
            f"{dump} of process 7 is not used: too large to be kept"
        ]
    assert not list(target.rglob("jit-7.dump"))


@pytest.mark.parametrize("name", ["jit-42.dump", "perf-42.map"])
def test_a_file_too_large_to_be_one_is_not_read_and_that_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 1 << 42)
    with Symbolizer(perf_map_dir=tmp_path) as symbolizer:
        file = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=42)
        assert not len(symbolizer.locate(file, np.array([0x1000], np.uint64)).function)
        assert symbolizer.notes() == ["run-time code of process 42: its file cannot be read, or is too large"]
