"""Code taken apart a piece at a time."""

import random

import capstone
import pytest

from tdprof.linux.elf import EM_AARCH64, EM_X86_64
from tdprof.model.machine_code import CodePart
from tdprof.symbolize.disassembly import disassemble

X86_64 = (capstone.CS_ARCH_X86, capstone.CS_MODE_64)
AARCH64 = (capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)


@pytest.mark.parametrize(("machine", "mode"), [(EM_X86_64, X86_64), (EM_AARCH64, AARCH64)])
@pytest.mark.parametrize("seed", range(3))
def test_pieces_say_what_the_whole_says(machine: int, mode: tuple[int, int], seed: int) -> None:
    """Instructions of all lengths lie across the ends of pieces; noise has bytes that are none."""
    data = random.Random(seed).randbytes(3 * 4096 + 5)
    whole = capstone.Cs(*mode)
    whole.skipdata = True
    expected = [(each.address, each.size, f"{each.mnemonic} {each.op_str}".rstrip()) for each in whole.disasm(data, 64)]
    found = [(each.address, each.size, each.text) for each in disassemble(CodePart("f", 64, 0, data, machine))]
    assert found == expected
    assert len(data) - sum(size for _, size, _ in found) < 4  # a word's rest is no instruction, and not shown
