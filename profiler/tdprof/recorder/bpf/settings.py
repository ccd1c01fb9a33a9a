"""What the BPF programs are told at the load rather than when they are compiled: the constants of bpf/settings.h."""

from collections.abc import Iterator, Mapping
from enum import IntEnum

from tdprof.recorder.bpf.compiler import INSTRUCTION, wide_loads

MARK = 0x7D5E7713  # SETTING_MARK
WITH_KERNEL = 1 << 31  # of the setting EVENT, as in bpf/sample.bpf.c


class Cgroups(IntEnum):
    """``enum cgroups`` of bpf/settings.h: which control group a sample says that it was taken in."""

    NONE = 0
    V2 = 1
    V1 = 2
    V2_ELSE_V1 = 3


class SampledAt(IntEnum):
    """``enum sampled_at`` of bpf/settings.h: when a program takes a call chain."""

    OVERFLOW = 0
    SWITCH = 1
    WAKING = 2


class Setting(IntEnum):
    """``enum setting`` of bpf/settings.h."""

    EVENT = 0
    PIDNS_DEVICE = 1
    PIDNS_INODE = 2
    LEAF_ONLY = 3
    HAS_TASK_REGISTERS = 4
    WITH_CPU = 5
    CGROUPS = 6
    TASK_CSS_SET = 7
    CSS_SET_STATE = 8
    CSS_CGROUP = 9
    CSS_PARENT = 10
    CGROUP_KERNFS = 11
    KERNFS_ID = 12
    SAMPLED_AT = 13
    OFF_CPU_PERIOD = 14
    OFF_CPU_EVENT = 15
    TASK_STATE = 16
    TASK_PID = 17
    SCHEDULE = 18
    SCHEDULE_BYTES = 19
    FIRST_TURN = 20
    FIRST_TURN_BYTES = 21
    TASK_START = 22
    TASK_QUEUED = 23
    TASK_SIGNAL = 24
    SIGNAL_LIVE = 25
    WAKERS = 26
    TYPED_SWITCH = 27
    TELLS_SWITCH = 28
    COPIES_WAKEUP = 29


# Where control groups do not matter.
NO_CGROUPS = {setting: 0 for setting in Setting if Setting.CGROUPS <= setting < Setting.SAMPLED_AT}
# Where no time off a CPU is sampled.
NO_OFF_CPU = {setting: 0 for setting in Setting if Setting.SAMPLED_AT <= setting < Setting.COPIES_WAKEUP}


def is_setting(kind: int, high: int) -> bool:
    """Whether a wide load of this kind and upper half is a place for a setting."""
    return kind == 0 and high == MARK


def settings_in(code: bytes) -> Iterator[tuple[int, int]]:
    """Each place that a program's instructions have for a setting: (position in bytes, number of the setting)."""
    for position, kind, low, high in wide_loads(code):
        if is_setting(kind, high):
            yield position, low


def filled_in(code: bytes, values: Mapping[Setting, int]) -> bytes:
    """The instructions with each setting's value where its place is.

    Raises:
        KeyError: a setting has no value.
    """
    found = bytearray(code)
    for position, number in settings_in(code):
        value = values[Setting(number)]
        for part, half in enumerate((value & 0xFFFFFFFF, value >> 32)):
            start = position + (part + 1) * INSTRUCTION.size - 4
            found[start : start + 4] = half.to_bytes(4, "little")
    return bytes(found)
