"""Files that others change while they are read, sparse ones, and what is no file: each in a process of its own, since
what goes wrong here ends the process or keeps it for hours."""

import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builders.captures import write_manifest
from builders.elf import ElfFile, Symbol, with_program_header
from builders.spe_capture import write_spe_capture
from tdprof.capture.manifest import State, read_manifest
from tdprof.linux.file_bytes import FileBytes, open_regular

PATIENCE_S = 300
TERABYTE = 1 << 40
SYMBOLS = [Symbol(f"function_{number}", 0x401000 + number, 1) for number in range(200)]


def python(code: str, *arguments: object, memory_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))

    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, preexec_fn=limit)


def test_a_program_that_is_truncated_while_it_is_read_ends_nobody(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(ElfFile(build_id=b"\xab" * 20, symbols=SYMBOLS, sections={".big": bytes(3 << 20)}).to_bytes())
    result = python(
        """
import os, sys
from tdprof.linux.elf import SHT_SYMTAB, open_elf
from tdprof.symbolize.symbol_table import read_elf_symbols
elf = open_elf(sys.argv[1])
table = read_elf_symbols(elf, SHT_SYMTAB)
os.truncate(sys.argv[1], 0)
assert len(table.names(range(len(table)))) == 200
assert {len(elf.section_data(section)) for section in elf.sections} == {0}
assert elf.build_id == ""
assert len(read_elf_symbols(elf, SHT_SYMTAB)) == 0
""",
        path,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_a_sparse_file_of_notes_is_read_in_no_time(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    data = ElfFile(build_id=b"\xab" * 20).to_bytes()
    path.write_bytes(with_program_header(data, 4, 0x2000, TERABYTE)[:0x1000])
    os.truncate(path, TERABYTE)
    code = """
import sys
from tdprof.linux.elf import open_elf, read_build_id
print([read_build_id(sys.argv[1]), open_elf(sys.argv[1]).build_id])
"""
    assert python(code, path).stdout == "['', '']\n"


def test_a_sparse_section_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "program"
    data = bytearray(ElfFile(build_id=b"\xab" * 20, symbols=SYMBOLS).to_bytes())
    (headers,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    for at in range(headers, headers + 64 * count, 64):
        if struct.unpack_from("<I", data, at + 4)[0] == 2:  # SHT_SYMTAB
            struct.pack_into("<Q", data, at + 32, TERABYTE // 1024)
    path.write_bytes(data)
    os.truncate(path, TERABYTE)
    code = """
import sys
import numpy as np
from tdprof.model.addresses import MappedFile, Unknown
from tdprof.symbolize.symbolizer import Symbolizer
with Symbolizer() as symbolizer:
    found = symbolizer.locate(MappedFile(sys.argv[1], "ab" * 20), np.array([0x1001], np.uint64))
print(Unknown(found.reason[0]).name)
"""
    result = python(code, path, memory_bytes=2 << 30)
    assert (result.stdout, result.stderr) == ("STRIPPED\n", "")


def test_what_lies_between_holes_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        for place in (0, 3 << 20, 9 << 20):
            file.seek(place)
            file.write(b"x" * 5000)
        file.truncate(12 << 20)
    data = FileBytes(open_regular(path))
    assert data.size == 12 << 20
    for offset, size in ((0, 12 << 20), (100, 2 << 20), (4 << 20, 5 << 20), (11 << 20, 1 << 40), (13 << 20, 10)):
        assert bytes(data.read(offset, size)) == path.read_bytes()[offset : offset + size]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, device])
@pytest.mark.parametrize(
    ("name", "status", "told"),
    [
        ("capture.json", 1, "cannot read {}: not a regular file"),
        ("samples.parquet", 1, "cannot read {}: it is damaged (not a regular file)"),
        ("kernel_symbols.parquet", 0, ""),
        ("perf-maps/perf-42.map", 0, ""),
        ("perf-maps/jit-42.dump", 0, ""),
        ("vdso.so", 0, ""),
    ],
)
def test_pipes_and_devices_in_a_capture_are_refused(
    tmp_path: Path, make: Callable[[Path], None], name: str, status: int, told: str
) -> None:
    capture = write_spe_capture(tmp_path / "app.capture")
    (capture / "perf-maps").mkdir(exist_ok=True)
    (capture / name).unlink(missing_ok=True)
    make(capture / name)
    result = python("from tdprof.cli.main import main; main()", "report", capture, memory_bytes=8 << 30)
    assert result.returncode == status, result.stderr
    assert told.format(capture / name) in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("make", [pipe, device])
@pytest.mark.parametrize("name", ["initial.jsonl", "rows.bpf", "stacks.bpf", "ring.0.perf"])
def test_pipes_and_devices_in_a_spool_are_refused(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    capture = write_spe_capture(tmp_path / "app.capture")
    (capture / "spool").mkdir()
    write_manifest(capture, replace(read_manifest(capture), state=State.RECORDING))
    make(capture / "spool" / name)
    result = python("from tdprof.cli.main import main; main()", "report", capture, memory_bytes=8 << 30)
    assert result.returncode == 1
    assert "not a regular file" in result.stderr
    assert "Traceback" not in result.stderr
