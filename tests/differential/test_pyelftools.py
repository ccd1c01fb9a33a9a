"""ELF headers, symbols and debug data say what pyelftools reads in them."""

import sys
from pathlib import Path, PurePath

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from builders.llvm_symbolizer import our_stacks
from builders.programs import compile_program
from builders.pyelftools_symbolizer import pyelftools_stacks
from tdprof.linux.elf import PF_X, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, open_elf, read_build_id
from tdprof.model.addresses import MappedFile
from tdprof.native.library import load_native
from tdprof.symbolize.symbol_table import read_elf_symbols
from tdprof.symbolize.symbolizer import Symbolizer

MOST_ADDRESSES = 1000


@pytest.fixture(params=["gcc", "aarch64-linux-gnu-gcc", "the interpreter", "libc"], scope="module")
def elf_file(request, tmp_path_factory) -> Path:
    if request.param == "the interpreter":
        return Path(sys.executable).resolve()
    if request.param == "libc":
        maps = Path("/proc/self/maps").read_text().splitlines()
        return next(Path(line.split()[-1]) for line in maps if "libc.so" in line or "ld-musl" in line)
    return compile_program(tmp_path_factory.mktemp("program"), request.param, "-O2", "-g")


def test_headers(elf_file):
    ours = open_elf(elf_file)
    with open(elf_file, "rb") as file:
        theirs = ELFFile(file)
        segments = [segment.header for segment in theirs.iter_segments()]
        sections = [(section.name, section.header) for section in theirs.iter_sections()]
        notes = [
            note
            for section in theirs.iter_sections()
            if isinstance(section, NoteSection)
            for note in section.iter_notes()
        ]
    assert [(s.flags, s.offset, s.address, s.file_size) for s in ours.segments] == [
        (h.p_flags, h.p_offset, h.p_vaddr, h.p_filesz) for h in segments
    ]
    assert [s.type == PT_LOAD for s in ours.segments] == [h.p_type == "PT_LOAD" for h in segments]
    assert [(s.name, s.flags, s.address, s.offset, s.size, s.link) for s in ours.sections] == [
        (name, h.sh_flags, h.sh_addr, h.sh_offset, h.sh_size, h.sh_link) for name, h in sections
    ]
    [build_id] = [note.n_desc for note in notes if (note.n_name, note.n_type) == ("GNU", "NT_GNU_BUILD_ID")] or [""]
    assert (ours.build_id, read_build_id(elf_file)) == (build_id, build_id)


@pytest.mark.parametrize(("kind", "section_name"), [(SHT_SYMTAB, ".symtab"), (SHT_DYNSYM, ".dynsym")])
def test_symbols(elf_file, kind, section_name):
    """Functions with a size; what else has a name in code is ours to choose."""
    with open(elf_file, "rb") as file:
        theirs = ELFFile(file)
        section = theirs.get_section_by_name(section_name)
        symbols = list(section.iter_symbols()) if isinstance(section, SymbolTableSection) else []
        code = {i for i, each in enumerate(theirs.iter_sections()) if each.header.sh_flags & 4}
    functions = {
        (s.entry.st_value, s.entry.st_value + s.entry.st_size)
        for s in symbols
        if s.entry.st_info.type == "STT_FUNC" and s.entry.st_size and s.entry.st_shndx in code
    }
    names = {s.name for s in symbols}
    table = read_elf_symbols(open_elf(elf_file), kind)
    ours = set(zip(table.start.tolist(), table.end.tolist(), strict=True))
    assert functions <= ours
    data = bytes(table.name_bytes)
    found = {data[offset : data.index(b"\0", offset)].decode() for offset in table.name_offset.tolist()}
    assert found <= names
    assert bool(found) == bool(functions)


@pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")
@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
@pytest.mark.parametrize("compiler", ["gcc", "clang", "aarch64-linux-gnu-gcc"])
def test_lines_and_inlined_calls(tmp_path, compiler, version):
    path = compile_program(tmp_path, compiler, "-O2", "-g", version)
    elf = open_elf(path)
    table = read_elf_symbols(elf, SHT_SYMTAB)
    pairs = zip(table.start.tolist(), table.end.tolist(), strict=True)
    every = np.unique(np.concatenate([np.arange(a, b, dtype=np.uint64) for a, b in pairs if b > a]))
    addresses = every[:: max(1, len(every) // MOST_ADDRESSES)]
    theirs = pyelftools_stacks(str(path), addresses.tolist())
    (text,) = [s for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X]
    with Symbolizer() as symbolizer:
        offsets = addresses - np.uint64(text.address) + np.uint64(text.offset)
        found = our_stacks(symbolizer.locate(MappedFile(str(path), read_build_id(path)), offsets))
    ours = [[(name, PurePath(line).name) for name, line in stack] for stack in found]
    compared = [(o, t) for o, t in zip(ours, theirs, strict=True) if t != [("??", "??:0")]]
    assert len(compared) > 100
    assert max(len(t) for _, t in compared) >= 3, "the program was to have inlined calls"
    assert [pair for pair in compared if pair[0] != pair[1]] == []
