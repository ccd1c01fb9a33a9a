"""What the kernel's perf interface calls things, for those who ask it for records and those who read them.

Names, numbers and order are those of ``linux/perf_event.h``.
"""

from enum import IntEnum, IntFlag

# Numbers of user registers in PERF_SAMPLE_REGS_USER, by `uname -m` (asm/perf_regs.h): the program counter, and what a
# walk of the user stack begins with, in the order of unwind.walk: x86-64's as DWARF counts them; x29, x30, sp and pc.
PC_REGISTER = {"aarch64": 32, "arm64": 32, "x86_64": 8, "i686": 8, "i386": 8}
WALK_REGISTERS = {
    "x86_64": (0, 3, 2, 1, 4, 5, 6, 7, *range(16, 24), 8),
    "aarch64": (29, 30, 31, 32),
    "arm64": (29, 30, 31, 32),
}

# The bit-field of struct perf_event_attr, from its lowest bit. `precise_low` and `precise_high` are its two-bit
# `precise_ip`.
ATTR_FLAGS = (
    "disabled",
    "inherit",
    "pinned",
    "exclusive",
    "exclude_user",
    "exclude_kernel",
    "exclude_hv",
    "exclude_idle",
    "mmap",
    "comm",
    "freq",
    "inherit_stat",
    "enable_on_exec",
    "task",
    "watermark",
    "precise_low",
    "precise_high",
    "mmap_data",
    "sample_id_all",
    "exclude_host",
    "exclude_guest",
    "exclude_callchain_kernel",
    "exclude_callchain_user",
    "mmap2",
    "comm_exec",
    "use_clockid",
    "context_switch",
    "write_backward",
    "namespaces",
    "ksymbol",
    "bpf_event",
    "aux_output",
    "cgroup",
    "text_poke",
    "build_id",
    "inherit_thread",
    "remove_on_exec",
    "sigtrap",
)


class RecordType(IntEnum):
    """``enum perf_event_type``."""

    MMAP = 1
    LOST = 2
    COMM = 3
    EXIT = 4
    THROTTLE = 5
    UNTHROTTLE = 6
    FORK = 7
    READ = 8
    SAMPLE = 9
    MMAP2 = 10
    AUX = 11
    ITRACE_START = 12
    LOST_SAMPLES = 13
    SWITCH = 14
    SWITCH_CPU_WIDE = 15
    NAMESPACES = 16
    KSYMBOL = 17
    BPF_EVENT = 18
    CGROUP = 19
    TEXT_POKE = 20
    AUX_OUTPUT_HW_ID = 21


class SampleType(IntFlag):
    """``enum perf_event_sample_format``, the bits that decide layout."""

    IP = 1 << 0
    TID = 1 << 1
    TIME = 1 << 2
    ADDR = 1 << 3
    READ = 1 << 4
    CALLCHAIN = 1 << 5
    ID = 1 << 6
    CPU = 1 << 7
    PERIOD = 1 << 8
    STREAM_ID = 1 << 9
    RAW = 1 << 10
    BRANCH_STACK = 1 << 11
    REGS_USER = 1 << 12
    STACK_USER = 1 << 13
    WEIGHT = 1 << 14
    DATA_SRC = 1 << 15
    IDENTIFIER = 1 << 16
    TRANSACTION = 1 << 17
    REGS_INTR = 1 << 18
    PHYS_ADDR = 1 << 19
    AUX = 1 << 20
    CGROUP = 1 << 21
    DATA_PAGE_SIZE = 1 << 22
    CODE_PAGE_SIZE = 1 << 23
    WEIGHT_STRUCT = 1 << 24


class ReadFormat(IntFlag):
    """``enum perf_event_read_format``."""

    TOTAL_TIME_ENABLED = 1 << 0
    TOTAL_TIME_RUNNING = 1 << 1
    ID = 1 << 2
    GROUP = 1 << 3
    LOST = 1 << 4
