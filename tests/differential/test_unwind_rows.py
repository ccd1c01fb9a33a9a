"""Unwind tables say of every row what readelf and pyelftools say."""

import subprocess
import sys
from pathlib import Path

import pytest

from builders.cfi_programs import compile_frames
from builders.elftools_rows import elftools_rows
from builders.unwind_table import read_table
from tdprof.linux.elf import open_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

ROOT = Path(__file__).parents[2]
MACHINES = {"x86_64": sections.EM_X86_64, "aarch64": sections.EM_AARCH64}

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")


@pytest.mark.slow
def test_system_libraries_against_readelf():
    """tools/unwind_rows.py does the same for every file of the machine: docs/unwinding.md."""
    libc = Path("/proc/self/maps").read_text().split("libc.so.6")[0].rsplit(" ", 1)[-1] + "libc.so.6"
    files = [
        sys.executable,
        libc,
        "/usr/bin/perl",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/aarch64-linux-gnu/lib",
    ]
    found = subprocess.run(
        [sys.executable, ROOT / "tools/unwind_rows.py", *(str(Path(f).resolve()) for f in files if Path(f).exists())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert " 0 differ" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize("flags", [["-O2"], ["-O0"], ["-O2", "-fomit-frame-pointer"], ["-Os", "-static"]], ids=" ".join)
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_compiled_programs_against_pyelftools(arch, flags, tmp_path):
    program = compile_frames(tmp_path, arch, *flags)
    if program is None:
        pytest.skip(f"no compiler for {arch}")
    data = binding.build_table(sections.table_input(open_elf(program), None, b"x"))
    table = read_table(data)
    compared = 0
    for _, _, rows in elftools_rows(program, MACHINES[arch], ".eh_frame"):
        for address, expected in rows:
            text = table.text_at(address)
            if expected and text not in ("stop", "signal", "unsupported"):
                if text.endswith(
                    " kept"
                ):  # where libgcc may have written over its return address, with a copy elsewhere
                    text, expected = text.partition(" ra=")[0], expected.partition(" ra=")[0]
                assert text == expected, hex(address)
                compared += 1
    assert compared > (1000 if "-static" in flags else 20)
