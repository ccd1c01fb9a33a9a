"""Unwind tables: built from files' call-frame information, whatever it holds; gaps."""

import random
import struct
from dataclasses import replace

import pytest

from builders.call_frames import CIE, SIGNAL_CIE, entry, fde, frames, uleb
from builders.cfi_programs import compile_frames
from builders.elf import ElfFile
from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import open_elf, parse_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT = 0x401000
SP, FP = 7, 6  # DWARF numbers of x86-64


DEBUG_CIE = entry(b"\xff\xff\xff\xff\x04\0\x08\0" + uleb(1) + b"\x78" + uleb(16) + b"\x0c\x07\x08\x90\x01")


def debug_fde(start: int, size: int, program: bytes) -> bytes:
    """An FDE of .debug_frame whose CIE is the section's first."""
    return entry(struct.pack("<IQQ", 0, start, size) + program)


def build(eh_frame: bytes = b"", *, size: int = 0x2000, **more) -> UnwindTable:
    segment = binding.Segment(TEXT, 0x1000, size, 0)
    machine = more.pop("machine", sections.EM_X86_64)
    source = binding.TableInput(machine, [segment], eh_frame=binding.Section(eh_frame), **more)
    data = binding.build_table(source)
    assert data is not None
    assert binding.is_table(data)
    return read_table(data)


def test_a_function_with_a_frame_pointer():
    push_rbp = b"\x41\x0e\x10\x86\x02"  # after 1 byte: CFA = sp + 16, rbp at CFA - 16
    mov = b"\x43\x0d\x06"  # after 3 more: CFA = rbp + 16
    leave = b"\x4a\x0c\x07\x08"  # after 10 more: CFA = sp + 8
    table = build(frames((TEXT, 0x20, push_rbp + mov + leave)))
    assert table.text_at(TEXT) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 1) == table.text_at(TEXT + 3) == "sp+16 fp=cfa-16 ra=cfa-8"
    assert table.text_at(TEXT + 4) == table.text_at(TEXT + 13) == "fp+16 fp=cfa-16 ra=cfa-8"
    assert table.text_at(TEXT + 14) == "sp+8 fp=cfa-16 ra=cfa-8"
    assert table.sources == 1


def test_gaps_say_nothing_and_long_ones_guess():
    one = b""
    table = build(
        frames((TEXT, 0x10, one), (TEXT + 0x1F, 0x11, one), (TEXT + 0x80, 0x10, one), (TEXT + 0x400, 0x10, one))
    )
    assert table.text_at(TEXT + 0x15) == "sp+8 ra=cfa-8"  # padding of 15 bytes
    assert table.text_at(TEXT + 0x30) == table.text_at(TEXT + 0x7F) == "none"
    assert table.text_at(TEXT + 0x90) == table.text_at(TEXT + 0x3FF) == "guess"
    assert table.text_at(TEXT + 0x410) == "guess"
    assert table.counts[3] == 2


def test_a_short_end_of_a_segment_is_no_padding():
    table = build(frames((TEXT, 0x10, b"")), size=0x19)  # .fini is nine bytes
    assert table.text_at(TEXT + 0xF) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x10) == table.text_at(TEXT + 0x18) == "none"


def test_code_ends_before_constants_that_are_mapped_with_it():
    elf = parse_elf(memoryview(ElfFile(b"\xc3" * 0x10, TEXT).to_bytes()))
    [segment] = elf.segments
    source = sections.table_input(replace(elf, segments=(replace(segment, file_size=0x1000),)), None, b"x")
    assert [(s.start, s.end, s.rule.cfa) for s in source.stretches] == [(TEXT + 0x10, TEXT + 0x1000, sections.NONE)]
    table = build(frames((TEXT, 0x10, b"")), size=0x1000, stretches=source.stretches)
    assert table.text_at(TEXT + 0xF) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x10) == table.text_at(TEXT + 0xFFF) == "none"
    short = build(frames((TEXT, 0x8, b"")), size=0x1000, stretches=source.stretches)
    assert short.text_at(TEXT + 0x8) == "none"  # .fini, not padding


def test_equal_rows_are_one():
    push_rbx = b"\x41\x83\x02" * 5  # only says where rbx is
    table = build(frames((TEXT, 0x10, push_rbx), (TEXT + 0x10, 0x10, b"")), size=0x20)
    assert len(table.addresses) == 1


def test_signal_frames_and_the_outermost():
    data = CIE
    second = len(data)
    data += SIGNAL_CIE
    data += fde(len(data), TEXT, 0x10, b"\x0f\x03\x77\xa0\x01", second)
    data += fde(len(data), TEXT + 0x10, 0x10, b"\x07\x10")  # return address undefined
    table = build(data)
    assert table.text_at(TEXT) == "signal"
    assert table.text_at(TEXT + 0x10) == "stop"


EXPRESSIONS = {
    b"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22": "plt+11 ra=cfa-8",
    b"\x76\x78\x06": "[fp-8]+0 ra=cfa-8",  # a realigned stack
    b"\x77\x98\x01\x06\x23\x08": "[sp+152]+8 ra=cfa-8",  # OpenSSL
    b"\x77\x08\x79\x00\x38\x1e\x22\x06\x23\x08": "[sp+8*r9+8]+8 ra=cfa-8",
    b"\x7a\x10": "r10+16 ra=cfa-8",
    b"\x77\x10\x06\x06": "unsupported",
    b"\x77\x10\x06\x09\xf8\x22": "unsupported",  # read, minus 8: the field has no sign
    b"\x30": "unsupported",
    b"\x22": "unsupported",
    b"\x77": "unsupported",
    b"\x30\x30\x30\x30\x30": "unsupported",
}


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda e: e.hex())
def test_expressions(expression):
    table = build(frames((TEXT, 0x10, b"\x0f" + uleb(len(expression)) + expression)))
    assert table.text_at(TEXT) == EXPRESSIONS[expression]
    assert table.counts[2] == (EXPRESSIONS[expression] == "unsupported")


def test_a_register_after_an_expression_has_the_offset_from_before():
    table = build(frames((TEXT, 0x10, b"\x0e\x18\x41\x0f\x03\x76\x78\x06\x41\x0d\x06")))
    assert table.text_at(TEXT + 1) == "[fp-8]+0 ra=cfa-8"
    assert table.text_at(TEXT + 2) == "fp+24 ra=cfa-8"


# Of aarch64: instructions of four bytes, CFA = sp + 0, the return address in x30.
AARCH64_CIE = entry(b"\0\0\0\0\x01zR\0" + uleb(4) + b"\x78" + uleb(30) + b"\x01\x03\x0c\x1f\0")


def build_aarch64(program: bytes) -> UnwindTable:
    """Of one function."""
    data = AARCH64_CIE + fde(len(AARCH64_CIE), TEXT, 0x40, program) + b"\0\0\0\0"
    return build(data, machine=sections.EM_AARCH64)


def test_a_large_frame_without_a_frame_pointer():
    frame = 100_064
    saved = b"\x41\x0e" + uleb(frame) + b"\x41\x9e" + uleb(frame // 8)  # x30 at the frame's lower end
    saved += b"\x41\x9d" + uleb(frame // 8 - 2)  # x29 is saved later, and not beside it
    restored = b"\x41\xde\xdd\x41\x0e\0"
    table = build_aarch64(saved + restored)
    assert table.text_at(TEXT) == "sp+0 ra=lr"
    assert table.text_at(TEXT + 8) == f"sp+{frame} ra=cfa-{frame}"
    assert table.text_at(TEXT + 12) == f"sp+{frame} fp=cfa-{frame - 16} ra=cfa-{frame}"
    assert table.text_at(TEXT + 16) == f"sp+{frame} ra=lr"
    assert table.text_at(TEXT + 20) == "sp+0 ra=lr"
    assert table.counts[2] == 0


def assembled(*words: int) -> bytes:
    return b"".join(struct.pack("<I", word) for word in words)


def test_prologues_and_epilogues_that_llvm_says_nothing_of():
    code = assembled(
        0xD10103FF,  # sub sp, sp, #64
        0xA9037BFD,  # stp x29, x30, [sp, #48]
        0x9100C3FD,  # add x29, sp, #48
        0xF90013F3,  # str x19, [sp, #32]; the row is from here on
        0x94000000,  # bl
        0xF94013F3,  # ldr x19, [sp, #32]
        0xA9437BFD,  # ldp x29, x30, [sp, #48]
        0x910103FF,  # add sp, sp, #64
        0xD65F03C0,  # ret
        0x94000000,  # bl
        0xA9437BFD,  # ldp x29, x30, [sp, #48]
        0x910103FF,  # add sp, sp, #64
        0x14001000,  # b, far away
        0x17FFFFF8,  # b, within
    )
    program = b"\x43\x0c\x1d\x10\x9d\x02\x9e\x01"  # after 3 instructions: CFA = x29 + 16

    def read(address: int, size: int) -> bytes:
        return (bytes(address - TEXT) + code.ljust(0x2000, b"\0"))[address - TEXT :][:size]

    data = AARCH64_CIE + fde(len(AARCH64_CIE), TEXT, len(code), program) + b"\0\0\0\0"
    table = build(data, machine=sections.EM_AARCH64, read_code=read)
    whole = "fp+16 fp=cfa-16 ra=cfa-8"
    popped = ["sp+64 ra=lr", "sp+0 ra=lr"]
    expected = ["sp+0 ra=lr", "sp+64 ra=lr", "sp+64 ra=lr", *[whole] * 4, *popped, *[whole] * 2, *popped, whole]
    assert [table.text_at(TEXT + 4 * i) for i in range(len(expected))] == expected
    without_code = build(data, machine=sections.EM_AARCH64)
    assert without_code.text_at(TEXT + 8) == "sp+0 ra=lr"
    assert without_code.text_at(TEXT + 32) == whole


def test_an_epilogue_of_a_frame_without_a_frame_pointer():
    code = assembled(
        0xA9BE7BFD,  # stp x29, x30, [sp, #-32]!
        0xD14007FF,  # sub sp, sp, #0x1000
        0x94000000,  # bl
        0x914007FF,  # add sp, sp, #0x1000
        0xF84107FE,  # ldr x30, [sp], #16
        0xF84107FD,  # ldr x29, [sp], #16
        0xD65F0BFF,  # retaa
    )
    program = b"\x42\x0e" + uleb(0x1020) + b"\x9e\x04\x9d\x02"

    def read(address: int, size: int) -> bytes:
        return code.ljust(0x2000, b"\0")[address - TEXT :][:size]

    data = AARCH64_CIE + fde(len(AARCH64_CIE), TEXT, len(code), program) + b"\0\0\0\0"
    table = build(data, machine=sections.EM_AARCH64, read_code=read)
    saved = "fp=cfa-16 ra=cfa-32"
    expected = ["sp+0 ra=lr", "sp+32 ra=lr", *[f"sp+4128 {saved}"] * 2, f"sp+32 {saved}", "sp+16 fp=cfa-16 ra=lr"]
    assert [table.text_at(TEXT + 4 * i) for i in range(7)] == [*expected, "sp+0 ra=lr"]


def test_a_slot_far_from_everything_is_not_followed():
    table = build_aarch64(b"\x41\x0e" + uleb(200_000) + b"\x9e" + uleb(10_000))
    assert table.text_at(TEXT + 4) == "unsupported"


def test_what_the_plt_pushed_before_glibc_resolves_a_name():
    above = b"\x11\x1e\x7f"  # x30 at CFA + 8
    for start in (b"", b"\x41"):  # an instruction for branch protection first, or none
        table = build_aarch64(start + above + b"\x41\x0e" + uleb(208) + b"\x41\x0e\0\x41\x13\x02")
        at = TEXT + 4 * len(start)
        assert table.text_at(TEXT) == ("sp+16 ra=lr" if start else "sp+16 ra=cfa-8")
        assert table.text_at(at) == table.text_at(at + 8) == "sp+16 ra=cfa-8"
        assert table.text_at(at + 4) == "sp+224 ra=cfa-8"
        assert table.text_at(at + 12) == "sp+0 ra=lr"  # popped again


BAD_PROGRAMS = {
    "unknown instruction": b"\x3f",
    "restored, never remembered": b"\x0b",
    "remembered too often": b"\x0a" * 17,
    "cut short": b"\x0e",
    "block longer than all": b"\x0f\xff\x7f",
    "behind the function's end": b"\x02\x1f",
    "remembered, never restored": b"\x0a",
}
# Of debug data they are believed.
UNWRITTEN_PROGRAMS = {
    "an advance by nothing": b"\x42\x0e\x10\x40\x0e\x18",
    "an advance by nothing, in a byte": b"\x42\x0e\x10\x02\0\x0e\x18",
    "two advances": b"\x42\x0e\x10\x42\x42\x0e\x18",
    "padding before an instruction": b"\x42\x0e\x10\0\x42\x0e\x18",
    "the same register once more": b"\x42\x0e\x10\x42\x0d\x07\x0e\x18",
    "restored as it was remembered": b"\x42\x0e\x10\x42\x0a\x0b\x0e\x18",
}


@pytest.mark.parametrize("program", BAD_PROGRAMS.values(), ids=BAD_PROGRAMS)
def test_a_bad_program_is_not_believed(program):
    # The last instruction is the bad one: no padding may follow.
    program = b"\x42\x0e\x10" + (-(len(program) + 3 + 13) % 4) * b"\0" + program
    data = frames((TEXT, 0x20, program), (TEXT + 0x20, 0x10, b""))
    table = build(data)
    assert table.text_at(TEXT + 1) == table.text_at(TEXT + 0x20) == "guess"  # nor what stands beside it
    assert table.counts[:3] == (0, 1, 0)
    debug = build(
        debug_frame=binding.Section(DEBUG_CIE + debug_fde(TEXT, 0x10, program) + debug_fde(TEXT + 0x20, 8, b""))
    )
    assert debug.text_at(TEXT + 0x20) == "sp+8 ra=cfa-8"


@pytest.mark.parametrize("program", UNWRITTEN_PROGRAMS.values(), ids=UNWRITTEN_PROGRAMS)
def test_what_no_assembler_writes_is_damage(program):
    table = build(frames((TEXT, 0x20, program), (TEXT + 0x20, 0x10, b"")))
    assert table.text_at(TEXT + 1) == table.text_at(TEXT + 0x20) == "guess"
    assert table.counts[:3] == (0, 1, 0)
    debug = build(debug_frame=binding.Section(DEBUG_CIE + debug_fde(TEXT, 0x20, program)))
    assert debug.text_at(TEXT + 0x10) == "sp+24 ra=cfa-8"


def test_an_augmentation_of_a_size_that_the_common_entry_does_not_say_is_damage():
    data = frames((TEXT, 0x20, b"\x42\x0e\x10"), (TEXT + 0x20, 0x10, b""))
    assert build(data).text_at(TEXT + 2) == "sp+16 ra=cfa-8"
    at = len(CIE) + 4 + 12  # where the first function says that it has none
    assert data[at] == 0
    table = build(data[:at] + b"\x01" + data[at + 1 :])
    assert table.text_at(TEXT) == table.text_at(TEXT + 0x20) == "guess"
    assert table.counts[:3] == (0, 1, 0)


def search_table(*starts: int, form: bytes = b"\x01\x1b\x03\x3b") -> binding.Section:
    rows = b"".join(struct.pack("<ii", start - 0x900000, 0) for start in starts)
    return binding.Section(form + struct.pack("<iI", 0, len(starts)) + rows, 0x900000)


def test_a_function_that_the_search_table_does_not_have_is_damage():
    starts = [TEXT + 0x10 * number for number in (0, 1, 2, 7, 9, 9)]
    shuffled = random.Random(1).sample(starts, len(starts))
    data = frames(*((start, 0x10, b"") for start in shuffled))
    for header in (
        search_table(*starts),
        search_table(*starts, TEXT + 0x100),  # of a section beside it
        search_table(*starts[1:], form=b"\x01\x1b\x03\x3c"),  # a form that no linker writes
        binding.Section(search_table(*starts).data[:-1], 0x900000),
        binding.Section(b"\x01\x1b\x03\x3b"),
    ):
        assert build(data, eh_frame_hdr=header).text_at(TEXT + 0x70) == "sp+8 ra=cfa-8"
    for missing in (0, 2, 3, len(starts)):
        kept = [start for at, start in enumerate(starts) if at != missing]
        moved = search_table(*kept) if missing < len(starts) else search_table(*(start + 1 for start in starts))
        assert build(data, eh_frame_hdr=moved).text_at(TEXT + 0x70) == "guess"


GOOD = frames((TEXT, 0x10, b""))[:-4]
DAMAGED = {
    "a length that is too large": GOOD + struct.pack("<I", 0x7FFFFFFF) + bytes(20),
    "an entry of another's kind": GOOD + entry(struct.pack("<Iii", 0x10, 0, 0x10)),
    "an entry that is cut short": GOOD + entry(b"\0\0"),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_nothing_of_a_damaged_section_is_believed(data):
    """What is wrong with its other entries no rule of the format tells."""
    table = build(data)
    assert table.text_at(TEXT) == "guess"
    assert table.counts[:3] == (0, 1, 0)
    debug = DEBUG_CIE + debug_fde(TEXT, 0x10, b"\x0e\x18")
    assert build(data, debug_frame=binding.Section(debug)).text_at(TEXT) == "sp+24 ra=cfa-8"
    assert build(GOOD, debug_frame=binding.Section(debug + b"\x40\0\0\0" + bytes(8))).text_at(TEXT) == "sp+8 ra=cfa-8"


def test_functions_that_overlap_are_damage():
    table = build(frames((TEXT, 0x40, b"\x0e\x10"), (TEXT + 0x10, 0x10, b"\x0e\x20"), (TEXT + 0x50, 0x10, b"")))
    assert table.text_at(TEXT) == table.text_at(TEXT + 0x10) == table.text_at(TEXT + 0x50) == "guess"
    assert table.counts[:3] == (0, 1, 0)


def test_of_functions_that_begin_at_one_place_the_first_holds():
    table = build(frames((TEXT, 0x10, b"\x0e\x20"), (TEXT, 0x20, b"\x0e\x30")))
    assert table.text_at(TEXT) == "sp+32 ra=cfa-8"
    assert table.counts[1] == 0


def test_overlapping_functions_of_debug_data_are_cut():
    """Of code that a linker discarded several can be left at one address."""
    table = build(
        debug_frame=binding.Section(
            DEBUG_CIE + debug_fde(TEXT, 0x40, b"\x0e\x10") + debug_fde(TEXT + 0x10, 0x10, b"\x0e\x20")
        )
    )
    assert table.text_at(TEXT) == "sp+16 ra=cfa-8"
    assert table.text_at(TEXT + 0x10) == "sp+32 ra=cfa-8"
    assert table.text_at(TEXT + 0x25) == "guess"


def test_functions_in_any_order():
    starts = [TEXT + 0x10 * i for i in range(200)]
    shuffled = random.Random(1).sample(starts, len(starts))
    table = build(frames(*((start, 0x10, b"\x0e" + uleb(8 + 8 * (start >> 4 & 63))) for start in shuffled)))
    for start in starts:
        assert table.text_at(start) == f"sp+{8 + 8 * (start >> 4 & 63)} ra=cfa-8"


def test_debug_frame_fills_what_eh_frame_leaves_open():
    debug = DEBUG_CIE + debug_fde(TEXT, 0x40, b"\x0e\x18") + debug_fde(TEXT + 0x40, 0x10, b"\x0e\x20")
    eh = frames((TEXT + 0x10, 0x10, b""))
    table = build(eh, debug_frame=binding.Section(debug))
    assert table.text_at(TEXT) == "sp+24 ra=cfa-8"
    assert table.text_at(TEXT + 0x10) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x40) == "sp+32 ra=cfa-8"
    assert table.sources == 3


def test_known_stretches_hold_where_no_function_does():
    stop = binding.Stretch(TEXT + 0x10, TEXT + 0x30, binding.Rule(sections.STOP, 0, 0, 0))
    far = binding.Stretch(TEXT + 0x3000, TEXT + 0x3010, binding.Rule(sections.STOP, 0, 0, 0))
    plt = binding.Stretch(TEXT + 0x40, TEXT + 0x60, binding.Rule(sections.CFA_SP, 0, sections.FP_SAME, 16))
    table = build(frames((TEXT + 0x18, 0x8, b""), (TEXT + 0x38, 0x10, b"")), stretches=[stop, plt, far])
    assert table.text_at(TEXT + 0x10) == "stop"
    assert table.text_at(TEXT + 0x18) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x20) == "none"  # another function
    assert table.text_at(TEXT + 0x47) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x48) == table.text_at(TEXT + 0x5F) == "sp+16 ra=cfa-8"
    assert table.text_at(TEXT + 0x60) == "guess"


def test_only_the_first_function_is_the_outermost():
    stop = binding.Stretch(TEXT + 0x10, TEXT + 0x30, binding.Rule(sections.STOP, 0, 0, 0))
    table = build(frames((TEXT + 0x10, 0x10, b"")), stretches=[stop])
    assert table.text_at(TEXT + 0x10) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x20) == "guess"


def test_several_segments():
    segments = [binding.Segment(TEXT + 0x10, 0x1010, 0x1F0, 0), binding.Segment(TEXT + 0x100080, 0x2080, 0x100, 0)]
    source = binding.TableInput(
        sections.EM_X86_64,
        segments,
        eh_frame=binding.Section(frames((TEXT + 0x20, 0x10, b""), (TEXT + 0x100100, 0x10, b"\x0e\x10"))),
    )
    data = binding.build_table(source)
    table = read_table(data)
    assert [first for *_, first in table.segments] == [0, 3]
    assert table.text_at(TEXT + 0x10) == "none"
    assert table.text_at(TEXT + 0x20) == "sp+8 ra=cfa-8"
    assert table.text_at(TEXT + 0x30) == "guess"
    assert table.text_at(TEXT + 0x100080) == "none"
    assert table.text_at(TEXT + 0x100100) == "sp+16 ra=cfa-8"


def test_too_much_text_is_no_table():
    segments = [binding.Segment(TEXT + i * (1 << 32), 0x1000, 0xF0000000, 0) for i in range(2)]
    assert binding.build_table(binding.TableInput(sections.EM_X86_64, segments)) is None


@pytest.mark.parametrize("seed", range(8))
def test_damaged_call_frame_information(seed):
    """Whatever the bytes: a table that holds to its format."""
    elf = open_elf("/proc/self/exe")
    source = sections.table_input(elf, None, b"x")
    whole = bytes(source.eh_frame.data[:40_000])
    rng = random.Random(seed)
    for _ in range(25):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 10, 1000])):
            data[rng.randrange(len(data))] = rng.choice([0, 0xFF, rng.randrange(256)])
        cut = data[: rng.randrange(len(data))] if rng.random() < 0.3 else data
        table = binding.build_table(
            binding.TableInput(source.machine, source.segments, binding.Section(bytes(cut), source.eh_frame.address))
        )
        assert table is not None
        assert binding.is_table(table)
        assert len(read_table(table).addresses) <= len(cut) + 2 * len(source.segments) + 100


def test_a_damaged_table_is_none():
    elf = open_elf("/proc/self/exe")
    data = binding.build_table(sections.table_input(elf, None, b"x"))
    assert binding.is_table(data)
    assert not binding.is_table(data[:-4])
    assert not binding.is_table(data[:64])
    assert not binding.is_table(b"")
    header = bytearray(data)
    header[40] ^= 1
    assert not binding.is_table(bytes(header))
    row = bytearray(data)
    behind_rows = 4 * binding.read_header(data).beginnings
    row[-1 - behind_rows] = 0xFF  # a rule that is not there
    assert not binding.is_table(bytes(row))


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_a_program_has_a_rule_everywhere(arch, tmp_path):
    program = compile_frames(tmp_path, arch)
    if program is None:
        pytest.skip(f"no compiler for {arch}")
    elf = open_elf(program)
    table = read_table(binding.build_table(sections.table_input(elf, None, b"x")))
    assert table.counts[1:3] == (0, 0)  # nothing bad, nothing that is not followed
    for name in (".plt", ".plt.got", ".plt.sec", ".text"):
        section = elf.section(name)
        if section:
            known = [table.text_at(section.address + i) for i in range(0, section.size, 4)]
            assert known.count("guess") == 0
            assert known.count("none") <= 64  # pieces of the C runtime's start files
    entry_text = table.text_at(struct.unpack("<Q", elf.content.read(24, 8))[0])
    assert entry_text == ("stop" if arch == "x86_64" else entry_text)
    plt = elf.section(".plt")
    if arch == "aarch64":
        assert table.text_at(plt.address) == table.text_at(plt.address + 32) == "sp+0 ra=lr"
        assert table.text_at(plt.address + 4) == "sp+16 ra=cfa-8"
