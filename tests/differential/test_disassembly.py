"""Code as ``objdump`` reads it: the same instructions at the same addresses, calls to the same functions."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from builders.programs import C_SOURCE
from tdprof.linux.elf import SHT_SYMTAB, open_elf
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.symbolize.disassembly import disassemble
from tdprof.symbolize.elf_symbols import ElfSymbols
from tdprof.symbolize.symbol_table import read_elf_symbols
from tdprof.symbolize.symbolizer import Symbolizer

# "    1139:\tcallq  1030 <puts@plt>"
_LINE = re.compile(r"^\s*([0-9a-f]+):\t(\S+)(?:[^<\n]*)(?:<([^>]+)>)?", re.MULTILINE)
_TOOLS = {"x86_64": ("gcc", "objdump"), "aarch64": ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump")}
_FLAGS = {
    "x86_64": (["-O2"], ["-O2", "-fcf-protection=full", "-Wl,-z,ibtplt"], ["-O0", "-Wl,-z,lazy"], ["-O2", "-fno-plt"]),
    "aarch64": (["-O2"], ["-O2", "-mbranch-protection=standard", "-Wl,-z,force-bti"], ["-O0", "-Wl,-z,lazy"]),
}


@pytest.mark.parametrize(("machine", "flags"), [(machine, flags) for machine, all_ in _FLAGS.items() for flags in all_])
def test_instructions_and_targets_are_those_of_objdump(tmp_path: Path, machine: str, flags: list[str]) -> None:
    compiler, objdump = _TOOLS[machine]
    for tool in (compiler, objdump):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    (tmp_path / "program.c").write_text(C_SOURCE)
    built = subprocess.run(
        [compiler, "-g", *flags, "-o", "program", "program.c"], cwd=tmp_path, capture_output=True, check=False
    )
    if built.returncode:
        pytest.skip(f"{compiler} {' '.join(flags)}: {built.stderr.decode().splitlines()[:1]}")
    program = tmp_path / "program"
    command = [objdump, "-d", "--no-show-raw-insn", "-j", ".text", str(program)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = {int(address, 16): (mnemonic, target) for address, mnemonic, target in _LINE.findall(listing)}

    elf = open_elf(program)
    table, text = read_elf_symbols(elf, SHT_SYMTAB), elf.section(".text")
    assert text is not None
    wanted = [row for row, name in enumerate(table.names(range(len(table)))) if name in ("main", "work", "checked")]
    offsets = table.start[wanted] - np.uint64(text.address) + np.uint64(text.offset)
    with Symbolizer() as symbolizer:
        symbols = symbolizer.file_of(MappedFile(str(program), elf.build_id, FileKind.ELF))
        assert isinstance(symbols, ElfSymbols)
        parts = symbols.parts(offsets)
        assert {part.name for part in parts} >= {"main", "work"}
        for part in parts:
            ours = {instruction.address: instruction for instruction in disassemble(part)}
            assert set(ours) == {a for a in theirs if part.address <= a < part.address + len(part.data)}
            targets = {a: i.target for a, i in ours.items() if i.target is not None}
            names = symbols.name_targets(np.array(list(targets.values()), np.uint64))
            for address, name in zip(targets, names, strict=True):
                assert name == theirs[address][1], hex(address)
        calls = {name for _, name in theirs.values() if name.endswith("@plt")}
        if "-fno-plt" not in flags:
            assert any("printf" in name for name in calls)
