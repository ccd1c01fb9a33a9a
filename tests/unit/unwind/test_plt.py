"""Rules of procedure linkage tables, as each linker writes them. Bytes are those that the linkers left."""

import pytest

from builders.elf import EM_AARCH64, EM_X86_64, ElfFile
from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import parse_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT, PLT = 0x401000, 0x401100
PUSHES_MAP = bytes.fromhex("ff35ca2f0000 ff25cc2f0000 0f1f4000")
JUMPS_BY_GOT = b"\xff\x25" + bytes(4)
PADS = b"\xcc" * 14
ENDBR64 = bytes.fromhex("f30f1efa")
LAZY = JUMPS_BY_GOT + bytes.fromhex("6800000000 e9e0ffffff")
LAZY_IBT = ENDBR64 + bytes.fromhex("6800000000 e9e2ffffff 6690")
MOLD_FIRST = ENDBR64 + bytes.fromhex("4153 ff35ec370000 ff25ee370000") + PADS
MOLD = ENDBR64 + bytes.fromhex("41bb00000000 ff25d8370000")
ARM_FIRST = bytes.fromhex("f07bbfa9 f0000090 11fe47f9 10e23f91 20021fd6") + bytes.fromhex("1f2003d5") * 3
ARM_FIRST_BTI = bytes.fromhex("5f2403d5") + ARM_FIRST[:-4]
ARM = bytes.fromhex("10050090 110240f9 10020091 20021fd6")


def table_of(code: bytes, *, machine: int = EM_X86_64, name: str = ".plt") -> UnwindTable:
    file = ElfFile(
        text=b"\x90" * 0x1000,
        text_address=TEXT,
        sections={name: code},
        section_flags={name: 6},
        section_addresses={name: PLT},
        machine=machine,
    )
    data = binding.build_table(sections.table_input(parse_elf(memoryview(file.to_bytes())), None, b"x"))
    assert data is not None
    return read_table(data)


@pytest.mark.parametrize(("entry", "pushed"), [(LAZY, 11), (LAZY_IBT, 9)], ids=["ordinary", "with endbr64"])
def test_the_first_entry_and_lazy_ones(entry: bytes, pushed: int) -> None:
    table = table_of(PUSHES_MAP + entry * 3)
    assert table.text_at(PLT) == "sp+16 ra=cfa-8"
    assert table.text_at(PLT + 6) == "sp+24 ra=cfa-8"
    assert table.text_at(PLT + 16) == table.text_at(PLT + 63) == f"plt+{pushed} ra=cfa-8"


def test_entries_of_mold_push_nothing() -> None:
    table = table_of(MOLD_FIRST + MOLD * 2)
    first = [table.text_at(PLT + at) for at in (0, 4, 6, 12)]
    assert first == ["sp+8 ra=cfa-8", "sp+8 ra=cfa-8", "sp+16 ra=cfa-8", "sp+24 ra=cfa-8"]
    assert table.text_at(PLT + 32) == table.text_at(PLT + 63) == "sp+8 ra=cfa-8"


@pytest.mark.parametrize("name", [".plt", ".plt.got", ".plt.sec", ".iplt"])
def test_without_a_first_entry_nothing_is_pushed(name: str) -> None:
    """A static program's entries are for functions that are chosen at its start."""
    table = table_of((JUMPS_BY_GOT + b"\x66\x90" + bytes(8)) * 3, name=name)
    assert table.text_at(PLT) == table.text_at(PLT + 47) == "sp+8 ra=cfa-8"
    arm = table_of(ARM * 3, machine=EM_AARCH64, name=name)
    assert arm.text_at(PLT) == arm.text_at(PLT + 47) == "sp+0 ra=lr"


@pytest.mark.parametrize(("first", "stored"), [(ARM_FIRST, 4), (ARM_FIRST_BTI, 8)], ids=["ordinary", "with BTI"])
def test_the_first_entry_of_aarch64_stores_the_return_address(first: bytes, stored: int) -> None:
    table = table_of(first + ARM * 2, machine=EM_AARCH64)
    assert table.text_at(PLT) == table.text_at(PLT + 32) == table.text_at(PLT + 63) == "sp+0 ra=lr"
    assert table.text_at(PLT + stored - 1) == "sp+0 ra=lr"
    assert table.text_at(PLT + stored) == table.text_at(PLT + 31) == "sp+16 ra=cfa-8"


def test_entries_of_a_form_that_is_not_known_have_no_certain_rule() -> None:
    """lld's -z retpolineplt: mov, call, jmp."""
    table = table_of(PUSHES_MAP + bytes.fromhex("4c8b1d00000000 e800000000 e900000000") + b"\xcc" * 15)
    assert not table.text_at(PLT + 16).startswith("plt")
