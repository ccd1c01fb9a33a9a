"""MIDR_EL1, the register that says which core this is, and where Linux shows it."""

import re
from pathlib import Path

from tdprof.errors import TdprofError
from tdprof.values import dataclass

SYSFS = Path("/sys")


@dataclass(frozen=True, slots=True, order=True)
class Revision:
    """The rXpY of a core, ordered as Arm numbers them."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"r{self.major}p{self.minor}"


def parse_revision(text: str) -> Revision:
    """Read "r0p3"; raises ValueError for anything else."""
    found = re.fullmatch(r"r(\d{1,2})p(\d{1,2})", text, re.ASCII)
    if found is None:
        raise ValueError(f"'{text}' is no revision such as r0p3")
    return Revision(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Midr:
    """The fields of MIDR_EL1 (Arm ARM D24.2.122): bits 31:24 implementer, 23:20 variant, 15:4 part, 3:0 revision."""

    implementer: int
    part: int
    revision: Revision

    @classmethod
    def from_register(cls, value: int) -> "Midr":
        return cls(value >> 24 & 0xFF, value >> 4 & 0xFFF, Revision(value >> 20 & 0xF, value & 0xF))

    def __str__(self) -> str:
        return f"implementer 0x{self.implementer:02x}, part 0x{self.part:03x}, {self.revision}"


@dataclass(frozen=True, slots=True)
class CoreType:
    """One kind of core in this machine, and the CPUs that are of it."""

    midr: Midr
    cpus: tuple[int, ...]


def read_core_types(sysfs: Path = SYSFS) -> list[CoreType]:
    """The kinds of Arm core in this machine, most CPUs first; empty where Linux shows no MIDR_EL1.

    Every CPU is read, because big.LITTLE and mixed machines differ between CPUs. A CPU that is offline shows none.
    """
    cpus_of: dict[Midr, list[int]] = {}
    for path in (sysfs / "devices/system/cpu").glob("cpu[0-9]*/regs/identification/midr_el1"):
        cpu = int(path.parents[2].name.removeprefix("cpu"))
        try:
            midr = Midr.from_register(int(path.read_text(), 16))
        except (OSError, ValueError) as error:
            raise TdprofError(
                f"cannot read which core this is from {path}: {error}", hint="tdprof … --cpu NAME"
            ) from error
        cpus_of.setdefault(midr, []).append(cpu)
    types = [CoreType(midr, tuple(sorted(cpus))) for midr, cpus in cpus_of.items()]
    return sorted(types, key=lambda core: (-len(core.cpus), core.cpus))
