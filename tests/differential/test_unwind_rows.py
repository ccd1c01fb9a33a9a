"""Unwind tables say of every row what readelf and pyelftools say."""

import subprocess
import sys
from pathlib import Path

import pytest
from elftools.dwarf.callframe import FDE, CFARule, RegisterRule
from elftools.elf.elffile import ELFFile

from builders.cfi_programs import compile_frames
from builders.unwind_table import read_table
from tdprof.linux.elf import open_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

ROOT = Path(__file__).parents[2]
FP = {"x86_64": 6, "aarch64": 29}
SP = {"x86_64": 7, "aarch64": 31}

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
    with open(program, "rb") as file:
        for entry in ELFFile(file).get_dwarf_info().EH_CFI_entries():
            if isinstance(entry, FDE) and not entry.cie.augmentation_dict.get("S"):
                rows = entry.get_decoded().table
                if any(is_above_cfa(row.get(30)) for row in rows):
                    continue  # glibc's _dl_runtime_resolve on aarch64: see docs/unwinding.md
                for row in rows:
                    expected = describe(row, arch)
                    text = table.text_at(row["pc"])
                    if expected and text not in ("stop", "signal", "unsupported"):
                        assert text == expected, hex(row["pc"])
                        compared += 1
    assert compared > (1000 if "-static" in flags else 20)


def is_above_cfa(saved: RegisterRule | None) -> bool:
    """Whether a return address would be where its caller's own frame is."""
    return saved is not None and isinstance(saved.arg, int) and saved.type == RegisterRule.OFFSET and saved.arg >= 0


def describe(row: dict, arch: str) -> str:
    """A row of pyelftools as ``describe`` of the builders writes rules; empty with an expression."""
    cfa: CFARule = row["cfa"]
    if cfa.expr is not None or cfa.reg not in (SP[arch], FP[arch]):
        return ""
    text = f"{'sp' if cfa.reg == SP[arch] else 'fp'}{cfa.offset:+d}"
    fp: RegisterRule | None = row.get(FP[arch])
    if fp and fp.type == RegisterRule.OFFSET:
        text += f" fp=cfa{fp.arg:+d}"
    elif fp and fp.type not in (RegisterRule.SAME_VALUE, RegisterRule.UNDEFINED):
        return ""
    ra: RegisterRule | None = row.get(16 if arch == "x86_64" else 30)
    if ra and ra.type == RegisterRule.OFFSET:
        return text + f" ra=cfa{ra.arg:+d}"
    return text + " ra=lr" if ra is None or ra.type == RegisterRule.SAME_VALUE else ""
