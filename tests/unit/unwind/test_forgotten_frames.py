"""Functions of assembly that have a frame by RBP and do not say so, as libmvec of glibc 2.41 has."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import open_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

pytestmark = [
    pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="assembles x86-64's instructions"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed"),
]

# glibc's sysdeps/x86_64/fpu/svml_d_wrapper_impl.h, WRAPPER_IMPL_AVX: behind the second instruction nothing is said. An
# assembler does not write that the CFA is by the register that it is by already: as bytes.
WRAPPER = """
other:
 .cfi_startproc
 push %rbx
 .cfi_def_cfa_offset 16
 .cfi_offset %rbx, -16
other_saved:
 pop %rbx
 .cfi_def_cfa_offset 8
 ret
 .cfi_endproc
wrapper:
 .cfi_startproc
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset %rbp, -16
pushed:
 mov %rsp, %rbp
framed:
 and $-32, %rsp
 sub $32, %rsp
 call other
 mov %rbp, %rsp
reset:
 .cfi_escape 0x0d, 7
 pop %rbp
 .cfi_def_cfa_offset 8
 .cfi_restore %rbp
popped:
 ret
 .cfi_endproc
"""


def table_of(folder: Path, text: str) -> tuple[UnwindTable, dict[str, int]]:
    """Of this code, and where its labels are."""
    (folder / "code.s").write_text(text)
    subprocess.run(["gcc", "-shared", "-nostdlib", "code.s", "-o", "code.so"], cwd=folder, check=True)
    names = subprocess.run(["nm", folder / "code.so"], capture_output=True, text=True, check=True).stdout
    table = binding.build_table(sections.table_input(open_elf(folder / "code.so"), None, b"x"))
    assert table
    return read_table(table), {name: int(at, 16) for at, _, name in map(str.split, names.splitlines())}


def test_the_frame_is_where_its_instructions_have_it(tmp_path: Path) -> None:
    table, at = table_of(tmp_path, WRAPPER)
    assert table.counts[1] == 0
    assert table.text_at(at["wrapper"]) == "sp+8 ra=cfa-8"
    assert table.text_at(at["pushed"]) == table.text_at(at["framed"] - 1) == "sp+16 fp=cfa-16 ra=cfa-8"
    assert table.text_at(at["framed"]) == table.text_at(at["reset"] - 1) == "fp+16 fp=cfa-16 ra=cfa-8"
    assert table.text_at(at["reset"]) == "sp+16 fp=cfa-16 ra=cfa-8"
    assert table.text_at(at["popped"]) == "sp+8 ra=cfa-8"
    assert table.text_at(at["other_saved"]) == "sp+16 ra=cfa-8"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("mov %rsp, %rbp", "mov %rsp, %rbx", id="no frame by RBP"),
        pytest.param("mov %rbp, %rsp", "add $32, %rsp", id="SP is not by RBP"),
        pytest.param("%rbp, -16", "%rbp, -24", id="RBP is not what was pushed"),
        pytest.param("mov %rsp, %rbp\nframed:\n", "mov %rsp, %rbp\nframed:\n.cfi_def_cfa_offset 24\n", id="moves"),
    ],
)
def test_else_what_is_said_twice_is_damage(old: str, new: str, tmp_path: Path) -> None:
    table, at = table_of(tmp_path, WRAPPER.replace(old, new))
    assert table.counts[1] > 0
    assert table.text_at(at["other_saved"]).startswith("inferred ")  # none of the section is believed


def test_of_many_the_first_are_put_right(tmp_path: Path) -> None:
    names = ("other", "other_saved", "wrapper", "pushed", "framed", "reset", "popped")
    code = ""
    for number in range(16):
        text = WRAPPER.replace("call other", f"call other{number}")
        for name in names:
            text = text.replace(f"\n{name}:", f"\n{name}{number}:")
        code += text
    table, at = table_of(tmp_path, code)
    assert table.counts[1] == 0
    assert {table.text_at(at[f"framed{number}"]) for number in range(16)} == {"fp+16 fp=cfa-16 ra=cfa-8"}
