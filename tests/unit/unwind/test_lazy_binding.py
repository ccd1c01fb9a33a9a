"""The dynamic linker's entry for lazy binding, whose CFA is by RBX: its caller while it calls what keeps RBX."""

from pathlib import Path

import pytest

from builders.assembled_table import NEEDS_X86_64, assembled_table

pytestmark = NEEDS_X86_64

# _dl_runtime_resolve_xsavec, as far as it matters.
ENTRY = """
entry:
 .cfi_startproc
 .cfi_def_cfa_offset 24
 push %rbx
 .cfi_def_cfa_offset 32
 .cfi_rel_offset %rbx, 0
 mov %rsp, %rbx
 .cfi_def_cfa_register %rbx
aligned:
 and $-64, %rsp
 xsavec 64(%rsp)
 call fixup
bound:
 mov %rax, %r11
 call *%r11
called:
 mov %rbx, %rsp
 .cfi_def_cfa_register %rsp
 mov (%rsp), %rbx
 .cfi_restore %rbx
left:
 add $24, %rsp
 .cfi_def_cfa_offset 8
 jmp *%r11
 .cfi_endproc
"""
SAVES = """ push %rbp
 .cfi_def_cfa_offset 16
 .cfi_offset %rbp, -16
saving:
 push %rbx
 .cfi_def_cfa_offset 24
 .cfi_offset %rbx, -24
saved:
"""
RESTORES = """ pop %rbx
 .cfi_def_cfa_offset 16
 pop %rbp
 .cfi_def_cfa_offset 8
returns:
"""
BODY = "test %eax, %eax\n jne saved\n je cold\n call other\n"
COLD = """
cold:
 .cfi_startproc
 .cfi_def_cfa_offset 24
 .cfi_offset %rbp, -16
 .cfi_offset %rbx, -24
 call other
 jmp saved
 .cfi_endproc
"""
OTHER = "\nother:\n .cfi_startproc\n xor %eax, %eax\n ret\n .cfi_endproc\n"


def fixup(before: str = SAVES, body: str = BODY, after: str = RESTORES + " ret\n") -> str:
    return f"\nfixup:\n .cfi_startproc\n{before}{body}{after} .cfi_endproc\n"


BY_RBX = "r3+32 ra=cfa-8"


@pytest.mark.parametrize(
    "code", [fixup() + COLD + OTHER + ENTRY, ENTRY + OTHER + COLD + fixup()], ids=["function first", "entry first"]
)
def test_while_a_function_is_called_the_cfa_is_by_the_slot_that_it_keeps_rbx_in(code: str, tmp_path: Path) -> None:
    table, at = assembled_table(tmp_path, code)
    # A return address is looked up one byte before it. The function's CFA, below which the slot is, is SP then.
    assert table.text_at(at["bound"] - 1) == "[sp-24]+32 ra=cfa-8"
    # Where the entry itself was interrupted RBX is known; no function is known that an indirect call has called.
    assert [table.text_at(at[name]) for name in ("aligned", "bound")] == [BY_RBX, BY_RBX]
    assert table.text_at(at["bound"] - 2) == table.text_at(at["called"] - 1) == BY_RBX
    assert table.text_at(at["left"]) == "sp+32 ra=cfa-8"
    # Until the function has saved RBX, what is in its slot is an old value.
    assert [table.text_at(at[name]) for name in ("fixup", "saving")] == ["unsupported", "unsupported"]
    assert table.text_at(at["saved"]) == "sp+24 fp=cfa-16 ra=cfa-8"
    # Once it has restored it the slot is in the red zone.
    assert table.text_at(at["returns"]) == "sp+8 fp=cfa-16 ra=cfa-8"
    assert table.text_at(at["cold"]) == "sp+24 fp=cfa-16 ra=cfa-8"


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(fixup(after=RESTORES + " jmp other\n"), id="ends by calling another"),
        pytest.param(fixup(after=RESTORES + " jmp *%rax\n"), id="jumps to where a register says"),
        pytest.param(fixup(body=BODY.replace("je cold", "je other")), id="may go on in another"),
        pytest.param(fixup(before=" push %rbp\n .cfi_def_cfa_offset 16\nsaved:\n"), id="does not save RBX"),
        pytest.param(fixup(body=BODY + " .cfi_offset %rbx, -32\n nop\n"), id="keeps RBX in two slots"),
        pytest.param(fixup(body=BODY + " .cfi_register %rbx, %r12\n nop\n"), id="keeps RBX in a register, too"),
        pytest.param(fixup().replace("%rbx, -24", "%rbx, -136"), id="keeps RBX below the red zone"),
    ],
)
def test_of_other_functions_nothing_is_said(function: str, tmp_path: Path) -> None:
    table, at = assembled_table(tmp_path, function + COLD + OTHER + ENTRY)
    assert table.text_at(at["bound"] - 1) == BY_RBX
    assert table.text_at(at["fixup"]) == "sp+8 ra=cfa-8"


def test_a_cold_part_that_leaves_for_another_function_is_none(tmp_path: Path) -> None:
    table, at = assembled_table(tmp_path, fixup() + COLD.replace("jmp saved", "jmp other") + OTHER + ENTRY)
    assert table.text_at(at["bound"] - 1) == BY_RBX


@pytest.mark.parametrize("entries", [5, 40])
def test_many_such_entries_have_their_callers_or_say_that_they_have_none(entries: int, tmp_path: Path) -> None:
    names = ("entry", "aligned", "bound", "called", "left")
    code = fixup() + COLD + OTHER
    for number in range(entries):
        text = ENTRY
        for name in names:
            text = text.replace(f"\n{name}:", f"\n{name}{number}:")
        code += text
    table, at = assembled_table(tmp_path, code)
    found = [table.text_at(at[f"bound{number}"] - 1) for number in range(entries)]
    assert set(found[:5]) == {"[sp-24]+32 ra=cfa-8"}
    assert set(found) <= {"[sp-24]+32 ra=cfa-8", BY_RBX}
