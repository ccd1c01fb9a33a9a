"""Machine code as it is shown: a function's pieces and their instructions."""

from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class CodePart:
    """A contiguous piece of a function's code, as a symbol of the file bounds it.

    Attributes:
        name: linkage name of the symbol.
        address: ELF address of the first byte.
        file_offset: where the bytes stand in the file.
        data: the bytes.
        machine: ELF's ``e_machine``.
    """

    name: str
    address: int
    file_offset: int
    data: bytes
    machine: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction; bytes that are none are ``.byte`` directives.

    Attributes:
        address: ELF address.
        size: bytes.
        text: mnemonic and operands.
        target: ELF address that a direct branch or call goes to; None for all else.
    """

    address: int
    size: int
    text: str
    target: int | None = None
