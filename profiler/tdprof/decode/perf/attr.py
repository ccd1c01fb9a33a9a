"""``struct perf_event_attr`` as perf.data stores it, of any kernel's size and in either byte order."""

from __future__ import annotations

import struct
from enum import IntEnum

from tdprof.decode.perf.layout import RecordLayout
from tdprof.linux.perf_abi import ATTR_FLAGS, PC_REGISTER, WALK_REGISTERS, SampleType
from tdprof.values import dataclass

SMALLEST_ATTR = 64  # PERF_ATTR_SIZE_VER0

_FLAG_BITS = {name: bit for bit, name in enumerate(ATTR_FLAGS)}


class PmuType(IntEnum):
    """``enum perf_type_id``; higher numbers are the recorded machine's own PMUs."""

    HARDWARE = 0
    SOFTWARE = 1
    TRACEPOINT = 2
    HW_CACHE = 3
    RAW = 4
    BREAKPOINT = 5


_HARDWARE = (
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
)
_SOFTWARE = (
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
)
SOFTWARE_CPU_CLOCK, SOFTWARE_TASK_CLOCK, SOFTWARE_DUMMY, SOFTWARE_BPF_OUTPUT = 0, 1, 9, 10
_OFF_CPU = "offcpu-time"


@dataclass(frozen=True, slots=True)
class Attr:
    """One event of a perf.data file.

    Attributes:
        type, config, config1, config2: which event; ``type`` is a ``PmuType`` or a PMU's number.
        sample_period: events per sample, or samples per second where ``is_frequency``.
        flags: bits in the order of ``struct perf_event_attr``; see ``has_flag``.
        clockid: the clock of its times (``CLOCK_MONOTONIC`` is 1); None = perf's own.
        ids: the ids that mark its records.
        name: as the recording spelled it, or made from type and config.
    """

    type: int
    config: int
    config1: int
    config2: int
    sample_period: int
    sample_type: int
    read_format: int
    flags: int
    branch_sample_type: int
    sample_regs_user: int
    sample_regs_intr: int
    clockid: int | None = None
    ids: tuple[int, ...] = ()
    name: str = ""

    def has_flag(self, name: str) -> bool:
        """A bit of ``struct perf_event_attr`` by its name there."""
        return bool(self.flags >> _FLAG_BITS[name] & 1)

    @property
    def is_frequency(self) -> bool:
        return self.has_flag("freq")

    @property
    def is_clock(self) -> bool:
        """Whether it counts nanoseconds."""
        is_clock = self.type == PmuType.SOFTWARE and self.config in (SOFTWARE_CPU_CLOCK, SOFTWARE_TASK_CLOCK)
        return is_clock or self.is_off_cpu

    @property
    def is_off_cpu(self) -> bool:
        """Whether its samples are made by perf's own BPF program, of threads that come back (``--off-cpu``)."""
        return self.type == PmuType.SOFTWARE and self.config == SOFTWARE_BPF_OUTPUT and self.name == _OFF_CPU

    @property
    def is_dummy(self) -> bool:
        """Whether it exists for its side-band records only."""
        return self.type == PmuType.SOFTWARE and self.config == SOFTWARE_DUMMY

    def layout(self, arch: str) -> RecordLayout:
        """How its records look; ``arch`` (``uname -m``) tells which register is the program counter."""
        has_period = self.sample_type & SampleType.PERIOD
        return RecordLayout(
            sample_type=self.sample_type,
            read_format=self.read_format,
            branch_sample_type=self.branch_sample_type,
            sample_regs_user=self.sample_regs_user,
            sample_regs_intr=self.sample_regs_intr,
            sample_id_all=self.has_flag("sample_id_all"),
            has_build_ids=self.has_flag("build_id"),
            fixed_period=0 if has_period or self.is_frequency else self.sample_period,
            user_pc_register=PC_REGISTER.get(arch, -1),
            walk_registers=WALK_REGISTERS.get(arch, ()),
            embeds_sample=self.is_off_cpu and bool(self.sample_type & SampleType.RAW),
            ids=self.ids,
        )


def parse_attr(data: bytes, byteorder: str) -> Attr:
    """An attr of ``len(data)`` bytes; fields an old kernel did not know are 0, those of a newer one are ignored.

    Args:
        data: at least ``SMALLEST_ATTR`` bytes.
        byteorder: of the file.
    """
    order = "<" if byteorder == "little" else ">"
    padded = data.ljust(136, b"\0")
    type_, _size, config, period, sample_type, read_format, flags = struct.unpack_from(f"{order}IIQQQQQ", padded, 0)
    config1, config2, branch_type, regs_user = struct.unpack_from(f"{order}QQQQ", padded, 56)
    clockid, regs_intr = struct.unpack_from(f"{order}iQ", padded, 92)
    if byteorder == "big":  # bitfields fill a big-endian word from its top
        flags = int(f"{flags:064b}"[::-1], 2)
    return Attr(
        type=type_,
        config=config,
        config1=config1,
        config2=config2,
        sample_period=period,
        sample_type=sample_type,
        read_format=read_format,
        flags=flags,
        branch_sample_type=branch_type,
        sample_regs_user=regs_user,
        sample_regs_intr=regs_intr,
        clockid=clockid if flags >> _FLAG_BITS["use_clockid"] & 1 else None,
    )


def default_name(attr: Attr) -> str:
    """A name for an event that the file does not name, as perf spells it on the command line."""
    if attr.type == PmuType.HARDWARE and attr.config < len(_HARDWARE):
        return _HARDWARE[attr.config]
    if attr.type == PmuType.SOFTWARE and attr.config < len(_SOFTWARE):
        return _SOFTWARE[attr.config]
    if attr.type == PmuType.RAW:
        return f"r{attr.config:x}"
    return f"pmu{attr.type}/config={attr.config:#x}/"
