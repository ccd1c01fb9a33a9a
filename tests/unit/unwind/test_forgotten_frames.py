"""Functions of assembly that have a frame by RBP and do not say so, as libmvec of glibc 2.41 has."""

from pathlib import Path

import pytest

from builders.assembled_table import NEEDS_X86_64, assembled_table

pytestmark = NEEDS_X86_64

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


def test_the_frame_is_where_its_instructions_have_it(tmp_path: Path) -> None:
    table, at = assembled_table(tmp_path, WRAPPER)
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
    table, at = assembled_table(tmp_path, WRAPPER.replace(old, new))
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
    table, at = assembled_table(tmp_path, code)
    assert table.counts[1] == 0
    assert {table.text_at(at[f"framed{number}"]) for number in range(16)} == {"fp+16 fp=cfa-16 ra=cfa-8"}
