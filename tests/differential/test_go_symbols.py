"""A stripped Go program has the functions, inlined calls and lines that the debug data of the whole one has."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from builders.llvm_symbolizer import Stack, our_stacks
from builders.programs import need
from tdprof.linux.elf import PF_X, PT_LOAD, open_elf
from tdprof.model.addresses import MappedFile
from tdprof.native.library import load_native
from tdprof.symbolize.symbolizer import Symbolizer

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")

PROGRAM = """package main

import "os"

func step(x uint64) uint64 { x ^= x << 13; return x ^ x>>7 }
func mix(a, b uint64) uint64 { return step(a^b) + 1 }

//go:noinline
func heavy(n int) (s uint64) {
	for i := 0; i < n; i++ {
		s = mix(s, uint64(i))
	}
	return s
}

func main() { os.Exit(int(heavy(len(os.Args)) & 1)) }
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A program whole, and without symbols and debug data."""
    need("go")
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(PROGRAM)
    environment = os.environ | {"GOCACHE": str(folder / "cache"), "GOFLAGS": "", "GO111MODULE": "off"}
    whole = folder / "whole"
    subprocess.run(["go", "build", "-o", whole, "main.go"], cwd=folder, env=environment, check=True)
    shutil.copy(whole, folder / "stripped")
    subprocess.run(["strip", "--strip-all", folder / "stripped"], check=True)
    return whole, folder / "stripped"


def test_a_stripped_program_says_what_its_debug_data_said(programs: tuple[Path, Path]) -> None:
    (code,) = [s for s in open_elf(programs[0]).segments if s.type == PT_LOAD and s.flags & PF_X]
    offsets = np.arange(code.offset, code.offset + code.file_size, 41, dtype=np.uint64)
    whole, stripped = ([plain(stack) for stack in stacks(path, offsets)] for path in programs)
    # Between functions, in padding, debug data says nothing.
    both = [(a, b) for a, b in zip(whole, stripped, strict=True) if a != [("??", "??:0")]]
    assert len(both) > 5000
    assert any(len(a) > 2 for a, _ in both)
    different = [pair for pair in both if pair[0] != pair[1]]
    assert len(different) <= len(both) // 200, different[:5]


def stacks(path: Path, offsets: np.ndarray) -> list[Stack]:
    with Symbolizer() as symbolizer:
        return our_stacks(symbolizer.locate(MappedFile(str(path), open_elf(path).build_id), offsets))


def plain(stack: Stack) -> Stack:
    """Without what only one of the two tells: types of generic functions, the calling convention of assembly."""
    return [(re.sub(r"\[.*\]|\.abi0$", "", name), place.removeprefix("./")) for name, place in stack]
