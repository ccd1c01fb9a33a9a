import json
import os
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.elf import ElfFile, Symbol
from builders.llvm_symbolizer import our_stacks
from builders.programs import compile_program
from tdprof.linux.elf import PF_X, open_elf, read_build_id
from tdprof.model.addresses import MappedFile
from tdprof.native.library import load_native
from tdprof.symbolize import dwarf
from tdprof.symbolize.cache import _TEXT_COLUMNS, CachedSymbols, SymbolCache
from tdprof.symbolize.code_index import CodeIndex
from tdprof.symbolize.symbol_table import SymbolTable
from tdprof.symbolize.symbolizer import Symbolizer

needs_native = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")


@pytest.fixture
def cache(tmp_path) -> SymbolCache:
    return SymbolCache(tmp_path / "cache")


@pytest.fixture
def program(tmp_path) -> Path:
    return compile_program(tmp_path, "gcc", "-O2", "-g")


def text_offsets(path: Path) -> np.ndarray:
    (text,) = [s for s in open_elf(path).segments if s.type == 1 and s.flags & PF_X]
    return np.arange(text.offset, text.offset + text.file_size, 3, dtype=np.uint64)


def stacks(path: Path, cache: SymbolCache | None, part: slice = slice(None)) -> list:
    with Symbolizer(cache=cache) as symbolizer:
        file = MappedFile(str(path), read_build_id(path))
        return our_stacks(symbolizer.locate(file, text_offsets(path)[part]))


@needs_native
def test_second_look_up_reads_the_cache_and_says_the_same(program, cache, monkeypatch):
    expected = stacks(program, None)
    assert stacks(program, cache) == expected
    (entry,) = cache.entries()
    assert entry.build_id == read_build_id(program)
    monkeypatch.setattr(dwarf, "build_code_index", lambda *a, **k: pytest.fail("debug data was read again"))
    assert stacks(program, cache) == expected


@needs_native
def test_other_addresses_make_it_complete(program, cache, monkeypatch):
    expected = stacks(program, None)
    stacks(program, cache, slice(0, 5))
    assert stacks(program, cache) == expected
    monkeypatch.setattr(dwarf, "build_code_index", lambda *a, **k: pytest.fail("debug data was read again"))
    assert stacks(program, cache, slice(5, None)) == expected[5:]


@needs_native
def test_changed_debug_data_is_read_again(program, cache):
    stacks(program, cache)
    source = program.stat()
    os.utime(program, ns=(source.st_atime_ns, source.st_mtime_ns + 1))
    calls = []
    real = dwarf.build_code_index
    with pytest.MonkeyPatch.context() as patch:

        def counted(*arguments, **options):
            calls.append(1)
            return real(*arguments, **options)

        patch.setattr(dwarf, "build_code_index", counted)
        stacks(program, cache)
    assert calls == [1]


@needs_native
def test_damage_anywhere_is_a_miss(program, cache):
    expected = stacks(program, cache)
    path = cache.entries()[0].path
    good = path.read_bytes()
    header = int.from_bytes(good[8:16], "little")
    for position in [*range(0, header, 37), *range(header, len(good), len(good) // 40)]:
        bad = bytearray(good)
        bad[position] ^= 0x55
        path.write_bytes(bad)
        assert stacks(program, cache) == expected, position
    for length in (0, 5, 16, header, len(good) // 2, len(good) - 100):
        path.write_bytes(good[:length])
        assert stacks(program, cache) == expected, length


@needs_native
def test_every_bit_of_the_header_counts(program, cache):
    stacks(program, cache)
    (entry,) = cache.entries()
    good = entry.path.read_bytes()
    source = json.loads(good[24 : good.index(b"}}") + 2])["source"]
    assert cache.load(entry.build_id, source) is not None
    with entry.path.open("r+b", buffering=0) as file:
        for bit in range(8 * (good.index(b"}}") + 2)):
            if 160 <= bit < 192:
                continue  # four bytes that say nothing
            place = bit // 8
            os.pwrite(file.fileno(), bytes([good[place] ^ 1 << bit % 8]), place)
            assert cache.load(entry.build_id, source) is None, bit
            os.pwrite(file.fileno(), good[place : place + 1], place)
    assert cache.load(entry.build_id, source) is not None


@needs_native
def test_what_was_kept_of_another_executable_is_not_used(program, cache):
    stacks(program, cache)
    (entry,) = cache.entries()
    data = entry.path.read_bytes()
    source = json.loads(data[24 : data.index(b"}}") + 2])["source"]
    other = cache.folder / "ab" / "cdef.tds"
    other.parent.mkdir(exist_ok=True)
    entry.path.rename(other)
    assert cache.load("abcdef", source) is None


@needs_native
def test_unwritable_folder_only_costs_time(program, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert stacks(program, SymbolCache(tmp_path / "file" / "cache")) == stacks(program, None)


def test_pruning_removes_what_was_used_longest_ago(cache):
    for number in range(4):
        path = cache.folder / f"0{number}" / "abcdef0123.tds"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(100))
        os.utime(path, (1000 + number, 1000 + number))
    (cache.folder / "00" / "notes.txt").write_text("not ours")
    removed = cache.prune(250)
    assert [entry.build_id for entry in removed] == ["00abcdef0123", "01abcdef0123"]
    assert [entry.build_id for entry in cache.entries()] == ["02abcdef0123", "03abcdef0123"]
    assert (cache.folder / "00" / "notes.txt").exists()


def test_without_debug_data_nothing_is_kept(tmp_path, cache):
    path = tmp_path / "a"
    path.write_bytes(ElfFile(symbols=[Symbol("f", 0x401000, 16)], build_id=b"\1" * 20).to_bytes())
    assert stacks(path, cache)[0] == [("f", "??:0")]
    assert cache.entries() == []


@needs_native
def test_the_header_is_as_documented(program, cache):
    stacks(program, cache)
    data = cache.entries()[0].path.read_bytes()
    assert data[:8] == b"TDSYM\0\0\7"
    text = data[24 : 24 + int.from_bytes(data[8:16], "little")]
    assert zlib.crc32(text) == int.from_bytes(data[16:20], "little")
    header = json.loads(text)
    assert set(header) == {"build_id", "source", "is_complete", "columns"}
    assert header["build_id"] == read_build_id(program)
    assert all(offset % 64 == 0 for _, offset, _, _ in header["columns"].values())


def test_a_file_without_rows_is_as_exact_about_its_length(tmp_path):
    """A header of which all columns are empty ends the file, and a longer one would end there, too."""
    nothing = np.zeros(0, np.uint64)

    def without_rows(kind: Any) -> Any:
        return kind(**{field.name: b"" if field.name in _TEXT_COLUMNS else nothing for field in fields(kind)})

    table, index = without_rows(SymbolTable), without_rows(CodeIndex)
    cache = SymbolCache(tmp_path / "cache")
    cache.store("abcdef01", CachedSymbols("source", table, index, is_complete=True, asked=None))
    (entry,) = cache.entries()
    good = entry.path.read_bytes()
    assert cache.load("abcdef01", "source") is not None
    for bit in range(64, 128):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        entry.path.write_bytes(bad)
        assert cache.load("abcdef01", "source") is None, bit
