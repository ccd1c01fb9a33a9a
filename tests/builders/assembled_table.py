"""Unwind tables of code that is assembled for a test."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import open_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

NEEDS_X86_64 = [
    pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="assembles x86-64's instructions"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed"),
]


def assembled_table(folder: Path, text: str, compiler: str = "gcc") -> tuple[UnwindTable, dict[str, int]]:
    """The table of this code, and where its labels are."""
    (folder / "code.s").write_text(text)
    subprocess.run([compiler, "-shared", "-nostdlib", "code.s", "-o", "code.so"], cwd=folder, check=True)
    names = subprocess.run(["nm", folder / "code.so"], capture_output=True, text=True, check=True).stdout
    table = binding.build_table(sections.table_input(open_elf(folder / "code.so"), None, b"x"))
    assert table
    return read_table(table), {name: int(at, 16) for at, _, name in map(str.split, names.splitlines())}
