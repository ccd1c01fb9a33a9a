"""Functions that go on in an exception's handler, as libgcc's do, and write over their own frames before."""

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
    pytest.mark.skipif(
        not shutil.which("gcc")
        or "x86_64" not in subprocess.run(["gcc", "-dumpmachine"], capture_output=True, text=True).stdout,
        reason="no gcc for x86-64",
    ),
]

# The first call of _Unwind_RaiseException and _Unwind_Resume; _Unwind_Resume_or_Rethrow has another before it.
ANOTHER_CALL = "mov %rdi, %r12\n call look\n"
THE_CALL = "lea 0x10(%rbp), %rsi\n lea -0x220(%rbp), %r13\n mov %r13, %rdi\n mov 8(%rbp), %rdx\n call init\n"
LEAVES = (
    "mov %rcx, %rsp\n .cfi_def_cfa %rsp, 8\n pop %rcx\n .cfi_def_cfa_offset 0\n .cfi_register %rip, %rcx\n jmp *%rcx\n"
)
RETURNS = "leave\n .cfi_def_cfa_offset 8\n ret\n"


def table_of(folder: Path, begins: str, ends: str) -> tuple[UnwindTable, dict[str, int]]:
    """Of a function, and where its labels are."""
    text = f"""
.globl raise, search, install, debug, leaves
init: look: hook: ret
raise:
 .cfi_startproc
 push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset %rbp, -16
 mov %rsp, %rbp
 .cfi_def_cfa_register %rbp
 sub $0x400, %rsp
 {begins}
 lea -0x130(%rbp), %rdi
 call look
search:
 test %eax, %eax
 jne raise
 mov %r12, %rsi
 mov %r13, %rdi
 call look
install:
 mov %rax, %rdx
 call hook
debug:
 lea 8(%rbp,%rdx,1), %rcx
 mov (%rbp), %rbp
 .cfi_def_cfa %rcx, 8
 .cfi_restore %rbp
leaves:
 {ends}
 .cfi_endproc
"""
    (folder / "code.s").write_text(text)
    subprocess.run(["gcc", "-shared", "-nostdlib", "code.s", "-o", "code.so"], cwd=folder, check=True)
    elf = open_elf(folder / "code.so")
    names = subprocess.run(["nm", folder / "code.so"], capture_output=True, text=True, check=True).stdout
    table = binding.build_table(sections.table_input(elf, None, b"x"))
    assert table
    return read_table(table), {name: int(at, 16) for at, _, name in map(str.split, names.splitlines())}


@pytest.mark.parametrize("begins", [THE_CALL, ANOTHER_CALL + THE_CALL])
def test_behind_the_install_a_frame_is_believed_while_it_returns_to_where_it_was_called(
    begins: str, tmp_path: Path
) -> None:
    table, at = table_of(tmp_path, begins, LEAVES)
    # Of struct _Unwind_Context, at CFA - 0x230, `ra` is at 0x98.
    kept = "fp+16 fp=cfa-16 ra=cfa-8 if cfa-408"
    # A return address is looked up one byte before it.
    assert table.text_at(at["search"] - 1) == table.text_at(at["install"] - 2) == "fp+16 fp=cfa-16 ra=cfa-8"
    assert table.text_at(at["install"] - 1) == table.text_at(at["debug"]) == kept
    assert table.text_at(at["leaves"]) == "r2+8 ra=cfa-8"


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        pytest.param(THE_CALL.replace("0x10(%rbp)", "0x20(%rbp)"), LEAVES, id="not with its CFA"),
        pytest.param(THE_CALL.replace("mov %r13, %rdi", "mov %r12, %rdi"), LEAVES, id="not with its own structure"),
        pytest.param(THE_CALL.replace("-0x220", "-0x223"), LEAVES, id="not in a slot"),
        pytest.param(THE_CALL.replace("-0x220", "-0x9000"), LEAVES, id="too far"),
        pytest.param(THE_CALL, RETURNS, id="returns"),
    ],
)
def test_other_functions_have_what_is_said_of_them(begins: str, ends: str, tmp_path: Path) -> None:
    table, at = table_of(tmp_path, begins, ends)
    assert table.text_at(at["install"] - 1) == table.text_at(at["debug"]) == "fp+16 fp=cfa-16 ra=cfa-8"
