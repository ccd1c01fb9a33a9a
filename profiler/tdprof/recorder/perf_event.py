"""perf_event_open(2): the attribute structure, the calls on a descriptor, and exact counts.

Layouts and numbers are those of the kernel's include/uapi/linux/perf_event.h.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import struct
import threading

from tdprof.linux.perf_abi import ATTR_FLAGS, ReadFormat, SampleType
from tdprof.values import dataclass

PERF_TYPE_HARDWARE = 0
PERF_TYPE_SOFTWARE = 1
PERF_TYPE_RAW = 4

PERF_COUNT_SW_DUMMY = 9

PERF_FLAG_PID_CGROUP = 1 << 2
PERF_FLAG_FD_CLOEXEC = 1 << 3

PERF_EVENT_IOC_ENABLE = 0x2400
PERF_EVENT_IOC_DISABLE = 0x2401
PERF_EVENT_IOC_SET_OUTPUT = 0x2405
PERF_EVENT_IOC_PERIOD = 0x40082404
PERF_EVENT_IOC_ID = 0x80082407
PERF_EVENT_IOC_SET_BPF = 0x40042408

CLOCK_MONOTONIC = 1

# perf_event_open(2)'s number; every 64-bit architecture since arm64 uses the generic table.
_SYSCALL_NUMBER = {"x86_64": 298, "aarch64": 241, "riscv64": 241}


class PerfEventAttr(ctypes.Structure):
    """struct perf_event_attr up to PERF_ATTR_SIZE_VER8; older kernels accept the longer size while its tail is zero.

    ``precise_low`` and ``precise_high`` together are the header's two-bit ``precise_ip``.
    """

    # An untyped list: ctypes takes both (name, type) and (name, type, bits).
    _fields_ = [
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),  # or sample_freq, when the `freq` bit is set
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        *((name, ctypes.c_uint64, 1) for name in ATTR_FLAGS),
        ("reserved_1", ctypes.c_uint64, 64 - len(ATTR_FLAGS)),
        ("wakeup_watermark", ctypes.c_uint32),  # or wakeup_events, when `watermark` is clear
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
        ("branch_sample_type", ctypes.c_uint64),
        ("sample_regs_user", ctypes.c_uint64),
        ("sample_stack_user", ctypes.c_uint32),
        ("clockid", ctypes.c_int32),
        ("sample_regs_intr", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32),
        ("sample_max_stack", ctypes.c_uint16),
        ("reserved_2", ctypes.c_uint16),
        ("aux_sample_size", ctypes.c_uint32),
        ("reserved_3", ctypes.c_uint32),
        ("sig_data", ctypes.c_uint64),
        ("config3", ctypes.c_uint64),
    ]

    type: int
    size: int
    config: int
    sample_period: int
    sample_type: int
    read_format: int
    disabled: int
    inherit: int
    pinned: int
    exclude_user: int
    exclude_kernel: int
    exclude_hv: int
    mmap: int
    comm: int
    freq: int
    enable_on_exec: int
    task: int
    watermark: int
    context_switch: int
    precise_low: int
    precise_high: int
    sample_id_all: int
    exclude_callchain_kernel: int
    exclude_callchain_user: int
    mmap2: int
    comm_exec: int
    use_clockid: int
    cgroup: int
    build_id: int
    wakeup_watermark: int
    sample_regs_user: int
    sample_stack_user: int
    config1: int
    config2: int
    config3: int
    clockid: int
    aux_watermark: int

    def __init__(self, **fields: int) -> None:
        super().__init__(size=ctypes.sizeof(PerfEventAttr), **fields)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def perf_event_open(attr: PerfEventAttr, pid: int, cpu: int, group_fd: int = -1, *, is_cgroup: bool = False) -> int:
    """Open one event; returns a descriptor that is closed on exec.

    Args:
        attr: the event.
        pid: task to follow, 0 for this one, -1 for all; or a control group's open folder.
        cpu: CPU to watch, -1 for any.
        group_fd: descriptor of the group's leader, or -1.
        is_cgroup: ``pid`` is a control group's.

    Raises:
        OSError: with the kernel's errno.
    """
    number = _SYSCALL_NUMBER.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"perf_event_open is not known on {os.uname().machine}")
    fd: int = _libc.syscall(
        ctypes.c_long(number),
        ctypes.byref(attr),
        ctypes.c_int(pid),
        ctypes.c_int(cpu),
        ctypes.c_int(group_fd),
        ctypes.c_ulong(PERF_FLAG_FD_CLOEXEC | (PERF_FLAG_PID_CGROUP if is_cgroup else 0)),
    )
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def enable(fd: int) -> None:
    """Start counting."""
    fcntl.ioctl(fd, PERF_EVENT_IOC_ENABLE, 0)


def disable(fd: int) -> None:
    """Stop counting; the count stays readable."""
    fcntl.ioctl(fd, PERF_EVENT_IOC_DISABLE, 0)


def set_period(fd: int, period: int) -> None:
    """Sample this event, and what tasks started from now on inherit of it, with another period, which starts anew."""
    fcntl.ioctl(fd, PERF_EVENT_IOC_PERIOD, struct.pack("=Q", period))


def set_bpf(fd: int, program_fd: int) -> None:
    """Run a BPF program at every overflow of this event and of those that tasks inherit from it."""
    fcntl.ioctl(fd, PERF_EVENT_IOC_SET_BPF, program_fd)


def set_output(fd: int, ring_fd: int) -> None:
    """Let this event write its records into another event's ring buffer."""
    fcntl.ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring_fd)


def event_id(fd: int) -> int:
    """The id that PERF_SAMPLE_IDENTIFIER puts into this event's records."""
    buffer = bytearray(8)
    fcntl.ioctl(fd, PERF_EVENT_IOC_ID, buffer)
    return int.from_bytes(buffer, "little")


@dataclass(frozen=True, slots=True)
class Count:
    """An event's count and its multiplexing times; sums over inherited events as the kernel keeps them."""

    value: int
    enabled_ns: int
    running_ns: int

    def __add__(self, other: "Count") -> "Count":
        return Count(self.value + other.value, self.enabled_ns + other.enabled_ns, self.running_ns + other.running_ns)

    def __sub__(self, other: "Count") -> "Count":
        return Count(self.value - other.value, self.enabled_ns - other.enabled_ns, self.running_ns - other.running_ns)


def read_count(fd: int) -> Count:
    """Read an event opened with TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING and no group."""
    return Count(*struct.unpack_from("=QQQ", os.read(fd, 64)))


def read_lost(fd: int) -> int:
    """Samples that found the ring buffer full, of an event opened with ReadFormat.LOST besides; 0 without it."""
    data = os.read(fd, 64)
    return int(struct.unpack_from("=Q", data, 24)[0]) if len(data) >= 32 else 0


@functools.cache
def knows_lost_format() -> bool:
    """Whether the kernel counts each event's lost samples (Linux 6.0)."""
    return _takes(read_format=ReadFormat.LOST)


def knows_cgroups() -> bool:
    """Whether samples can name their control group (Linux 5.7)."""
    return _takes(sample_type=SampleType.CGROUP)


def is_known_group(folder: int) -> bool:
    """Whether events can be of a control group of perf's hierarchy, by its open folder.

    Of version 2 the kernel keeps nothing for perf below its root until that has any controller in its
    cgroup.subtree_control (kernel/cgroup/cgroup.c, cgroup_calc_subtree_ss_mask), as inits see to.
    """
    attr = PerfEventAttr(type=PERF_TYPE_SOFTWARE, config=PERF_COUNT_SW_DUMMY)
    try:
        os.close(perf_event_open(attr, folder, 0, is_cgroup=True))
    except OSError as error:
        return error.errno != errno.ENOENT
    return True


def _takes(**fields: int) -> bool:
    """Whether the kernel opens an event of nothing with these fields."""
    attr = PerfEventAttr(type=PERF_TYPE_SOFTWARE, config=PERF_COUNT_SW_DUMMY, exclude_kernel=1, exclude_hv=1, **fields)
    try:
        os.close(perf_event_open(attr, 0, -1))
    except OSError:
        return False
    return True


def ready_kernel_for_events() -> None:
    """Open a first event of a task, in a thread of its own, and close it again.

    The kernel then waits 10 ms for a grace period of RCU (kernel/events/core.c, account_event), and for the next second
    it does not: so who opens events later need not wait.
    """

    def open_one() -> None:
        attr = PerfEventAttr(type=PERF_TYPE_SOFTWARE, config=PERF_COUNT_SW_DUMMY, disabled=1, exclude_kernel=1)
        with contextlib.suppress(OSError):
            os.close(perf_event_open(attr, 0, -1))

    threading.Thread(target=open_one, daemon=True).start()
