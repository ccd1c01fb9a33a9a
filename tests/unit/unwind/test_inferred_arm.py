"""Rules for aarch64's code without call-frame information, made of its instructions."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from builders.cfi_programs import compile_frames
from builders.elf import ElfFile, Symbol
from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import open_elf, parse_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

pytestmark = [
    pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built"),
    pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="no compiler for aarch64"),
]

TEXT = 0x401000
FP_GUESS = "inferred guess"
LEAF = "inferred sp+0 ra=lr"
NOP = 0xD503201F


def assembled(folder: Path, text: str) -> bytes:
    (folder / "code.s").write_text(text)
    for command in ("gcc -c code.s -o code.o", "objcopy -O binary -j .text code.o code.bin"):
        subprocess.run(f"aarch64-linux-gnu-{command}".split(), cwd=folder, check=True)
    return (folder / "code.bin").read_bytes()


def table_of(code: bytes, is_builtins: bool = False) -> UnwindTable:
    """Where the code is V8's builtins, it is one, which a symbol names."""
    symbol = np.array([(1, 2, 0, 1, TEXT, len(code))], "<u4, u1, u1, <u2, <u8, <u8").tobytes()
    stretch = binding.Stretch(TEXT, TEXT + len(code), binding.Rule(sections.FP_GUESS, 0, 0, 0), binding.BUILTINS)
    data = binding.build_table(
        binding.TableInput(
            sections.EM_AARCH64,
            [binding.Segment(TEXT, 0x1000, len(code), 0)],
            symbols=binding.Section(symbol if is_builtins else b""),
            read_code=lambda address, size: code[address - TEXT : address - TEXT + size],
            stretches=[stretch] if is_builtins else [],
        )
    )
    assert data is not None
    assert binding.is_table(data)
    return read_table(data)


def rules(code: bytes, is_builtins: bool = False) -> list[str]:
    """Of each instruction."""
    table = table_of(code, is_builtins)
    return [table.text_at(TEXT + at) for at in range(0, len(code), 4)]


@pytest.mark.parametrize(
    "flags", [["-O2"], ["-O0"], ["-Os", "-fomit-frame-pointer"], ["-O3", "-mbranch-protection=standard"]]
)
def test_the_rules_are_those_that_the_compiler_tells(flags: list[str], tmp_path: Path) -> None:
    program = compile_frames(tmp_path, "aarch64", *flags)
    assert program
    elf = open_elf(program)
    source = sections.table_input(elf, None, b"x")
    told = read_table(binding.build_table(source))
    made = read_table(binding.build_table(dataclasses.replace(source, eh_frame=binding.Section())))
    text = elf.section(".text")
    assert text
    words = np.frombuffer(elf.section_data(text), "<u4")
    addresses = (text.address + 4 * np.flatnonzero(words != NOP)).astype(np.uint64)
    pairs = [(told.texts[a], made.texts[b]) for a, b in zip(told.at(addresses), made.at(addresses), strict=True)]
    pairs = [(a, b.removeprefix("inferred ")) for a, b in pairs if a[:2] in ("sp", "fp")]
    assert len(pairs) > 150
    # Where both registers tell the CFA the compiler may take the other one.
    wrong = [(a, b) for a, b in pairs if a != b and not (a[:2] == "sp" and b[:2] == "fp" and "ra=cfa" in a)]
    assert len(wrong) <= 0.02 * len(pairs), wrong


def test_a_return_address_is_where_the_instructions_have_left_it(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        sub sp, sp, #32
        str x30, [sp, #16]
        bl 1f
        ldr x30, [sp, #16]
        add sp, sp, #32
        ret
        .p2align 4
1:      mul x0, x0, x1
        ret
        """,
    )
    saved = "inferred sp+32 ra=cfa-16"
    assert rules(code)[:6] == [LEAF, "inferred sp+32 ra=lr", saved, saved, "inferred sp+32 ra=lr", LEAF]
    assert rules(code)[-2:] == [LEAF, LEAF]


def test_a_frame_larger_than_an_instruction_holds(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        mov x12, #0x2340
        movk x12, #1, lsl #16
        sub sp, sp, x12
        nop
        add sp, sp, x12
        ret
        """,
    )
    assert rules(code) == [LEAF] * 3 + [f"inferred sp+{0x12340} ra=lr"] * 2 + [LEAF]


def test_a_stack_pointer_that_is_not_known_has_the_frame_record(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        stp x29, x30, [sp, #-32]!
        mov x29, sp
        sub sp, sp, x0
        bl . + 64
        mov sp, x29
        ldp x29, x30, [sp], #32
        ret
        nop
        """,
    )
    by_fp = "inferred fp+32 fp=cfa-32 ra=cfa-24"
    assert rules(code)[:7] == [LEAF, "inferred sp+32 fp=cfa-32 ra=cfa-24", *[by_fp] * 4, LEAF]


def test_a_return_address_that_is_overwritten_is_a_guess(tmp_path: Path) -> None:
    assert rules(assembled(tmp_path, "bl . + 4\nnop\nmov x30, x9\nret")) == [LEAF, *[FP_GUESS] * 3]


def test_what_ends_signal_handlers_and_begins_threads(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        nop
        mov x8, #139
        svc #0
        nop
        bl 1f
        ret
        .p2align 4
1:      ldp x1, x0, [sp], #16
        blr x1
        brk #1
        """,
    )
    table = table_of(code)
    # A return address is looked up one byte before it.
    assert [table.text_at(TEXT + at) for at in (3, 4, 8)] == ["signal"] * 3
    assert [table.text_at(TEXT + 32 + at) for at in (0, 4)] == [LEAF, "stop"]


def test_builtins_are_no_guesses(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        stp x29, x30, [sp, #-16]!
        mov x29, sp
        sub sp, sp, x3, lsl #3
        blr x2
        mov sp, x29
        ldp x29, x30, [sp], #16
        add sp, sp, x4, lsl #3
        ret
        """,
    )
    by_fp = "fp+16 fp=cfa-16 ra=cfa-8"
    assert rules(code, is_builtins=True) == [
        "sp+0 ra=lr",
        "sp+16 fp=cfa-16 ra=cfa-8",
        *[by_fp] * 4,
        *["sp+0 ra=lr"] * 2,  # without its arguments, which its caller's frame pointer passes over
    ]


def test_a_builtin_that_goes_on_in_a_frame_of_anothers_is_a_guess(tmp_path: Path) -> None:
    code = assembled(tmp_path, "blr x2\nmov x0, x1\nldr x30, [sp, #24]\nret")
    assert {rule.split(" ")[0] for rule in rules(code, is_builtins=True)} == {"inferred"}


def test_bytes_that_are_no_whole_instruction_are_passed_over() -> None:
    assert table_of(b"\x1f\x20\x03\xd5" * 8 + b"\xff\xff").text_at(TEXT) == "none"


def test_functions_that_nothing_names_begin_behind_what_the_one_before_leads_to(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        stp x29, x30, [sp, #-32]!
        mov x29, sp
        cbz x0, 1f
        mov x0, #1
        ldp x29, x30, [sp], #32
        ret
1:      bl . + 64
        ldp x29, x30, [sp], #32
        ret
        mul x0, x0, x1
        ret
        """,
    )
    by_fp = "inferred fp+32 fp=cfa-32 ra=cfa-24"
    found = rules(code)
    assert found[5:8] == [LEAF, by_fp, by_fp]
    assert found[8:11] == [LEAF] * 3


@pytest.mark.parametrize("is_vdso", [True, False])
def test_what_the_vdso_does_with_its_stack_is_no_guess(tmp_path: Path, is_vdso: bool) -> None:
    """It has no call-frame information, but symbols. What neither these nor calls lead to may be anything."""
    code = assembled(
        tmp_path,
        """
        .space 64
        stp x29, x30, [sp, #-32]!
        mov x29, sp
        bl 1f
        ldp x29, x30, [sp], #32
        ret
        nop
        nop
        nop
        1: sub sp, sp, #16
        add sp, sp, #16
        ret
        nop
        sub sp, sp, #16
        ret
        mov x8, #139
        svc #0
        """,
    )
    symbols = [Symbol("__kernel_clock_gettime", 64, 20)]
    if is_vdso:
        symbols.append(Symbol("__kernel_rt_sigreturn", 120, 8))
    elf = parse_elf(memoryview(ElfFile(code, 0, dynamic_symbols=symbols, machine=sections.EM_AARCH64).to_bytes()))
    data = binding.build_table(sections.table_input(elf, None, b"x"))
    assert data is not None
    table = read_table(data)
    found = [table.text_at(at) for at in (64, 68, 72, 80, 96, 100, 104)]
    rules_of_both = [
        "sp+0 ra=lr",
        "sp+32 fp=cfa-32 ra=cfa-24",
        "fp+32 fp=cfa-32 ra=cfa-24",
        "sp+0 ra=lr",
        "sp+0 ra=lr",
        "sp+16 ra=lr",
        "sp+0 ra=lr",
    ]
    assert found == (rules_of_both if is_vdso else [f"inferred {rule}" for rule in rules_of_both])
    assert table.text_at(112) == "inferred sp+0 ra=lr"
    assert table.text_at(120) == "signal"
