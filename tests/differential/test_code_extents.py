"""Functions' extents, by which code without names or without sizes is told apart; readelf reads the same sections."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tdprof.linux.elf import Elf, open_elf
from tdprof.model.addresses import NO_BEGIN, Locations, MappedFile, Unknown
from tdprof.native.library import load_native
from tdprof.profile.naming import name_locations
from tdprof.symbolize.code_extents import NO_EXTENTS, read_extents
from tdprof.symbolize.debug_files import DebugDirs
from tdprof.symbolize.elf_symbols import ElfSymbols
from tdprof.symbolize.symbolizer import Symbolizer

# What assemblers make of hand-written code: `exported` has no size, `framed` has none but call-frame information; what
# follows has no name in the stripped file: a function that is described, and one that is not.
ASSEMBLY = """
    .text
    .globl exported, framed, last
    .type exported, @function
    .type framed, @function
exported:
    .skip 64, 0x90
hidden_without_frame:
    .skip 4096, 0x90
framed:
    .cfi_startproc
    .skip 1024, 0x90
    .cfi_endproc
hidden_with_frame:
    .cfi_startproc
    .skip 512, 0x90
    .cfi_endproc
    .type last, @function
last:
    .cfi_startproc
    .skip 16, 0x90
    .cfi_endproc
    .size last, 16
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("gcc") or not shutil.which("strip"):
        pytest.skip("gcc and strip are needed")
    folder = tmp_path_factory.mktemp("extents")
    (folder / "code.s").write_text(ASSEMBLY)
    path = folder / "libcode.so"
    subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,--build-id", "-o", path, folder / "code.s"], check=True)
    subprocess.run(["strip", path], check=True)
    return path


def address_of(elf: Elf, path: Path, name: str) -> int:
    listed = subprocess.run(["readelf", "--dyn-syms", "-W", path], check=True, capture_output=True, text=True).stdout
    found = re.search(rf"([0-9a-f]+) +\d+ FUNC .* {name}\n", listed)
    assert found
    address = int(found[1], 16)
    segment = next(each for each in elf.segments if each.address <= address < each.address + each.file_size)
    return address - segment.address + segment.offset


def look_up(path: Path, offsets: list[int]) -> Locations:
    return ElfSymbols(open_elf(path), path, DebugDirs.make((), None, None)).locate(np.array(offsets, np.uint64))


def names_of(found: Locations) -> list[str | None]:
    starts = found.frame_start.tolist()
    return [found.strings[found.function[a]] if b > a else None for a, b in itertools.pairwise(starts)]


def test_a_symbol_without_a_size_does_not_swallow_what_follows(library: Path) -> None:
    elf = open_elf(library)
    exported, framed = address_of(elf, library, "exported"), address_of(elf, library, "framed")
    assert names_of(look_up(library, [exported, exported + 63])) == ["exported", "exported"]
    assert names_of(look_up(library, [exported + 64 + 256, exported + 64 + 4095])) == [None, None]
    assert (
        names_of(look_up(library, [framed + at for at in (0, 1023, 1024, 1024 + 511)])) == ["framed"] * 2 + [None] * 2
    )


def shown_names(path: Path, offsets: list[int]) -> list[str]:
    with Symbolizer() as symbolizer:
        functions, locations = name_locations(
            [MappedFile(str(path), open_elf(path).build_id)],
            np.zeros(len(offsets), np.int32),
            np.array(offsets, np.uint64),
            symbolizer.locate,
            lambda names: list(names),
        )
    return [functions.name[number] for number in locations.frame_function]


def test_a_function_without_a_name_is_one_with_all_its_addresses(library: Path) -> None:
    elf = open_elf(library)
    exported, framed = address_of(elf, library, "exported"), address_of(elf, library, "framed")
    hidden, between = framed + 1024, exported + 256
    found = look_up(library, [hidden + 3, hidden + 500, exported + 4000, framed])
    assert found.reason.tolist() == [Unknown.STRIPPED] * 3 + [Unknown.KNOWN]
    assert found.begin is not None
    assert found.end is not None
    assert found.begin.tolist() == [hidden, hidden, between, NO_BEGIN]
    assert found.end.tolist() == [NO_BEGIN, NO_BEGIN, framed, NO_BEGIN]
    names = shown_names(library, [hidden + 3, hidden + 500, exported + 4000, exported + 300])
    assert names == [
        *[f"[stripped] libcode.so+{hidden:#x}"] * 2,
        *[f"[stripped] libcode.so+{between:#x}-{framed:#x}"] * 2,
    ]


def test_code_of_which_nothing_is_known_is_one_row_a_section(tmp_path: Path) -> None:
    """Neither symbols nor call-frame information: as hand-written assembly and some languages' programs are."""
    source, path = tmp_path / "bare.s", tmp_path / "libbare.so"
    source.write_text(
        '.text\n.skip 4096, 0x90\n.section .text.hot, "ax"\n.skip 512, 0x90\n.section other, "ax"\n.skip 256, 0x90'
    )
    subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,--build-id", "-o", path, source], check=True)
    subprocess.run(["strip", path], check=True)
    text, other = (open_elf(path).section(name) for name in (".text", "other"))
    assert text
    assert other
    places = [text.offset, text.offset + 100, text.offset + 4095, other.offset, other.offset + 255]
    assert shown_names(path, places) == [
        *[f"[stripped] libbare.so+{text.offset:#x}-{text.offset + text.size:#x}"] * 3,
        *[f"[stripped] libbare.so+{other.offset:#x}-{other.offset + other.size:#x}"] * 2,
    ]
    assert look_up(path, [0]).begin.tolist() == [NO_BEGIN]  # type: ignore[union-attr]  # the header is no code


@pytest.mark.parametrize("name", ["bash", "xz", "python3"])
def test_the_extents_are_those_that_readelf_reads(name: str) -> None:
    path = shutil.which(name, path="/usr/bin:/bin")  # not what stands for several versions
    if not path or not shutil.which("readelf"):
        pytest.skip(f"{name} and readelf are needed")
    text = subprocess.run(["readelf", "--debug-dump=frames", path], check=False, capture_output=True, text=True).stdout
    truth = sorted((int(a, 16), int(b, 16)) for a, b in re.findall(r" FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", text))
    extents = read_extents(open_elf(Path(path)))
    assert truth
    assert list(zip(extents.start.tolist(), extents.end.tolist(), strict=True)) == truth


def test_a_damaged_file_has_extents_or_none(library: Path, tmp_path: Path) -> None:
    """Whatever a byte of the two sections says: no other answer than extents, sorted."""
    data, elf = library.read_bytes(), open_elf(library)
    damaged = tmp_path / "damaged.so"
    for name in (".eh_frame_hdr", ".eh_frame"):
        section = elf.section(name)
        assert section
        for at in range(section.offset, section.offset + section.size):
            for value in (0, 0x7F, 0x80, 0xFF):
                damaged.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
                extents = read_extents(open_elf(damaged))
                assert (np.diff(extents.start.astype(object)) >= 0).all()
                assert (extents.end > extents.start).all()
    assert len(NO_EXTENTS.around(np.zeros(1, np.uint64))) == 1


# Hand-written code of which no symbol has a size, and behind each routine one whose label the assembler drops.
X86_ROUTINES = """
    .text
    .globl branching, calling, jumping, by_table, long
branching:
    test %edi, %edi
    je 1f
2:  dec %edi
    jne 2b
    ret
    nop
1:  mov $1, %eax
    jmp 3f
    int3
3:  ret
.Lbranching:
    .skip 100, 0x90
    ret
calling:
    call .Lcalling
    ud2
.Lcalling:
    ret
jumping:
    jmp branching
.Ljumping:
    ret
by_table:
    jmp *(%rsi,%rdi,8)
    ret
.Lby_table:
long:
    .skip 6000, 0x90
    ret
.Llong:
    .skip 100, 0x90
    ret
"""
ARM_ROUTINES = """
    .text
    .globl branching, calling, jumping, by_table, long
branching:
    cbz w0, 1f
2:  subs w0, w0, #1
    b.ne 2b
    ret
    nop
1:  mov w0, #1
    b 3f
    nop
3:  ret
.Lbranching:
    .rept 30
    nop
    .endr
    ret
calling:
    bl .Lcalling
    brk #1
.Lcalling:
    ret
jumping:
    b branching
.Ljumping:
    ret
by_table:
    br x1
    ret
.Lby_table:
long:
    .rept 1500
    nop
    .endr
    ret
.Llong:
    .rept 30
    nop
    .endr
    ret
"""


@pytest.mark.parametrize(("prefix", "text"), [("x86_64", X86_ROUTINES), ("aarch64", ARM_ROUTINES)])
@pytest.mark.parametrize("is_stripped", [False, True])
def test_a_symbol_without_a_size_ends_where_its_instructions_do(
    tmp_path: Path, prefix: str, text: str, is_stripped: bool
) -> None:
    if load_native() is None:
        pytest.skip("the compiled part is not built")
    tools = {name: shutil.which(f"{prefix}-linux-gnu-{name}") for name in ("as", "ld", "strip", "nm")}
    if None in tools.values():
        pytest.skip(f"binutils for {prefix} are needed")
    source, object_file, path = tmp_path / "code.s", tmp_path / "code.o", tmp_path / "libcode.so"
    # Kept under other names, so that the test knows where they are: as many bytes as assembled without.
    source.write_text(text.replace(".L", "end_of_"))
    subprocess.run([tools["as"], "-o", object_file, source], check=True)
    subprocess.run([tools["ld"], "-shared", "-Bsymbolic", "-o", path, object_file], check=True)
    listed = subprocess.run([tools["nm"], path], check=True, capture_output=True, text=True).stdout
    addresses = {name: int(address, 16) for address, _, name in map(str.split, listed.splitlines())}
    source.write_text(text)
    subprocess.run([tools["as"], "-o", object_file, source], check=True)
    subprocess.run([tools["ld"], "-shared", "-Bsymbolic", "-o", path, object_file], check=True)
    if is_stripped:
        subprocess.run([tools["strip"], path], check=True)
    elf = open_elf(path)
    code = elf.section(".text")
    assert code
    for name in ("branching", "calling", "jumping", "by_table", "long"):
        first, behind = (addresses[each] - code.address + code.offset for each in (name, f"end_of_{name}"))
        # Nobody knows where a jump by a table leads to: what stands behind it is thought to belong to it.
        expected = [name, name, None if name != "by_table" else "long"]
        assert names_of(look_up(path, [first, behind - 1, behind])) == expected, name
