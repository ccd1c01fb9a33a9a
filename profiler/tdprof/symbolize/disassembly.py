"""Machine code into instructions, by Capstone: AArch64 and x86-64."""

from collections.abc import Iterator

import capstone
from capstone import arm64_const, x86_const

from tdprof.linux.elf import EM_AARCH64, EM_X86_64
from tdprof.model.machine_code import CodePart, Instruction

_MODES = {
    EM_X86_64: (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
    EM_AARCH64: (capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN),
}
_IMMEDIATE = {EM_X86_64: x86_const.X86_OP_IMM, EM_AARCH64: arm64_const.ARM64_OP_IMM}
_PIECE_BYTES, _LONGEST_INSTRUCTION = 4096, 16
# tbz and tbnz name a register and a bit before the target, so that the target is the last operand.
_BRANCH_GROUPS = (capstone.CS_GRP_JUMP, capstone.CS_GRP_CALL)


def is_supported(machine: int) -> bool:
    """Whether code of this ``e_machine`` can be decoded."""
    return machine in _MODES


def disassemble(part: CodePart) -> Iterator[Instruction]:
    """The instructions of a piece of code, without gaps; what is none comes as bytes."""
    decoder = capstone.Cs(*_MODES[part.machine])
    decoder.detail = True
    decoder.skipdata = True
    for each in _pieces(decoder, part):
        text = f"{each.mnemonic} {each.op_str}".rstrip()
        target = None
        if each.id and any(each.group(group) for group in _BRANCH_GROUPS) and each.operands:
            last = each.operands[-1]
            if last.type == _IMMEDIATE[part.machine]:
                target = last.imm & 0xFFFF_FFFF_FFFF_FFFF
        yield Instruction(each.address, each.size, text, target)


def _pieces(decoder: capstone.Cs, part: CodePart) -> Iterator[capstone.CsInsn]:
    """Some code at a time: Capstone holds all that it is given as instructions of two kilobytes each."""
    at, is_more = 0, True
    while is_more:
        end, is_more = at + _PIECE_BYTES, False
        for each in decoder.disasm(part.data[at : end + _LONGEST_INSTRUCTION], part.address + at):
            if each.address - part.address >= end:
                break
            yield each
            at, is_more = each.address + each.size - part.address, True
