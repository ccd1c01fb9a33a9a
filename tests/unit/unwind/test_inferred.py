"""Rules for code without call-frame information, made of its instructions."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import capstone
import numpy as np
import pytest

from builders.cfi_programs import compile_frames
from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import open_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections
from tdprof.unwind.tables import has_v8

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

ROOT = Path(__file__).resolve().parents[3]
TEXT = 0x401000
FP_GUESS = "inferred guess"


def assembled(folder: Path, text: str) -> bytes:
    (folder / "code.s").write_text(text)
    subprocess.run(["gcc", "-c", "code.s", "-o", "code.o"], cwd=folder, check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "code.o", "code.bin"], cwd=folder, check=True)
    return (folder / "code.bin").read_bytes()


def inferred(code: bytes, symbols: bytes = b"") -> UnwindTable:
    source = binding.TableInput(
        sections.EM_X86_64,
        [binding.Segment(TEXT, 0x1000, len(code), 0)],
        symbols=binding.Section(symbols),
        read_code=lambda address, size: code[address - TEXT : address - TEXT + size],
    )
    table = binding.build_table(source)
    assert table is not None
    assert binding.is_table(table)
    return read_table(table)


def rules(code: bytes) -> list[str]:
    """Of each instruction."""
    table = inferred(code)
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.skipdata = True
    return [table.text_at(address).removeprefix("inferred ") for address, _, _, _ in decoder.disasm_lite(code, TEXT)]


def cfa_of(rule: str) -> str:
    return rule.partition(" fp=")[0].partition(" ra=")[0]


needs_x86_assembler = pytest.mark.skipif(
    not shutil.which("gcc")
    or "x86_64" not in subprocess.run(["gcc", "-dumpmachine"], capture_output=True, text=True).stdout,
    reason="no gcc for x86-64",
)


@needs_x86_assembler
@pytest.mark.parametrize(
    "flags", [["-O2"], ["-O0"], ["-Os", "-fomit-frame-pointer"], ["-O3", "-fno-omit-frame-pointer"]]
)
def test_the_rules_are_those_that_the_compiler_tells(flags: list[str], tmp_path: Path) -> None:
    program = compile_frames(tmp_path, "x86_64", *flags)
    assert program
    elf = open_elf(program)
    source = sections.table_input(elf, None, b"x")
    told = read_table(binding.build_table(source))
    made = read_table(binding.build_table(dataclasses.replace(source, eh_frame=binding.Section())))
    text = elf.section(".text")
    assert text
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoded = decoder.disasm_lite(bytes(elf.section_data(text)), text.address)
    addresses = np.array([address for address, _, name, _ in decoded if name not in ("nop", "endbr64")], np.uint64)
    pairs = [
        (cfa_of(told.texts[a]), cfa_of(made.texts[b]))
        for a, b in zip(told.at(addresses), made.at(addresses), strict=True)
    ]
    pairs = [pair for pair in pairs if pair[0][:2] in ("sp", "fp")]
    assert len(pairs) > 150
    wrong = [pair for pair in pairs if pair[1] not in (f"inferred {pair[0]}", FP_GUESS)]
    assert len(wrong) <= 0.02 * len(pairs), wrong
    assert sum(pair[1] == FP_GUESS for pair in pairs) <= 0.02 * len(pairs)


@needs_x86_assembler
@pytest.mark.parametrize(
    "listing",
    [
        pytest.param(
            """
            push %rbx             # sp+8 ra=cfa-8
            mov %rsp, %rax        # sp+16 ra=cfa-8
            and $-64, %rsp        # sp+16 ra=cfa-8
            sub $256, %rsp        # r0+16 ra=cfa-8
            mov %rax, 248(%rsp)   # r0+16 ra=cfa-8
            xor %eax, %eax        # [sp+248]+16 ra=cfa-8
            push %rbx             # [sp+248]+16 ra=cfa-8
            pop %rbx              # [sp+256]+16 ra=cfa-8
            mov 248(%rsp), %rsp   # [sp+248]+16 ra=cfa-8
            pop %rbx              # sp+16 ra=cfa-8
            ret                   # sp+8 ra=cfa-8
            """,
            id="aligned and kept on the stack",
        ),
        pytest.param(
            """
            push %rbp             # sp+8 ra=cfa-8
            mov %rsp, %rax        # sp+16 fp=cfa-16 ra=cfa-8
            sub $4, %rsp          # sp+16 fp=cfa-16 ra=cfa-8
            and $-32, %rsp        # sp+20 fp=cfa-16 ra=cfa-8
            mov %rax, (%rsp)      # r0+16 fp=cfa-16 ra=cfa-8
            mov %rsp, %rbp        # [sp+0]+16 fp=cfa-16 ra=cfa-8
            lea -128(%rbp), %rsp  # [fp+0]+16 fp=cfa-16 ra=cfa-8
            push %r12             # [fp+0]+16 fp=cfa-16 ra=cfa-8
            xor %eax, %eax        # [fp+0]+16 fp=cfa-16 ra=cfa-8
            pop %r12              # [fp+0]+16 fp=cfa-16 ra=cfa-8
            mov %rbp, %rsp        # [fp+0]+16 fp=cfa-16 ra=cfa-8
            pop %rsp              # [sp+0]+16 fp=cfa-16 ra=cfa-8
            pop %rbp              # sp+16 fp=cfa-16 ra=cfa-8
            ret                   # sp+8 ra=cfa-8
            """,
            id="kept where the frame pointer leads to",
        ),
    ],
)
def test_a_stack_pointer_that_is_kept(listing: str, tmp_path: Path) -> None:
    told = [line.partition("# ")[2] for line in listing.splitlines() if line.strip()]
    assert rules(assembled(tmp_path, listing)) == told


@needs_x86_assembler
def test_a_frame_pointer_to_where_the_stack_pointer_was_kept_and_is_not_taken_back(tmp_path: Path) -> None:
    lost = assembled(
        tmp_path, "push %rbp; mov %rsp, %rax; and $-32, %rsp; mov %rax, (%rsp); mov %rsp, %rbp; pop %rbp; ret\n"
    )
    assert rules(lost)[-1] == "guess"


@needs_x86_assembler
def test_a_block_behind_padding_that_is_led_back_to_is_no_function(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        push %rbx
        test %edi, %edi
        jmp 2f
        .p2align 4
        1:
        dec %edi
        jne 3f
        jmp 1b
        .p2align 4
        2:
        inc %edi
        jg 1b
        3:
        inc %ecx
        pop %rbx
        ret
        """,
    )
    table = inferred(code)
    assert {table.text_at(TEXT + at).removeprefix("inferred ") for at in range(16, len(code) - 1)} == {"sp+16 ra=cfa-8"}


@needs_x86_assembler
def test_what_lies_behind_a_call_that_does_not_return_is_as_a_jump_has_it(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        push %rbx
        call abort
        .p2align 4
        1:
        inc %eax
        ret
        .p2align 4
        dec %eax
        jmp 1b
        """,
    )
    assert inferred(code).text_at(TEXT + 16) == "inferred sp+8 ra=cfa-8"


@needs_x86_assembler
def test_a_loop_behind_padding_is_no_function(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        sub $40, %rsp
        jmp 2f
        .p2align 4
1:      inc %eax
2:      cmp %eax, %edi
        jne 1b
        add $40, %rsp
        ret
        .p2align 4
        inc %eax
        ret
        """,
    )
    table = inferred(code)
    assert table.text_at(TEXT + 16) == "inferred sp+48 ra=cfa-8"
    assert table.text_at(TEXT + len(code) - 1) == "inferred sp+8 ra=cfa-8"


@needs_x86_assembler
def test_what_ends_signal_handlers_and_begins_threads(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        nop
        mov $15, %rax
        syscall
        .p2align 4
        call 1f
        ret
        .p2align 4
1:      pop %rdi
        call *%rdi
        hlt
        """,
    )
    table = inferred(code)
    # A return address is looked up one byte before it.
    assert [table.text_at(TEXT + at) for at in (0, 1, 8)] == ["signal"] * 3
    assert table.text_at(TEXT + 32) == "inferred sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 33) == "stop"


def builtin_rules(code: bytes, at: int = 0) -> list[str]:
    """Of each instruction, where the code is V8's builtins, of which a symbol names that which is ``at`` bytes in."""
    symbol = np.array([(1, 2, 0, 1, TEXT + at, len(code) - at)], "<u4, u1, u1, <u2, <u8, <u8")
    source = binding.TableInput(
        sections.EM_X86_64,
        [binding.Segment(TEXT, 0x1000, len(code), 0)],
        symbols=binding.Section(symbol.tobytes()),
        read_code=lambda address, size: code[address - TEXT : address - TEXT + size],
        stretches=[binding.Stretch(TEXT, TEXT + len(code), binding.Rule(sections.FP_GUESS, 0, 0, 0), binding.BUILTINS)],
    )
    data = binding.build_table(source)
    assert data
    assert has_v8(data)
    table = read_table(data)
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    return [table.text_at(address) for address, _, _, _ in decoder.disasm_lite(code, TEXT)]


@needs_x86_assembler
def test_a_builtin_that_leaves_its_frame_for_another(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        push %rbp
        mov %rsp, %rbp
        push $6
        sub $24, %rsp
        push %rax
        push %rdi
        call *%rbx
        mov 0(%rbp), %rbp
        mov 40(%rsp), %r10
        mov %r10, 32(%rsp)
        add $32, %rsp
        jmp *%rcx
        """,
    )
    framed = "fp+16 fp=cfa-16 ra=cfa-8"
    assert builtin_rules(code) == [
        "sp+8 ra=cfa-8",
        "sp+16 fp=cfa-16 ra=cfa-8",
        *[framed] * 6,  # what is called pops what was pushed for it
        "sp+48 ra=cfa-8",
        "sp+48 ra=cfa-8",
        "sp+40 ra=cfa-8",
        "sp+8 ra=cfa-8",
    ]


@needs_x86_assembler
def test_a_builtin_that_has_its_return_address_in_a_register(tmp_path: Path) -> None:
    code = assembled(tmp_path, "pop %rcx\nlea (%rsp, %rax, 8), %rsp\npush %rdx\npush %rcx\njmp *%rbx")
    assert builtin_rules(code) == ["sp+8 ra=cfa-8", *["sp+0 ra=r2"] * 3, "sp+8 ra=cfa-8"]


@needs_x86_assembler
def test_a_builtin_that_pops_over_its_return_address(tmp_path: Path) -> None:
    code = assembled(tmp_path, "pop %rcx\npop %rdx\npop %rcx\nnop\njmp *%rbx")
    # None that was called could return then: it goes on in another's frame, and all of it is a guess.
    assert builtin_rules(code) == ["inferred sp+8 ra=cfa-8", *["inferred sp+0 ra=r2"] * 2, *[FP_GUESS] * 2]


@needs_x86_assembler
def test_what_precedes_the_first_builtin_is_odd_by_none_of_them(tmp_path: Path) -> None:
    """Of each pass over the code: the last builtin's leaves otherwise than it came."""
    first = assembled(tmp_path, ".p2align 4\ncall 1f\nint3\n1: push %rbx\npop %rbx\nret\n.p2align 4")
    last = assembled(tmp_path, "push %rbx\nret")
    code = first + last
    assert builtin_rules(code, at=len(first))[2:5] == ["sp+8 ra=cfa-8", "sp+16 ra=cfa-8", "sp+8 ra=cfa-8"]


@needs_x86_assembler
def test_a_builtin_that_copies_its_return_address(tmp_path: Path) -> None:
    code = assembled(tmp_path, "push %rcx\npush %rdi\npush 16(%rsp)\nmov %r10, 24(%rsp)\njmp *%rbx")
    assert builtin_rules(code) == [f"sp+{depth} ra=cfa-8" for depth in (8, 16, 24, 8, 8)]


@needs_x86_assembler
def test_a_builtin_that_pushes_in_a_loop_is_a_guess_from_there_on(tmp_path: Path) -> None:
    code = assembled(tmp_path, "xor %eax, %eax\n1: push (%rbx)\ninc %eax\ncmp %eax, %ecx\njne 1b\nint3\nret")
    assert builtin_rules(code)[:2] == ["sp+8 ra=cfa-8", FP_GUESS]


@needs_x86_assembler
def test_builtins_that_make_room_for_arguments(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        """
        mov %rsp, %r8
        sub %r10, %rsp
1:      mov (%r8, %r12, 8), %r10
        mov %r10, (%rsp, %r12, 8)
        inc %r12
        cmp %rax, %r12
        jle 1b
        lea 8(%rsp, %rax, 8), %r8
        mov %r11, (%r8)
        jmp *%rbx
        """,
    )
    assert builtin_rules(code) == [*["sp+8 ra=cfa-8"] * 2, *["r8+8 ra=cfa-8"] * 6, *["inferred sp+8 ra=cfa-8"] * 2]


def test_bytes_that_are_no_code_are_followed_along_frame_pointers() -> None:
    assert inferred(b"\x06" * 64).text_at(TEXT + 32) == FP_GUESS


def test_a_symbol_begins_a_function_wherever_it_is() -> None:
    code = b"\x50" * 40 + b"\xc3" * 24  # push %rax; ret
    symbol = np.array([(1, 2, 0, 1, TEXT + 20, 8)], "<u4, u1, u1, <u2, <u8, <u8").tobytes()
    table = inferred(code, b"\0" * 24 + symbol)
    assert table.text_at(TEXT + 19) == "inferred sp+160 ra=cfa-8"
    assert table.text_at(TEXT + 20) == "inferred sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 21) == "inferred sp+16 ra=cfa-8"


def test_code_that_cannot_be_read_is_guessed_as_before() -> None:
    source = binding.TableInput(
        sections.EM_X86_64, [binding.Segment(TEXT, 0x1000, 0x1000, 0)], read_code=lambda _address, _size: b"\x90"
    )
    table = binding.build_table(source)
    assert table
    assert read_table(table).text_at(TEXT) == "guess"


_HARNESS = r"""
#include <stdio.h>
#include <string.h>
#include "x86_instruction.h"
#include "unwind_calls.h"
int main(void)
{
	static unsigned char code[1 << 22];
	size_t size = fread(code, 1, sizeof(code), stdin);
	for (size_t at = 0; at < size;) {
		struct x86_instruction i = x86_decode(code + at, size - at);
		__u64 before = 0;
		at += i.length ? i.length : 1;
		if (at >= 8)
			memcpy(&before, code + at - 8, 8);
		printf("%zu %d\n", at, at >= 8 && unwind_ends_with_call(before));
	}
}
"""


@needs_x86_assembler
def test_instructions_are_as_long_as_capstone_says_and_calls_are_known(tmp_path: Path) -> None:
    (tmp_path / "harness.c").write_text(_HARNESS)
    native, bpf = ROOT / "profiler" / "native", ROOT / "bpf"
    harness = tmp_path / "harness"
    command: list[str | Path] = [
        "gcc",
        "-O1",
        "-I",
        native,
        "-I",
        bpf,
        tmp_path / "harness.c",
        native / "x86_instruction.c",
        "-o",
        harness,
    ]
    subprocess.run(command, check=True)
    library = next(path for path in map(Path, _mapped_files()) if path.name.startswith("libc.so"))
    text = open_elf(library).section(".text")
    assert text
    code = bytes(open_elf(library).section_data(text)[:400_000])
    lines = subprocess.run([harness], input=code, capture_output=True, check=True).stdout.split()
    ends = dict(zip(map(int, lines[::2]), map(int, lines[1::2]), strict=True))
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.skipdata = True
    found = [(address + size, name) for address, size, name, _ in decoder.disasm_lite(code, 0)]
    missing = [end for end, name in found if end not in ends and name != ".byte"]
    assert len(missing) <= 0.0005 * len(found)
    calls = [end for end, name in found if name == "call" and end > 8]
    assert len(calls) > 2000
    assert all(ends.get(end, 1) for end in calls)
    # A word of the stack that points into code by chance seldom passes.
    others = [ends[end] for end, name in found if name != "call" and end in ends]
    assert sum(others) <= 0.02 * len(others)


def _mapped_files() -> list[str]:
    return [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line]


@needs_x86_assembler
def test_data_in_a_segment_of_code_is_not_taken_for_code(tmp_path: Path) -> None:
    """Linkers that keep data out of executable segments only when asked put strings and symbols beside the code."""
    lines = "".join(f'const char text{n}[] = "push {n} %rbp; call it a function of {n} words";\n' for n in range(2000))
    (tmp_path / "data.c").write_text(lines + "int main(void) { return text0[0]; }\n")
    command = ["gcc", "-O2", "-Wl,-z,noseparate-code", "-o", "data", "data.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    elf = open_elf(tmp_path / "data")
    table = read_table(binding.build_table(sections.table_input(elf, None, b"x")))
    data, text = elf.section(".rodata"), elf.section(".text")
    assert data
    assert text
    [segment] = sections._segments(elf)
    assert segment.elf_address <= data.address < segment.elf_address + segment.bytes
    assert {table.text_at(address) for address in range(data.address, data.address + data.size, 16)} == {"none"}
    symbols = elf.section(".dynsym")
    assert symbols
    assert table.text_at(symbols.address) == "none"
    assert "none" not in {table.text_at(address) for address in range(text.address, text.address + text.size, 16)}


def test_what_a_hostile_file_adds_to_the_stack_pointer_is_not_taken_for_a_frame() -> None:
    down, up = b"\x48\x81\xec\0\0\x10\0", b"\x48\x81\xc4\0\0\x10\0"  # sub and add $0x100000, %rsp
    for step in (down, up):
        assert rules(step * 2100)[2:] == ["guess"] * 2098
    # push %rbp; mov %rsp, %rbp; lea -0x7fffffff(%rbp), %rsp; pop %rbp; ret
    assert rules(b"\x55\x48\x89\xe5\x48\x8d\xa5\x01\0\0\x80\x5d\xc3" + b"\xcc" * 8)[4] == "guess"


def test_a_builtin_that_puts_its_return_address_too_far_away_is_a_guess() -> None:
    # pop %rax; mov %rax, 0x7fffffff(%rsp); ret
    assert builtin_rules(b"\x58\x48\x89\x84\x24\xff\xff\xff\x7f\xc3")[-1] == FP_GUESS


def test_a_stack_pointer_that_is_kept_too_far_away_is_lost() -> None:
    # mov %rsp, %rax; and $-16, %rsp; mov %rax, 0x7fffff00(%rsp); nop
    assert rules(b"\x48\x89\xe0\x48\x83\xe4\xf0\x48\x89\x84\x24\0\xff\xff\x7f\x90")[-1] == "guess"


FUNCTION = b"\x55\x48\x89\xe5\x5d\xc3" + b"\xcc" * 10  # push %rbp; mov %rsp, %rbp; pop %rbp; ret


def test_a_table_between_functions_is_no_code() -> None:
    functions, table = FUNCTION * 64, np.random.default_rng(1).integers(0, 256, 8192, np.uint8).tobytes()
    found = inferred(functions + table + functions)
    alone = inferred(functions)
    # Up to where what is followed at the edge of the data may jump back to.
    assert [found.text_at(TEXT + at) for at in range(768)] == [alone.text_at(TEXT + at) for at in range(768)]
    data = TEXT + len(functions)
    assert {found.text_at(at) for at in range(data + 1024, data + len(table) - 1024)} == {"none"}
    behind = data + len(table) + 512
    assert [found.text_at(behind + at) for at in range(256)] == [alone.text_at(TEXT + 512 + at) for at in range(256)]


def test_what_a_symbol_calls_a_function_is_code_whatever_it_looks_like() -> None:
    table = np.random.default_rng(1).integers(0, 256, 8192, np.uint8).tobytes()
    code = FUNCTION * 64 + table[:4096] + FUNCTION + table[4096:]
    place = TEXT + 64 * len(FUNCTION) + 4096
    symbol = sections._SYMBOL.pack(0, 2, 0, 0, place, len(FUNCTION))
    assert inferred(code, symbol).text_at(place + 4).startswith("inferred")
    assert inferred(code).text_at(place + 4) == "none"
