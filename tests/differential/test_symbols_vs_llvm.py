"""Every byte of every function of real binaries: the same stack as llvm-symbolizer's."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from builders.llvm_symbolizer import Stack, llvm_stacks, our_stacks, share_of_equal
from builders.programs import compile_program, need
from tdprof.linux.elf import PF_X, PT_LOAD, SHT_SYMTAB, open_elf, read_build_id
from tdprof.model.addresses import Locations, MappedFile
from tdprof.native.library import load_native
from tdprof.symbolize.code_extents import read_extents
from tdprof.symbolize.symbol_table import read_elf_symbols
from tdprof.symbolize.symbolizer import Symbolizer

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")

EQUAL = 0.995  # the project's goal; what differs is explained in docs/symbols.md
MOST_ADDRESSES = 4000


def function_addresses(path: Path) -> np.ndarray:
    """Addresses inside the file's functions: all, or an even selection.

    A function without a size ends where its call-frame information does; LLVM gives it the padding behind, too.
    """
    elf = open_elf(path)
    table = read_elf_symbols(elf, SHT_SYMTAB, lambda: read_extents(elf))
    pairs = zip(table.start.tolist(), table.end.tolist(), strict=True)
    every = np.unique(np.concatenate([np.arange(a, b, dtype=np.uint64) for a, b in pairs if b > a]))
    return every[:: max(1, len(every) // MOST_ADDRESSES)]


def file_offsets(path: Path, addresses: np.ndarray) -> np.ndarray:
    (text,) = [s for s in open_elf(path).segments if s.type == PT_LOAD and s.flags & PF_X]
    return addresses - np.uint64(text.address) + np.uint64(text.offset)


def locate(path: Path, addresses: np.ndarray, **options) -> Locations:
    with Symbolizer(**options) as symbolizer:
        return symbolizer.locate(MappedFile(str(path), read_build_id(path)), file_offsets(path, addresses))


def check(path: Path, theirs: list[Stack], addresses: np.ndarray, **options) -> None:
    ours = our_stacks(locate(path, addresses, **options))
    different = [(hex(a), o, t) for a, o, t in zip(addresses.tolist(), ours, theirs, strict=True) if o != t]
    assert share_of_equal(ours, theirs) >= EQUAL, different[:5]
    empty = [d for d in different if d[1][0][0] == "??" and d[2][0][0] != "??"]
    assert not empty, empty[:5]
    if "O0" not in path.name:
        assert max(map(len, ours)) >= 3, "the program was to have inlined calls"


@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++", "aarch64-linux-gnu-gcc"])
def test_compilers_and_versions(tmp_path, compiler, version):
    path = compile_program(tmp_path, compiler, "-O2", "-g", version)
    addresses = function_addresses(path)
    check(path, llvm_stacks(path, addresses.tolist()), addresses)


def test_rust(tmp_path):
    path = compile_program(tmp_path, "rustc", "-O", "-g", "-Csymbol-mangling-version=v0")
    addresses = function_addresses(path)
    check(path, llvm_stacks(path, addresses.tolist()), addresses)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "flags",
    [
        ["-ffunction-sections", "-Wl,--gc-sections"],
        ["-flto"],
        ["-gz=zlib"],
        ["-gz=zlib-gnu"],
        ["-no-pie"],
        ["-O0"],
        ["-g1"],
        ["-gdwarf64"],
        ["-gdwarf-3"],
    ],
    ids=" ".join,
)
def test_ways_to_build(tmp_path, flags):
    path = compile_program(tmp_path, "g++", "-O2", "-g", *flags)
    addresses = function_addresses(path)
    # What llvm-symbolizer 14 cannot read is compared in its uncompressed form.
    plain = tmp_path / "plain"
    subprocess.run(["objcopy", "--decompress-debug-sections", path, plain], check=True)
    check(path, llvm_stacks(plain, addresses.tolist()), addresses)


SHARED_HEADER = """
#include <string>
#include <vector>
template <class T> struct Holder {
    std::vector<T> items;
    void __attribute__((noinline)) add(T item) { if (items.size() > 1000) throw 1; items.push_back(item); }
    T __attribute__((noinline)) sum() const { T total{}; for (const auto &item : items) total += item; return total; }
};
inline int __attribute__((noinline)) count(const std::string &s) { return s.empty() ? throw 2 : (int)s.size(); }
"""


def test_line_sequences_of_discarded_comdat_functions(tmp_path):
    """GNU ld keeps the line programs of the copies it discards, with DW_LNE_set_address 0, some twice in a sequence:
    readers that glue those to the next sequence lose the lines of real code."""
    (tmp_path / "shared.h").write_text(SHARED_HEADER)
    for number in range(6):
        uses = f"Holder<int> a; a.add({number}); Holder<std::string> b; b.add(std::to_string(a.sum()));"
        source = f'#include "shared.h"\nint unit{number}() {{ {uses} return count(b.sum()); }}\n'
        (tmp_path / f"unit{number}.cc").write_text(source)
    calls = "".join(f"int unit{n}(); " for n in range(6))
    (tmp_path / "main.cc").write_text(f"{calls} int main() {{ return {' + '.join(f'unit{n}()' for n in range(6))}; }}")
    path = tmp_path / "program"
    objects = []
    for number, source in enumerate(sorted(tmp_path.glob("*.cc"))):
        # Copies of one size would be pointed at the one that is kept: half of the units make theirs smaller.
        level = "-Os" if number % 2 else "-O2"
        objects.append(source.with_suffix(".o"))
        subprocess.run([need("g++"), level, "-g", "-c", source, "-o", objects[-1]], check=True, cwd=tmp_path)
    subprocess.run(["g++", "-o", path, *objects], check=True)
    elf = open_elf(path)
    lines = elf.section(".debug_line")
    assert lines is not None
    assert bytes(elf.section_data(lines)).count(b"\0\x09\x02" + bytes(8)) >= 10, "nothing was discarded"
    addresses = function_addresses(path)
    check(path, llvm_stacks(path, addresses.tolist()), addresses)


def split_debug(path: Path, debug: Path) -> None:
    debug.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["objcopy", "--only-keep-debug", path, debug], check=True)
    subprocess.run(["objcopy", "--strip-all", path], check=True)


def test_debug_data_by_build_id(tmp_path):
    path = compile_program(tmp_path, "g++", "-O2", "-g")
    addresses = function_addresses(path)
    theirs = llvm_stacks(path, addresses.tolist())
    build_id = read_build_id(path)
    split_debug(path, tmp_path / "debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug")
    check(path, theirs, addresses, debug_dirs=[tmp_path / "debug"])


@pytest.mark.parametrize("folder", [".", ".debug"])
def test_debug_data_by_link_and_crc(tmp_path, folder):
    path = compile_program(tmp_path, "g++", "-O2", "-g", "-Wl,--build-id=none")
    addresses = function_addresses(path)
    theirs = llvm_stacks(path, addresses.tolist())
    debug = tmp_path / folder / "program.debug"
    split_debug(path, debug)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", path], check=True)
    check(path, theirs, addresses)
    debug.write_bytes(debug.read_bytes() + b"\0")  # another file of that name: the checksum differs
    assert {stack[0][0] for stack in our_stacks(locate(path, addresses))} == {"??"}


def test_debug_data_shared_by_dwz(tmp_path):
    need("dwz")
    path = compile_program(tmp_path, "g++", "-O2", "-g")
    addresses = function_addresses(path)
    theirs = llvm_stacks(path, addresses.tolist())
    shutil.copy(path, tmp_path / "second")
    subprocess.run(["dwz", "-m", tmp_path / "common.debug", "-r", path, tmp_path / "second"], check=True)
    assert open_elf(path).section(".gnu_debugaltlink") is not None
    check(path, theirs, addresses)


@pytest.mark.thorough
@pytest.mark.parametrize("packed", [False, True], ids=["dwo", "dwp"])
@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_split_units(tmp_path, compiler, version, packed):
    path = compile_program(tmp_path, compiler, "-O2", "-g", version, "-gsplit-dwarf")
    addresses = function_addresses(path)
    theirs = llvm_stacks(path, addresses.tolist())
    splits = list(tmp_path.glob("*.dwo"))
    assert splits
    if packed:
        subprocess.run([need("llvm-dwp"), "-e", path, "-o", f"{path}.dwp"], check=True, cwd=tmp_path)
        for split in splits:
            split.unlink()
    check(path, theirs, addresses)


def test_mini_debug_info(tmp_path):
    path = compile_program(tmp_path, "gcc", "-O2", "-rdynamic")
    addresses = function_addresses(path)
    theirs = llvm_stacks(path, addresses.tolist())
    mini = tmp_path / "mini"
    subprocess.run(["objcopy", "-S", "--keep-symbol=checked", path, mini], check=True)
    subprocess.run(["xz", mini], check=True)
    subprocess.run(["strip", path], check=True)
    subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={mini}.xz", path], check=True)
    named = {s[0][0] for s in theirs if s[0][0] in ("checked", "work", "main")}
    ours = our_stacks(locate(path, addresses))
    for our, their in zip(ours, theirs, strict=True):
        if their[0][0] in named:
            assert our[0][0] == their[0][0]


def test_one_address_after_the_other_gives_the_same(tmp_path):
    path = compile_program(tmp_path, "g++", "-O2", "-g")
    addresses = function_addresses(path)
    whole = our_stacks(locate(path, addresses))
    offsets = file_offsets(path, addresses)
    file = MappedFile(str(path), read_build_id(path))
    with Symbolizer() as symbolizer:
        for part in (slice(0, 1), slice(1, 40), slice(0, 40), slice(40, None)):
            assert our_stacks(symbolizer.locate(file, offsets[part])) == whole[part]


def test_own_libc_has_functions_at_least(tmp_path):
    libc = next(line.split()[2] for line in os.popen("ldd /bin/true") if "libc.so" in line)
    with Symbolizer(debug_dirs=[tmp_path]) as symbolizer:
        offsets = np.arange(0x30000, 0x120000, 64, dtype=np.uint64)
        found = symbolizer.locate(MappedFile(libc, read_build_id(libc)), offsets)
    assert "malloc" in found.strings
