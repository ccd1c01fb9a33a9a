"""Functions that go on in an exception's handler, as libgcc's do, and write over their own frames before."""

import shutil
import subprocess
from pathlib import Path

import pytest

from builders.assembled_table import assembled_table
from tdprof.native import unwind_api as binding

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

COMPILERS = {"x86_64": ("gcc", "x86_64-linux-gnu-gcc"), "aarch64": ("gcc", "aarch64-linux-gnu-gcc")}


def compiler(machine: str) -> str:
    """One for a machine."""
    for name in COMPILERS[machine]:
        if (
            shutil.which(name)
            and machine in subprocess.run([name, "-dumpmachine"], capture_output=True, text=True).stdout
        ):
            return name
    pytest.skip(f"no gcc for {machine}")


# The first call of _Unwind_RaiseException and _Unwind_Resume; _Unwind_Resume_or_Rethrow has another before it.
ANOTHER_CALL = "mov %rdi, %r12\n call look\n"
THE_CALL = "lea 0x10(%rbp), %rsi\n lea -0x220(%rbp), %r13\n mov %r13, %rdi\n mov 8(%rbp), %rdx\n call init\n"
WRITES = "mov %rsi, 8(%rbp,%rdx,1)\n"
LEAVES = (
    "mov %rcx, %rsp\n .cfi_def_cfa %rsp, 8\n pop %rcx\n .cfi_def_cfa_offset 0\n .cfi_register %rip, %rcx\n jmp *%rcx\n"
)
RETURNS = "leave\n .cfi_def_cfa_offset 8\n ret\n"


def x86_64_code(begins: str, writes: str, ends: str) -> str:
    return f"""
.globl raise, search, install, debug, written, leaves
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
 lea -0x130(%rbp), %rsi
 mov %r13, %rdi
 call look
install:
 mov %rax, %rdx
 call hook
debug:
 {writes}
written:
 lea 8(%rbp,%rdx,1), %rcx
 mov (%rbp), %rbp
 .cfi_def_cfa %rcx, 8
 .cfi_restore %rbp
leaves:
 {ends}
 .cfi_endproc
"""


@pytest.mark.parametrize("begins", [THE_CALL, ANOTHER_CALL + THE_CALL])
def test_behind_the_install_a_frame_returns_to_where_libgcc_has_kept(begins: str, tmp_path: Path) -> None:
    table, at = assembled_table(tmp_path, x86_64_code(begins, WRITES, LEAVES), compiler("x86_64"))
    # A return address is looked up one byte before it.
    assert table.text_at(at["search"] - 1) == table.text_at(at["install"] - 2) == "fp+16 fp=cfa-16 ra=cfa-8"
    # Of struct _Unwind_Context, at CFA - 0x230, `ra` is at 0x98.
    assert table.text_at(at["install"] - 1) == table.text_at(at["debug"]) == "fp+16 fp=cfa-16 ra=cfa-408 kept"
    # Then the handler's address stands where one of the callers' was.
    assert (
        table.text_at(at["written"]) == table.text_at(at["leaves"]) == table.text_at(at["leaves"] + 5) == "unsupported"
    )


@pytest.mark.parametrize(
    ("begins", "writes", "ends"),
    [
        pytest.param(THE_CALL.replace("0x10(%rbp)", "0x20(%rbp)"), WRITES, LEAVES, id="not with its CFA"),
        pytest.param(THE_CALL.replace("mov %r13", "mov %r12"), WRITES, LEAVES, id="not with its own structure"),
        pytest.param(THE_CALL.replace("-0x220", "-0x228"), WRITES, LEAVES, id="not with the one behind it"),
        pytest.param(THE_CALL, "", LEAVES, id="writes no return address"),
        pytest.param(THE_CALL, WRITES, RETURNS, id="returns"),
    ],
)
def test_other_functions_have_what_is_said_of_them(begins: str, writes: str, ends: str, tmp_path: Path) -> None:
    table, at = assembled_table(tmp_path, x86_64_code(begins, writes, ends), compiler("x86_64"))
    assert table.text_at(at["install"] - 1) == table.text_at(at["debug"]) == "fp+16 fp=cfa-16 ra=cfa-8"


ARM_LEAVES = "add sp, sp, x4\n ret\n"
ARM_LEAVES_SINCE_14 = "cbz x4, 1f\n add sp, sp, x5\n br x6\n1: ret\n"
ARM_CALL = "add x21, sp, #0xc0\n mov x0, x21\n add x1, sp, #0xe00\n bl init\n"


def aarch64_code(begins: str, ends: str) -> str:
    return f"""
init: look: hook: ret
raise:
 .cfi_startproc
 sub sp, sp, #0xe00
 .cfi_def_cfa_offset 0xe00
 stp x29, x30, [sp]
 .cfi_offset 29, -0xe00
 .cfi_offset 30, -0xdf8
 mov x29, sp
 stp x0, x1, [sp, #16]
 .cfi_offset 0, -0xdf0
 stp x21, x22, [sp, #32]
 add x22, sp, #0x480
 {begins}
 b search
ends:
 ldp x29, x30, [sp]
 ldp x21, x22, [sp, #32]
 add sp, sp, #0xe00
 .cfi_remember_state
 .cfi_restore 29
 .cfi_restore 30
 .cfi_restore 0
 .cfi_def_cfa_offset 0
leaves:
 {ends}
other:
 .cfi_restore_state
search:
 mov x1, x21
 mov x0, x22
 bl look
 cbnz w0, ends
 mov x1, x22
 mov x0, x21
 bl look
install:
 mov x4, x0
 bl hook
debug:
 str x1, [x29, #8]
 b ends
 .cfi_endproc
"""


ARM_BODY, ARM_KEPT = "sp+3584 fp=cfa-3584 ra=cfa-3576", "sp+3584 fp=cfa-3584 ra=cfa-2600 kept"


@pytest.mark.parametrize(
    ("ends", "left"), [(ARM_LEAVES, "unsupported"), (ARM_LEAVES_SINCE_14, "sp+0 ra=lr")], ids=["ret", "br"]
)
def test_on_aarch64_it_is_so_where_the_function_ends_too(ends: str, left: str, tmp_path: Path) -> None:
    table, at = assembled_table(tmp_path, aarch64_code(ARM_CALL, ends), compiler("aarch64"))
    assert table.text_at(at["search"]) == table.text_at(at["install"] - 2) == table.text_at(at["ends"] - 1) == ARM_BODY
    # `ra` is at 792 of the structure, which is at CFA - 0xe00 + 0xc0.
    for place in (at["install"] - 1, at["debug"], at["ends"], at["leaves"] - 1):
        assert table.text_at(place) == ARM_KEPT
    assert table.text_at(at["leaves"]) == table.text_at(at["leaves"] + 4) == "unsupported"
    assert table.text_at(at["other"] - 4) == left


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        pytest.param(ARM_CALL.replace("#0xe00", "#0xdf0"), ARM_LEAVES, id="not with its CFA"),
        pytest.param(ARM_CALL.replace("x0, x21", "x0, x22"), ARM_LEAVES, id="not with its own structure"),
        pytest.param(ARM_CALL.replace("#0xc0", "#0xc8"), ARM_LEAVES, id="not with the one behind it"),
        pytest.param(ARM_CALL, "ret\n", id="returns"),
    ],
)
def test_other_functions_of_aarch64_have_what_is_said_of_them(begins: str, ends: str, tmp_path: Path) -> None:
    table, at = assembled_table(tmp_path, aarch64_code(begins, ends), compiler("aarch64"))
    for place in (at["install"] - 1, at["debug"], at["ends"]):
        assert table.text_at(place) == ARM_BODY
    assert table.text_at(at["leaves"]) == "sp+0 ra=lr"
