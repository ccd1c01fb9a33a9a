"""The test's side of /dev/neoverse_sim: loads the module, describes regions, makes faults, reads the truth."""

import ctypes
import fcntl
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from elftools.elf.constants import P_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from elftools.elf.segments import Segment

DEVICE = Path("/dev/neoverse_sim")
MODULE_FILE = Path(f"/lib/modules/{os.uname().release}/extra/neoverse_sim.ko")
PARAMETERS = Path("/sys/module/neoverse_sim/parameters")
# In the order of enum nsim_source, with the codes of Arm's common data-source encoding.
SOURCE_CODES = (0x0, 0x8, 0x9, 0xA, 0xB, 0xC, 0xD, 0xE)
L1, L2, PEER_CORE, LOCAL_CLUSTER, SYSTEM_CACHE, PEER_CLUSTER, REMOTE, DRAM = range(8)
MAX_RATES = 120


class _Rate(ctypes.Structure):
    """struct nsim_rate."""

    _fields_ = [("event", ctypes.c_uint32), ("per_million", ctypes.c_uint32)]


class _Region(ctypes.Structure):
    """struct nsim_region of tools/neoverse_sim/neoverse_sim.h."""

    _fields_ = [
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("source_weight", ctypes.c_uint32 * 8),
        ("source_cycles", ctypes.c_uint32 * 8),
        ("issue_cycles", ctypes.c_uint32),
        ("other_cycles", ctypes.c_uint32),
        ("translation_cycles", ctypes.c_uint32),
        ("walk_cycles", ctypes.c_uint32),
        ("walk_per_million", ctypes.c_uint32),
        ("mispredict_per_million", ctypes.c_uint32),
        ("unretired_per_million", ctypes.c_uint32),
        ("executable", ctypes.c_int32),
        ("unused", ctypes.c_uint32),
        ("nr_rates", ctypes.c_uint32),
        ("rates", _Rate * MAX_RATES),
    ]


class _Truth(ctypes.Structure):
    """struct nsim_truth."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "cycles", "samples", "records")]


class _Fault(ctypes.Structure):
    """struct nsim_fault."""

    _fields_ = [
        ("cpu", ctypes.c_int32),
        ("kind", ctypes.c_uint32),
        ("after_records", ctypes.c_uint32),
        ("amount", ctypes.c_uint32),
    ]


TRUNCATE, LOSE, GARBAGE, COLLIDE = 1, 2, 3, 4


def start_of(program: Path, function: str) -> int:
    """Under which `Simulation.truth` knows a function that was declared by its symbol."""
    with program.open("rb") as file:
        return _places(file, [function])[function][0]


def _places(file: BinaryIO, functions: Iterable[str]) -> dict[str, tuple[int, int]]:
    """From where a program's code starts to each function, and the function's size."""
    elf = ELFFile(file)
    code = min(each["p_vaddr"] for each in _executable(elf))
    symbols = elf.get_section_by_name(".symtab")
    assert isinstance(symbols, SymbolTableSection)
    found = {name: symbols.get_symbol_by_name(name) for name in functions}
    return {name: (symbol["st_value"] - code, symbol["st_size"]) for name, [symbol] in found.items()}


def _executable(elf: ELFFile) -> list[Segment]:
    return [each for each in elf.iter_segments("PT_LOAD") if each["p_flags"] & P_FLAGS.PF_X]


def _ioctl_number(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | ord("N") << 8 | number


@dataclass(frozen=True, slots=True)
class Region:
    """How one function of the workload behaves.

    Attributes:
        rates: event number to events per cycle.
        sources: place of a load to (relative frequency, total latency in cycles).
    """

    rates: Mapping[int, float] = field(default_factory=dict)
    sources: Mapping[int, tuple[int, int]] = field(default_factory=lambda: {L1: (1, 4)})
    issue_cycles: int = 1
    other_cycles: int = 2
    walk_share: float = 0.0
    walk_cycles: int = 40
    mispredict_share: float = 0.0
    unretired_share: float = 0.0

    def pack(self, start: int = 0, end: int = 0, executable: int = -1) -> bytes:
        """Its struct nsim_region; the workload fills in its own addresses."""
        region = _Region(
            start=start,
            end=end,
            executable=executable,
            issue_cycles=self.issue_cycles,
            other_cycles=self.other_cycles,
            translation_cycles=2,
            walk_cycles=self.walk_cycles,
            walk_per_million=round(self.walk_share * 1e6),
            mispredict_per_million=round(self.mispredict_share * 1e6),
            unretired_per_million=round(self.unretired_share * 1e6),
            nr_rates=len(self.rates),
        )
        for place, (weight, cycles) in self.sources.items():
            region.source_weight[place], region.source_cycles[place] = weight, cycles
        for index, (event, rate) in enumerate(self.rates.items()):
            region.rates[index] = _Rate(event, round(rate * 1e6))
        return bytes(region)


@dataclass(frozen=True, slots=True)
class Truth:
    """What the module knows of a region: user cycles while counters ran, operations sampled, records written."""

    cycles: int
    samples: int
    records: int


class Simulation:
    """The loaded module. Use as a context manager: leaving it unloads the module."""

    def __init__(self, **parameters: object) -> None:
        words = [f"{name}={value}" for name, value in parameters.items()]
        subprocess.run(["insmod", MODULE_FILE, *words], check=True)
        self._fd = os.open(DEVICE, os.O_RDWR)

    def set_parameter(self, name: str, value: object) -> None:
        """Change a parameter that the module reads as it runs."""
        (PARAMETERS / name).write_text(str(value))

    def inject(self, kind: int, *, after_records: int = 0, amount: int = 1, cpu: int = -1) -> None:
        """Have the SPE of a CPU (-1: of each) make a fault."""
        fcntl.ioctl(self._fd, _ioctl_number(1, 4, ctypes.sizeof(_Fault)), _Fault(cpu, kind, after_records, amount))

    def declare(self, program: Path, regions: Mapping[str, Region]) -> None:
        """Describe functions of a program that knows nothing of this, by their symbols."""
        with program.open("rb") as file:
            places = _places(file, regions)
            for name, region in regions.items():
                self._declare(file.fileno(), region, *places[name])

    def declare_all(self, program: Path, region: Region) -> None:
        """Describe all code of a program's own file."""
        with program.open("rb") as file:
            self._declare(file.fileno(), region, 0, max(each["p_memsz"] for each in _executable(ELFFile(file))))

    def _declare(self, executable: int, region: Region, start: int, size: int) -> None:
        packed = bytearray(region.pack(start, start + size, executable))  # more than it copies of bytes
        fcntl.ioctl(self._fd, _ioctl_number(1, 1, ctypes.sizeof(_Region)), packed)

    def clear(self) -> None:
        """Forget the declared regions."""
        fcntl.ioctl(self._fd, _ioctl_number(0, 2, 0))

    def truth(self, start: int) -> Truth:
        """What happened in the region that starts at this address."""
        truth = _Truth(start=start)
        fcntl.ioctl(self._fd, _ioctl_number(3, 3, ctypes.sizeof(_Truth)), truth)
        return Truth(truth.cycles, truth.samples, truth.records)

    def close(self) -> None:
        """Unload the module."""
        os.close(self._fd)
        subprocess.run(["rmmod", "neoverse_sim"], check=True)

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def write_regions(path: Path, regions: Sequence[Region]) -> Path:
    """The file that the workload's -r takes."""
    path.write_bytes(b"".join(region.pack() for region in regions))
    return path
