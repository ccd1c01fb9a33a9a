import ctypes
import itertools
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from builders.elf import ElfFile, Symbol
from builders.programs import compile_program
from tdprof.linux.elf import SHT_SYMTAB, open_elf, read_build_id
from tdprof.model.addresses import FileKind, Locations, MappedFile, Unknown
from tdprof.symbolize.kernel_symbols import KernelSymbols
from tdprof.symbolize.symbol_table import read_elf_symbols
from tdprof.symbolize.symbolizer import Symbolizer


def offsets(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def leaf_names(locations: Locations) -> list[str]:
    """The innermost function of each address, or the reason that there is none."""
    starts = locations.frame_start.tolist()
    return [
        locations.strings[locations.function[a]] if b > a else Unknown(locations.reason[i]).name
        for i, (a, b) in enumerate(itertools.pairwise(starts))
    ]


@pytest.fixture
def program(tmp_path) -> Path:
    path = tmp_path / "program"
    symbols = [Symbol("alpha", 0x401000, 0x10), Symbol("beta", 0x401010, 0x10)]
    path.write_bytes(ElfFile(symbols=symbols, build_id=b"\x11" * 20).to_bytes())
    return path


def test_file_offsets_become_functions_in_the_order_given(program):
    with Symbolizer() as symbolizer:
        found = symbolizer.locate(MappedFile(str(program), "11" * 20), offsets(0x1018, 0x1000, 0x1020, 0x5000, 0x1010))
    assert leaf_names(found) == ["beta", "alpha", "NO_SYMBOL", "NO_SYMBOL", "beta"]
    assert found.file.tolist() == [-1, -1, -1]
    assert found.line.tolist() == [0, 0, 0]


def test_symbols_that_are_left_out_are_said(tmp_path: Path) -> None:
    path = tmp_path / "program"
    elf = ElfFile(dynamic_symbols=[Symbol("api", 0x401000, 4)], sections={".gnu_debugdata": b"no xz stream"})
    path.write_bytes(elf.to_bytes())
    with Symbolizer() as symbolizer:
        assert leaf_names(symbolizer.locate(MappedFile(str(path)), offsets(0x1000))) == ["api"]
        (note,) = symbolizer.notes()
    assert note.startswith(f"{path}: .gnu_debugdata cannot be uncompressed")


def test_where_memory_ends_the_rest_is_reported(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tdprof.symbolize.symbolizer.ElfSymbols", no_memory)
    with Symbolizer() as symbolizer:
        found = symbolizer.locate(MappedFile(str(program), "11" * 20), offsets(0x1000))
        assert leaf_names(found) == ["NO_SYMBOL"]
        assert symbolizer.notes() == [f"{program}: reading its symbols takes more memory than there is"]


def test_no_file_is_taken_for_missing_because_too_many_are_open(program: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    with Symbolizer() as symbolizer:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                symbolizer.locate(MappedFile(str(program), "11" * 20), offsets(0x1000))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_replaced_file_is_never_used(program):
    with Symbolizer() as symbolizer:
        found = symbolizer.locate(MappedFile(str(program), "22" * 20), offsets(0x1000))
    assert leaf_names(found) == ["WRONG_BUILD_ID"]


def test_what_is_no_build_id_is_part_of_no_path(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "tdprof.symbolize.symbolizer.open_elf", lambda path, **more: opened.append(str(path)) or open_elf(path, **more)
    )
    for build_id in ("../../../etc/passwd", "/etc/passwd", "ab", "abcg"):
        with Symbolizer(carried_files=tmp_path / "files", debug_dirs=[tmp_path / "debug"]) as symbolizer:
            found = symbolizer.locate(MappedFile("/no/such/program", build_id), offsets(0x1000))
        assert leaf_names(found) == ["NO_FILE"]
    assert set(opened) == {"/no/such/program"}


def test_a_deleted_file_without_build_id_is_not_taken_for_its_successor(program):
    with Symbolizer() as symbolizer:
        deleted = MappedFile(f"{program} (deleted)")
        assert leaf_names(symbolizer.locate(deleted, offsets(0x1000))) == ["WRONG_BUILD_ID"]
        known = MappedFile(f"{program} (deleted)", "11" * 20)
        assert leaf_names(symbolizer.locate(known, offsets(0x1000))) == ["alpha"]


def test_what_was_an_elf_file_when_it_was_recorded_and_is_none_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"hello\n" * 100)
    with Symbolizer() as symbolizer:
        file = MappedFile(str(tmp_path / "text"), "ab" * 20)
        assert symbolizer.locate(file, offsets(0x1000)).reason.tolist() == [Unknown.DAMAGED]
        assert symbolizer.notes() == [f"{file.path}: cannot be read: not an ELF file"]


def test_reasons(tmp_path, program):
    text = tmp_path / "text"
    text.write_bytes(b"hello\n" * 100)
    stripped = tmp_path / "stripped"
    stripped.write_bytes(ElfFile(dynamic_symbols=[Symbol("api", 0x401000, 4)]).to_bytes())
    assembly = tmp_path / "Service.dll"
    assembly.write_bytes(b"MZ" + bytes(510))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(program.read_bytes()[:-1000])
    with Symbolizer() as symbolizer:
        for path, names in (
            (tmp_path / "none", ["NO_FILE"]),
            (text, ["STRIPPED"]),
            (stripped, ["api", "STRIPPED"]),
            (assembly, ["STRIPPED"]),
            (damaged, ["DAMAGED"]),
        ):
            found = symbolizer.locate(MappedFile(str(path)), offsets(0x1000, 0x1800)[: len(names)])
            assert leaf_names(found) == names


def test_without_the_compiled_part_functions_are_named_and_the_rest_is_said_to_be_missing(tmp_path, monkeypatch):
    path = compile_program(tmp_path, "gcc", "-O2", "-g")
    monkeypatch.setattr("tdprof.symbolize.dwarf.load_native", lambda: None)
    table = read_elf_symbols(open_elf(path), SHT_SYMTAB)
    (row,) = [row for row, name in enumerate(table.names(range(len(table)))) if name == "work"]
    (text,) = [segment for segment in open_elf(path).segments if segment.type == 1 and segment.flags & 1]
    place = int(table.start[row]) - text.address + text.offset
    with Symbolizer() as symbolizer:
        found = symbolizer.locate(MappedFile(str(path), read_build_id(path)), offsets(place))
        assert leaf_names(found) == ["work"]
        assert found.line.tolist() == [0]
        assert any("compiled part was not built" in note for note in symbolizer.notes())


def test_symfs_holds_the_recorded_machines_files(tmp_path, program):
    root = tmp_path / "sysroot"
    (root / "opt").mkdir(parents=True)
    shutil.copy(program, root / "opt/program")
    with Symbolizer(symfs=root) as symbolizer:
        assert leaf_names(symbolizer.locate(MappedFile("/opt/program"), offsets(0x1000))) == ["alpha"]
        assert leaf_names(symbolizer.locate(MappedFile(str(program)), offsets(0x1000))) == ["NO_FILE"]


@pytest.mark.parametrize("place", [".build-id/ab/cdef", ".build-id/ab/cdef/elf"])
@pytest.mark.parametrize("has_symfs", [False, True])
def test_a_debug_folder_may_have_the_program_itself(tmp_path, place, has_symfs):
    content = ElfFile(symbols=[Symbol("alpha", 0x401000, 16)], build_id=bytes.fromhex("abcdef")).to_bytes()
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_bytes(content)
    with Symbolizer(debug_dirs=[tmp_path], symfs=tmp_path / "none" if has_symfs else None) as symbolizer:
        assert leaf_names(symbolizer.locate(MappedFile("/opt/gone", "abcdef"), offsets(0x1000))) == ["alpha"]
        other = MappedFile("/opt/gone", "abcd00")
        assert leaf_names(symbolizer.locate(other, offsets(0x1000))) == ["NO_FILE"]


def test_kernel_and_module_symbols():
    kernel = KernelSymbols(
        address=offsets(0xFFFF800000001000, 0xFFFF800000000000, 0xFFFF800100000000),
        size=offsets(0, 0, 0x20),
        name=["schedule", "_stext", "nf_hook"],
        module=["", "", "nf_conntrack"],
    )
    file = MappedFile("[kernel]", kind=FileKind.KERNEL)
    with Symbolizer(kernel=kernel) as symbolizer:
        found = symbolizer.locate(
            file, offsets(0xFFFF800000001004, 0xFFFF800000000FFF, 0xFFFF80010000001F, 0xFFFF800100000020, 0)
        )
    assert leaf_names(found) == ["schedule", "_stext", "nf_hook [nf_conntrack]", "NO_SYMBOL", "NO_SYMBOL"]


@pytest.mark.parametrize(
    "kernel", [None, KernelSymbols(offsets(0, 0), offsets(0, 0), ["schedule", "nf_hook"], ["", ""])]
)
def test_hidden_kernel_symbols(kernel):
    with Symbolizer(kernel=kernel) as symbolizer:
        found = symbolizer.locate(MappedFile("[kernel]", kind=FileKind.KERNEL), offsets(0xFFFF800000001004))
    assert leaf_names(found) == ["HIDDEN_KERNEL"]


def test_perf_map(tmp_path):
    (tmp_path / "perf-42.map").write_bytes(
        b"7f0000000000 40 LazyCompile:~add /srv/app.js:3\n"
        b"garbage line\n"
        b"0x7f0000000040 0x10 py::main:/srv/app.py\n"
        b"7f0000000000 20 replaced later\n"
        b"7f0000000080 2"  # half-written
    )
    with Symbolizer(perf_map_dir=tmp_path) as symbolizer:
        file = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=42)
        found = symbolizer.locate(file, offsets(0x7F0000000000, 0x7F0000000020, 0x7F0000000048, 0x7F0000000080))
        assert leaf_names(found) == [
            "replaced later [or what it replaced: LazyCompile:add /srv/app.js:3]",
            "LazyCompile:add /srv/app.js:3",
            "py::main:/srv/app.py",
            "NO_SYMBOL",
        ]
        other = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=43)
        assert leaf_names(symbolizer.locate(other, offsets(0x7F0000000000))) == ["NO_PERF_MAP"]


def test_vdso(tmp_path):
    with open("/proc/self/maps") as maps:
        start, end = next((line.split()[0].split("-") for line in maps if "[vdso]" in line), (None, None))
    assert start is not None
    assert end is not None
    image = tmp_path / "vdso.so"
    image.write_bytes(ctypes.string_at(int(start, 16), int(end, 16) - int(start, 16)))
    listing = subprocess.run(["readelf", "-sW", "--dyn-syms", image], capture_output=True, text=True, check=True).stdout
    row = next(line.split() for line in listing.splitlines() if "clock_gettime" in line)
    file = MappedFile("[vdso]", read_build_id(image), FileKind.VDSO)
    with Symbolizer(vdso=image) as symbolizer:
        (name,) = leaf_names(symbolizer.locate(file, offsets(int(row[1], 16) + 1)))
    assert "clock_gettime" in name


@pytest.mark.skipif(not os.path.exists("/usr/bin/nm"), reason="needs nm")
def test_own_interpreter_agrees_with_nm():
    path = os.path.realpath(sys.executable)
    listing = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    (address,) = [int(line.split()[0], 16) for line in listing.splitlines() if line.endswith(" T PyObject_Repr")]
    headers = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    loads = [line.split() for line in headers.splitlines() if line.split()[:1] == ["LOAD"]]
    file_offset = next(
        address - int(row[2], 16) + int(row[1], 16)
        for row in loads
        if int(row[2], 16) <= address < int(row[2], 16) + int(row[4], 16)
    )
    with Symbolizer() as symbolizer:
        found = symbolizer.locate(MappedFile(path, read_build_id(path)), offsets(file_offset + 2))
    assert leaf_names(found) == ["PyObject_Repr"]


def test_an_empty_batch(program):
    with Symbolizer() as symbolizer:
        found = symbolizer.locate(MappedFile(str(program)), offsets())
    assert found.frame_start.tolist() == [0]
