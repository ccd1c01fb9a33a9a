"""What perf's records look like, as their events' attributes decide it.

The record formats are those of ``linux/perf_event.h`` (``enum perf_event_type``).
"""

from __future__ import annotations

from collections.abc import Sequence

from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import SampleType
from tdprof.unwind.walk import X86_64_WORDS
from tdprof.values import dataclass

_X86_64_RSP = 7  # its DWARF number


MISC_CPUMODE_MASK = 7
MISC_KERNEL = 1
MISC_USER = 2
MISC_HYPERVISOR = 3
MISC_COMM_EXEC = 1 << 13
MISC_SWITCH_OUT = 1 << 13
MISC_MMAP_BUILD_ID = 1 << 14
MISC_LOST_SAMPLES_BPF = 1 << 15  # perf's own (tools/lib/perf/include/perf/event.h): a filter left them out
BRANCH_CALL_STACK = 1 << 11
BRANCH_HW_INDEX = 1 << 17
BRANCH_COUNTERS = 1 << 19


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """What of one ``perf_event_attr`` decides how its records look.

    Attributes:
        sample_type: ``attr.sample_type``.
        read_format: ``attr.read_format``.
        branch_sample_type: ``attr.branch_sample_type``.
        sample_regs_user, sample_regs_intr: the register masks.
        sample_id_all: whether side-band records end with a ``struct sample_id``.
        has_build_ids: ``attr.build_id``: whether records of mappings name files by build-id where they say so.
        fixed_period: the period of samples without ``PERF_SAMPLE_PERIOD``; 0 = unknown (frequency mode).
        user_pc_register: number of the program counter in ``sample_regs_user`` (32 on arm64, 8 on x86), -1 = not asked.
        walk_registers: numbers in ``sample_regs_user`` of what a walk of the user stack begins with, in the order of
            ``unwind.walk``; empty where stacks of that machine are not walked.
        embeds_sample: whether the raw data of a sample is the sample that is meant: process, thread, period, call chain
            and cgroup, as perf's ``__set_offcpu_sample`` reads it (util/evsel.c).
        ids: the ids under which the kernel reports this event.
    """

    sample_type: int
    read_format: int = 0
    branch_sample_type: int = 0
    sample_regs_user: int = 0
    sample_regs_intr: int = 0
    sample_id_all: bool = True
    has_build_ids: bool = True
    fixed_period: int = 0
    user_pc_register: int = -1
    walk_registers: tuple[int, ...] = ()
    embeds_sample: bool = False
    ids: tuple[int, ...] = ()

    @property
    def user_pc(self) -> int:
        """Which of the recorded user registers is the program counter, -1 if it is not among them."""
        if self.user_pc_register < 0:
            return -1
        return self._place(self.user_pc_register)

    @property
    def walk_places(self) -> tuple[int, ...]:
        """Which of the recorded user registers the walk's are, -1 for those that are not among them."""
        return tuple(self._place(number) for number in self.walk_registers)

    @property
    def has_copies(self) -> bool:
        """Whether samples copy the stack, with the registers that no walk goes without: both last ones."""
        places = self.walk_places
        is_copied = self.sample_type & SampleType.STACK_USER and self.sample_type & SampleType.REGS_USER
        return bool(is_copied and places and self._stack_pointer_place() >= 0 and places[-1] >= 0)

    def _stack_pointer_place(self) -> int:
        return self.walk_places[_X86_64_RSP if len(self.walk_registers) == X86_64_WORDS else -2]

    def _place(self, number: int) -> int:
        if not self.sample_regs_user >> number & 1:
            return -1
        return (self.sample_regs_user & ((1 << number) - 1)).bit_count()


@dataclass(frozen=True, slots=True)
class IdWords:
    """Where a record's id stands: u64 index from the body's start (samples), from its end (side-band, negative)."""

    sample: int | None
    trailer: int | None
    mixed: bool


def locate_ids(layouts: Sequence[RecordLayout]) -> IdWords:
    """The place of the id that all layouts share.

    Raises:
        TdprofError: the events' records differ and nothing in a record says which event it is from.
    """
    samples = {_sample_id_word(layout.sample_type) for layout in layouts}
    trailers = {_trailer_id_word(layout) for layout in layouts}
    mixed = len({_shape(layout) for layout in layouts}) > 1
    sample = samples.pop() if len(samples) == 1 else None
    if mixed and sample is None:
        raise TdprofError(
            "the events have different sample layouts and no common id to tell their samples apart",
            hint="record with perf 3.10 or later, which sets PERF_SAMPLE_IDENTIFIER",
        )
    return IdWords(sample, trailers.pop() if len(trailers) == 1 else None, mixed)


def copied_words(layouts: Sequence[RecordLayout], byteorder: str) -> int:
    """How many registers each of ``Copies`` has; 0 where there are no stacks that can be walked."""
    # Both machines that are walked have their stacks in little-endian order.
    return max(
        (len(layout.walk_registers) for layout in layouts if layout.has_copies and byteorder == "little"), default=0
    )


def _shape(layout: RecordLayout) -> tuple[int, ...]:
    return (
        layout.sample_type,
        layout.read_format,
        layout.branch_sample_type & (BRANCH_HW_INDEX | BRANCH_COUNTERS),
        layout.sample_regs_user.bit_count(),
        layout.sample_regs_intr.bit_count(),
        layout.embeds_sample,
    )


def _sample_id_word(sample_type: int) -> int | None:
    if sample_type & SampleType.IDENTIFIER:
        return 0
    if not sample_type & SampleType.ID:
        return None
    return (sample_type & (SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.ADDR)).bit_count()


def _trailer_id_word(layout: RecordLayout) -> int | None:
    if not layout.sample_id_all:
        return None
    if layout.sample_type & SampleType.IDENTIFIER:
        return -1
    if not layout.sample_type & SampleType.ID:
        return None
    return -1 - (layout.sample_type & (SampleType.STREAM_ID | SampleType.CPU)).bit_count()
